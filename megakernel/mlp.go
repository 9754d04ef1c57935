package megakernel

import (
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks"
)

// MLP is how the MLP's down projection gets its input, silu(gate)·up.
type MLP string

// The ways.
const (
	// MLPRows, the default: an SM has rows of the down projection, which need all of the
	// input, so that a hand-off lies before them.
	MLPRows MLP = "rows"
	// MLPFused, with one row only: an SM has the columns that multiply what it has computed
	// itself of the input, with no hand-off before, and adds its parts of all rows to the
	// residual vector, as FlashFormer does. They come in any order: THE LAST BITS OF
	// RESULTS DIFFER FROM RUN TO RUN. For comparison only.
	MLPFused MLP = "fused"
)

// MLPs lists the ways.
func MLPs() []MLP { return []MLP{MLPRows, MLPFused} }

// Repeatable is whether a kernel with these options computes the same bits in every run.
func (o *Options) Repeatable() bool { return o.MLP != MLPFused }

// mlp is MLP where it is not the default, for files.
func (o *Options) mlp() MLP {
	if o.MLP == MLPRows {
		return ""
	}
	return o.MLP
}

// completeMLP fills in what was left open of the MLP, and refuses what cannot be.
func (o *Options) completeMLP() error {
	if o.MLP == "" {
		o.MLP = MLPRows
	}
	switch {
	case !slices.Contains(MLPs(), o.MLP):
		return refuse("MLP", "found %q, want one of %q", string(o.MLP), MLPs())
	case o.MLP == MLPRows:
	case o.Tokens > 1:
		return refuse("MLP", "%q with %d query rows a step, want one row", string(o.MLP), o.Tokens)
	case o.graph():
		return refuse("MLP", "%q in a graph of kernels, where a kernel's end is the hand-off; want %s", string(o.MLP), MLPRows)
	}
	return nil
}

// handoffNone is a phase's hand-off where every SM goes on with what it has made itself.
const handoffNone = "none"

// regionAct holds an SM's own elements of silu(gate)·up.
const regionAct = "act"

// actLen is how many they are at most.
func (mk *Kernel) actLen() int {
	tiles := ceilDiv(2*mk.Config.Intermediate, pipeline.TileRows)
	return ceilDiv(tiles, mk.Options.SMs) * pipeline.AcrossColumns
}

// declareAct declares an SM's own elements of silu(gate)·up.
func (f *single) declareAct() dsl.Buf[dsl.BF16] {
	return dsl.Shared[dsl.BF16](f.k, regionAct, f.mk.actLen(), dsl.PlaceAt(f.mk.Plan.Region(regionAct).Offset), dsl.Align(16), dsl.Doc("this SM's own elements of silu(gate)·up"))
}

// fusedMLP replaces the last phases of a layer: o leaves the residual vector in two
// buffers, of which gate_up reads one while those that are ahead add to the other.
func (f *single) fusedMLP(all []phase, per func(name string, ops ...string) Phase) {
	c, bufs, e, own := &f.mk.Config, f.bufs, f.env, f.act
	last := len(all) - 3
	all[last] = f.matrixPhase(all[last].Phase, MatrixO, func(s tasks.Step) tasks.Epilogue {
		f.plain(bufs.attn, c.Heads*c.HeadDim)
		return tasks.AddResidualTwice(bufs.x, bufs.mid, f.first(s))
	}, nil)
	all[last+1] = f.matrixPhase(all[last+1].Phase, MatrixGateUp, func(s tasks.Step) tasks.Epilogue {
		return tasks.SwiGLUOwn(e, own, f.own.matrix(MatrixGateUp), f.norm(tasks.FromBuf(bufs.mid), s.Layer.MulC(2).AddC(1)))
	}, e.Sync)
	all[last+1].Handoff = handoffNone
	down := &tasks.Across{Name: f.mk.matrix(MatrixDown).Name, M: f.mk.matrix(MatrixDown), X: own, Y: bufs.x}
	all[last+2] = phase{Phase: per(down.Name, "down projection by columns", "residual, in any order"),
		produce: func(tasks.Step) { down.Produce(e, f.prod, f.own.matrix(MatrixDown), bufs.weights, f.offset) },
		consume: func(tasks.Step) { down.Consume(e, f.cons, f.ring, f.own.matrix(MatrixDown)) }}
	all[last+2].Matrix = down.Name
}
