package megakernel

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks"
)

// prefillAttentionLacks names what layers' attention has and that of prefill kernels does not; nothing where there is
// none.
func (mk *Kernel) prefillAttentionLacks() string {
	for _, s := range mk.specs {
		for _, t := range s {
			if t.name != termWindow && t.name != termSoftCap {
				return fmt.Sprintf("attention %q", s)
			}
		}
		if s.cap() != mk.specs[0].cap() {
			return fmt.Sprintf("attention %q, with soft caps in some layers,", mk.Options.Attention)
		}
	}
	return ""
}

// cap is the soft cap of a class's scores, 0 without.
func (s attentionSpec) cap() float64 {
	if i := slices.IndexFunc(s, func(t term) bool { return t.name == termSoftCap }); i >= 0 {
		return s[i].value
	}
	return 0
}

// attends gives attention the soft cap and the windows of the layers.
func (f *prefillFlow) attends() {
	specs := f.mk.specs
	f.att.SoftCap = specs[0].cap()
	if !slices.ContainsFunc(specs, func(s attentionSpec) bool { return s.has(termWindow) }) {
		return
	}
	of := func(s attentionSpec) dsl.Val[dsl.U32] {
		window, _ := s.window()
		if window == 0 {
			window = maxWindow // no context is longer
		}
		return f.k.U32(window)
	}
	f.att.Window = func(s tasks.Step) dsl.Val[dsl.U32] {
		window := of(specs[0])
		for class := 1; class < len(specs); class++ {
			window = dsl.Select(tasks.Turns(f.mk.pattern).Is(f.k, s.Layer, class), of(specs[class]), window)
		}
		return window.Named("window")
	}
}
