package megakernel

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/tasks"
)

// attentionPhases are attention, for every class of layers, and a merge of partial
// states for plans that do not leave it to the SM that writes the last of a row.
func (f *ragged) attentionPhases(per func(name string, ops ...string) Phase, qkv *tasks.QKV) []phase {
	c, o, bufs := &f.mk.Config, &f.mk.Options, f.bufs
	out := tasks.FragmentOrder(bufs.attn, tasks.ColumnsPadded(o.Tokens))
	var atts []*tasks.Attention
	for class, variant := range f.mk.classes {
		att := f.mk.attention(class)
		att.Work, att.Q, att.Out, att.LSE, att.Final = f.work, bufs.q, bufs.part, bufs.lse, out
		att.Scratch = f.scratch
		att.Merge = &tasks.Merge{Heads: c.Heads, D: c.HeadDim, In: bufs.part, LSE: bufs.lse, Variant: variant,
			Table: &tasks.MergeTable{Tokens: o.Tokens, KVHeads: c.KVHeads, Class: class, Indptr: bufs.merges, Work: f.work, Final: out}}
		f.plant(qkv, att.Merge)
		att.Variant = f.blind(att.Variant)
		atts = append(atts, att)
	}
	return []phase{
		{Phase: per("attention", "attention, as planned", "merge of partial states"),
			produce: func(s tasks.Step) { f.eachClass(s, func(i int) { atts[i].Produce(f.env, f.prod, s) }) },
			consume: func(s tasks.Step) { f.eachClass(s, func(i int) { atts[i].Consume(f.env, f.cons, f.ring, s) }) }},
		{Phase: per("merge", "merge of partial states, where that has a phase"),
			when: func(s tasks.Step) dsl.Pred {
				any := dsl.NewVar(f.k.U32(0), "phase")
				f.eachClass(s, func(i int) { any.Set(dsl.Select(atts[i].Phase(), f.k.U32(1), f.k.U32(0))) })
				return dsl.Uniform(any.Get(), dsl.GPUScope).NeC(0)
			},
			consume: func(s tasks.Step) { f.eachClass(s, func(i int) { atts[i].Merge.EmitIn(f.env, s) }) }},
	}
}

// eachClass calls body for the class of the step's layer: for all of them, each
// where the layer is of that class.
func (f *ragged) eachClass(s tasks.Step, body func(class int)) {
	if len(f.mk.classes) == 1 {
		body(0)
		return
	}
	for class := range f.mk.classes {
		f.k.If(f.mk.ofClass(f.k, s.Layer, class), func() {
			f.k.Region(fmt.Sprintf("class %d", class), func() { body(class) })
		})
	}
}

// Classes is what a planner of attention work is told of the classes of layers.
func (mk *Kernel) Classes() []kv.Class {
	out := make([]kv.Class, len(mk.classes))
	for i, v := range mk.classes {
		if v != nil {
			out[i] = kv.Class{Window: v.Window, Sinks: v.Sinks}
		}
	}
	return out
}

// ofClass is whether a layer is of a class: layers take the variants in turn.
func (mk *Kernel) ofClass(k *dsl.Kernel, layer dsl.Val[dsl.U32], class int) dsl.Pred {
	at := layer.RemC(len(mk.pattern))
	is := k.Bool(false)
	for i, c := range mk.pattern {
		if c == class {
			is = is.Or(at.EqC(i))
		}
	}
	return is
}

// layerClasses makes the classes of layers out of the variants that they take in
// turn: equal ones are one class.
func layerClasses(variants []*tasks.Variant) (classes []*tasks.Variant, pattern []int) {
	for _, v := range variants {
		i := slices.IndexFunc(classes, func(c *tasks.Variant) bool { return c == v || c != nil && v != nil && c.Name == v.Name })
		if i < 0 {
			i, classes = len(classes), append(classes, v)
		}
		pattern = append(pattern, i)
	}
	return classes, pattern
}
