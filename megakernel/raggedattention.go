package megakernel

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks"
)

// attentionPhases are attention and the merge of its partial states, each for
// every class of layers. Where no row has more than one state the second phase
// does not run, nor its hand-off.
func (f *ragged) attentionPhases(per func(name string, ops ...string) Phase, qkv *tasks.QKV) []phase {
	c, o, bufs := &f.mk.Config, &f.mk.Options, f.bufs
	out := tasks.FragmentOrder(bufs.attn, tasks.ColumnsPadded(o.Tokens))
	var atts []*tasks.Attention
	var merges []*tasks.Merge
	for class, variant := range f.mk.classes {
		att, work := f.mk.attention(class), f.workOf(class)
		att.Work, att.Q, att.Out, att.LSE, att.Final, att.Scratch, att.Tail = work, bufs.q, bufs.part, bufs.lse, out, f.scratch, f.tail
		merge := &tasks.Merge{Heads: c.Heads, D: c.HeadDim, In: bufs.part, LSE: bufs.lse, Variant: variant,
			Table: &tasks.MergeTable{Tokens: o.Tokens, KVHeads: c.KVHeads, Class: class, Indptr: bufs.merges, Work: work, Final: out}}
		f.plant(qkv, merge)
		att.Variant = f.blind(att.Variant)
		atts, merges = append(atts, att), append(merges, merge)
	}
	return []phase{
		{Phase: per("attention", "attention, as planned"),
			produce: func(s tasks.Step) { f.eachClass(s, func(i int) { atts[i].Produce(f.env, f.prod, s) }) },
			consume: func(s tasks.Step) { f.eachClass(s, func(i int) { atts[i].Consume(f.env, f.cons, f.ring, s) }) }},
		{Phase: per("merge", "merge of partial states"),
			when: func(s tasks.Step) dsl.Pred {
				any := dsl.NewVar(f.k.U32(0), "any")
				f.eachClass(s, func(i int) {
					any.Set(dsl.Select(merges[i].Table.Any(f.env), f.k.U32(1), f.k.U32(0)))
				})
				return dsl.Uniform(any.Get(), dsl.GPUScope).NeC(0)
			},
			consume: func(s tasks.Step) { f.eachClass(s, func(i int) { merges[i].EmitIn(f.env, s) }) }},
	}
}

// workOf is where a class's items are: only in classes that select do page entries
// have positions of their own, in others they follow one another.
func (f *ragged) workOf(class int) *tasks.Work {
	if !f.work.Selection || f.mk.Classes()[class].Select {
		return f.work
	}
	w := *f.work
	w.Selection = false
	return &w
}
