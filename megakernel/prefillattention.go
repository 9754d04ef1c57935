package megakernel

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/attention"
)

// prefillAttentionLacks says what layers' attention has and that of prefill kernels does not, and what to do instead;
// nothing where there is none. docs/prefill.md says why.
func (mk *Kernel) prefillAttentionLacks() string {
	for _, s := range mk.specs {
		if s.has(termStreaming) {
			return fmt.Sprintf("attention %q, which rotates cached keys anew in each step: want window with the same sinks, "+
				"or no prefill kernel", s)
		}
		// see attention.PrefillAttention.Variant
		if v := mk.variant(s.scoring(), &buffers{}, Tables{}); v != nil && (v.Query != nil || v.Key != nil ||
			v.Value != nil || v.Mask != nil || v.Output != nil) {
			return fmt.Sprintf("attention %q, whose bits only a request of rows has: want no prefill kernel", s)
		}
	}
	if mk.Options.Selection {
		return "selected pages, which only a request of rows names: want no prefill kernel"
	}
	return ""
}

// scoring is the terms of a class but those that attention and QKV know: windows, sinks, and factors of heads.
func (s attentionSpec) scoring() (of attentionSpec) {
	for _, t := range s {
		switch t.name {
		case termWindow, termSinks, termHeadScale:
		default:
			of = append(of, t)
		}
	}
	return of
}

// attends gives attention the windows and sinks of the layers, and queries their factors.
func (f *prefillFlow) attends() {
	f.mk.declareHooked(f.k, f.bufs)
	of := func(number func(s attentionSpec) int) func(s attention.Step) dsl.Val[dsl.U32] {
		return func(s attention.Step) dsl.Val[dsl.U32] { return f.ofClass(s, number) }
	}
	if f.mk.has(termWindow) {
		windows := of(func(s attentionSpec) int {
			if window, _ := s.window(); window > 0 {
				return window
			}
			return maxWindow // no context is longer
		})
		f.att.Window = func(s attention.Step) dsl.Val[dsl.U32] { return windows(s).Named("window") }
	}
	if f.mk.has(termSinks) {
		sinks := of(func(s attentionSpec) int { _, n := s.window(); return n })
		f.att.Sinks = func(s attention.Step) dsl.Val[dsl.U32] { return sinks(s).Named("sinks") }
	}
}

// isClass is whether a step's layer is of a class.
func (f *prefillFlow) isClass(s attention.Step, class int) dsl.Pred {
	return attention.Turns(f.mk.pattern).Is(f.k, s.Layer, class)
}

// attention calls body with the attention of a step's layer: once, or for each class where they change scores in other
// ways.
func (f *prefillFlow) attention(s attention.Step, body func(att *attention.PrefillAttention)) {
	of := func(class int) {
		own := *f.att
		own.Variant = f.mk.variant(f.mk.specs[class].scoring(), f.bufs, Tables{})
		body(&own)
	}
	first := f.mk.specs[0].scoring()
	if !slices.ContainsFunc(f.mk.specs, func(s attentionSpec) bool { return !slices.Equal(s.scoring(), first) }) {
		of(0)
		return
	}
	f.eachClass(s, of)
}

// scaled are QKV's queries of layers that multiply them by a factor of each head; nil where none does.
func (f *prefillFlow) scaled() attention.QueryHook {
	if !f.mk.has(termHeadScale) {
		return nil
	}
	return func(q *attention.Query, dim dsl.Val[dsl.U32], lo, hi dsl.Val[dsl.F32]) (a, b dsl.Val[dsl.F32]) {
		for class, spec := range f.mk.specs {
			if !spec.has(termHeadScale) {
				continue
			}
			own := *q
			v := f.mk.variant(attentionSpec{{name: termHeadScale}}, f.bufs, Tables{})
			own.Prepared = v.Prepare(&own)
			x, y := v.Query(&own, dim, lo, hi)
			if len(f.mk.specs) > 1 {
				is := f.isClass(q.Step, class)
				x, y = dsl.Select(is, x, lo), dsl.Select(is, y, hi)
			}
			lo, hi = x, y
		}
		return lo, hi
	}
}
