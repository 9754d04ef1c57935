package chunked

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/grid"
)

// Shape is an attention of one query token of one sequence.
type Shape struct {
	Heads, KVHeads, D, Page int
	CTAs, Consumers, Splits int
}

// perStage is the number of tokens of a stage.
const perStage = 32

// Kernel assembles a kernel of nothing but attention and the merge of its splits.
func Kernel(s Shape, v *attention.Variant) (*ir.Kernel, error) {
	layout := attention.KVLayout{Layers: 1, Heads: s.KVHeads, D: s.D, Page: s.Page}
	plan, err := pipeline.RingOnly(perStage*layout.TokenBytes(), 3, 0, 131072)
	if err != nil {
		return nil, err
	}
	k := dsl.New("attention", dsl.Options{Warps: s.Consumers + 1, Grid: s.CTAs, SharedLimit: 232448})
	ring := pipeline.NewRing(k, plan, s.Consumers)
	e := grid.NewEnv(k, s.CTAs, s.Consumers, dsl.Shared[dsl.F32](k, "scratch", s.Consumers))
	n := int64(s.Heads * s.D)
	att := &attention.Attention{Heads: s.Heads, KV: layout, Splits: s.Splits, PerStage: perStage, Variant: v,
		Q:      dsl.Global[dsl.BF16](k, "q", n, dsl.ReadOnly(), dsl.Align(16)),
		States: dsl.Global[dsl.B128](k, "states", int64(s.Splits*attention.StatePackets(s.Heads, s.D)))}
	att.Scratch = dsl.Shared[dsl.F32](k, "attention_scratch", att.ScratchLen(s.Consumers), dsl.Align(16))
	att.Tail = dsl.Shared[dsl.B128](k, "tail", att.TailLen())
	merge := &attention.Merge{Heads: s.Heads, D: s.D, Splits: s.Splits, States: att.States, Variant: v,
		Out: dsl.Global[dsl.BF16](k, "out", n, dsl.Align(16))}
	pos := dsl.Scalar[dsl.U32](k, "pos", "position of the query token")
	step := attention.Step{Pos: pos, Cached: pos, Pages: dsl.Scalar[dsl.U32](k, "pages", "pages of the cache"),
		Layer: k.U32(0), Table: dsl.Global[dsl.U32](k, "table", 0, dsl.ReadOnly()),
		Cache: dsl.Global[dsl.B128](k, "kv", 0, dsl.ReadOnly(), dsl.Align(128))}
	counter := dsl.Global[dsl.U32](k, "barrier", 1)

	k.If(e.Tid.EqC(0), ring.Init)
	k.Barrier()
	k.Roles(
		dsl.Role{Name: "consumers", First: 0, End: s.Consumers, Body: func() {
			c, bar := ring.Consumer(), grid.NewGridBarrier(e, counter, k.U32(0))
			att.Consume(e, c, ring, step)
			bar.Sync()
			merge.EmitIn(e, step)
		}},
		dsl.Role{Name: "producer", First: s.Consumers, End: s.Consumers + 1, Body: func() {
			att.Produce(e, ring.Producer(), step)
		}})
	return k.Finish()
}
