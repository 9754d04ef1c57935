package megakernel

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/product"
)

// attentionPhases are attention, for every class of layers, and a merge of partial
// states for plans of which a class asks for a phase of its own.
func (f *ragged) attentionPhases(per func(name string, ops ...string) Phase, qkv *attention.QKV) []phase {
	c, o, bufs := &f.mk.Config, &f.mk.Options, f.bufs
	out := attention.FragmentOrder(f.k, bufs.attn, product.ColumnsPadded(o.Tokens), o.Weights)
	var atts []*attention.Attention
	for class, variant := range f.mk.classes {
		att, work := f.mk.attention(class), f.workOf(class)
		att.Work, att.Q, att.States, att.Final = work, bufs.q, bufs.states, out
		att.Scratch = f.scratch
		att.LL = f.packets(0)
		att.Merge = &attention.Merge{Heads: c.Heads, D: c.HeadDim, States: bufs.states, Variant: variant,
			Table: &attention.MergeTable{Tokens: o.Tokens, KVHeads: c.KVHeads, Class: class, Indptr: bufs.merges, Work: work,
				Final: out}}
		f.plant(qkv, att.Merge)
		att.Variant = f.withoutFirstPage(f.blind(att.Variant))
		atts = append(atts, att)
	}
	merge := per("merge", "merge of partial states, where that has a phase")
	merge.Planned = true
	return []phase{
		{Phase: per("attention", "attention, as planned", "merge of partial states"),
			produce: func(s attention.Step) { f.eachClass(s, func(i int) { atts[i].Produce(f.env, f.prod, s) }) },
			consume: func(s attention.Step) { f.eachClass(s, func(i int) { atts[i].Consume(f.env, f.cons, f.ring, s) }) }},
		{Phase: merge,
			when: func(s attention.Step) dsl.Pred {
				any := dsl.NewVar(f.k.U32(0), "phase")
				f.eachClass(s, func(i int) { any.Set(dsl.Select(atts[i].Phase(), f.k.U32(1), f.k.U32(0))) })
				return dsl.Uniform(any.Get(), dsl.GPUScope).NeC(0)
			},
			consume: func(s attention.Step) { f.eachClass(s, func(i int) { atts[i].Merge.EmitIn(f.env, s) }) }},
	}
}

// workOf is where a class's items are: only in classes that select do page entries
// have positions of their own, in others they follow one another.
func (f *ragged) workOf(class int) *attention.Work {
	if !f.work.Selection || f.mk.Classes()[class].Select {
		return f.work
	}
	w := *f.work
	w.Selection = false
	return &w
}
