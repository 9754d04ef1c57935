package softmax

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
)

// Options are what the kernel around the template is built for.
type Options struct {
	CTAs, Consumers    int
	StageBytes, Stages int

	NoSync  bool // leave the sync out, to see what the executor says
	NoWrite bool // the consumers do not drain the second stream, likewise
}

// Kernel assembles a kernel of nothing but a softmax of n elements.
func Kernel(n int, temperature float64, o Options) (*ir.Kernel, *Softmax, error) {
	plan, err := pipeline.RingOnly(o.StageBytes, o.Stages, 0, 232448)
	if err != nil {
		return nil, nil, err
	}
	k := dsl.New("softmax", dsl.Options{Warps: o.Consumers + 1, Grid: o.CTAs, SharedLimit: 232448})
	t := &Softmax{N: n, Temperature: temperature, Chunk: o.StageBytes / 4,
		X:       dsl.Global[dsl.F32](k, "x", int64(n), dsl.ReadOnly()),
		P:       dsl.Global[dsl.F32](k, "probs", int64(n)),
		Partial: dsl.Global[dsl.F32](k, "partial", int64(2*o.CTAs)),
		Shares:  dsl.Global[dsl.U32](k, "shares", int64(o.CTAs+1), dsl.ReadOnly()),
	}
	counter := dsl.Global[dsl.U32](k, "barrier", 1)
	epoch := dsl.Scalar[dsl.U32](k, "epoch", "the barrier's value at launch")
	ring := pipeline.NewRing(k, plan, o.Consumers)
	t.Scratch = dsl.Shared[dsl.F32](k, "scratch", 2*o.Consumers)
	e := grid.NewEnv(k, o.CTAs, o.Consumers, t.Scratch)

	k.If(e.Tid.EqC(0), ring.Init)
	k.Barrier()
	k.Roles(
		dsl.Role{Name: "consumers", First: 0, End: o.Consumers, Body: func() {
			c, bar := ring.Consumer(), grid.NewGridBarrier(e, counter, epoch)
			k.Region("reduce", func() { t.Reduce(e, c, ring) })
			if !o.NoSync {
				k.Region("sync", bar.Sync)
			}
			if !o.NoWrite {
				k.Region("write", func() { t.Write(e, c, ring) })
			}
		}},
		dsl.Role{Name: "producer", First: o.Consumers, End: o.Consumers + 1, Body: func() {
			p := ring.Producer()
			k.Region("reduce", func() { t.Produce(e, p) })
			k.Region("write", func() { t.Produce(e, p) })
		}})
	kernel, err := k.Finish()
	return kernel, t, err
}
