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

// BufferTurn is which of the three residual vectors x is added to next, with MLPFused.
const BufferTurn = "turn"

// declareSums declares the residual vectors of MLPFused.
func (mk *Kernel) declareSums(k *dsl.Kernel, b *buffers) {
	n := mk.Config.Hidden
	b.x = dsl.Global[dsl.F32](k, "x", product(3, n), dsl.Align(16), bufDoc("[3][%d] residual vectors behind the MLP, the layers in turn: one is added to, one read, one cleared", n))
	b.mid = dsl.Global[dsl.F32](k, "mid", product(n), dsl.Align(16), bufDoc("[%d] residual vector behind attention, for the MLP's norm", n))
	b.turn = dsl.Global[dsl.U32](k, BufferTurn, 1, bufDoc("which of x is the next layer's to add to; 0 at first; kept by the kernel"))
}

// declareAct declares an SM's own elements of silu(gate)·up.
func (f *single) declareAct() dsl.Buf[dsl.BF16] {
	return dsl.Shared[dsl.BF16](f.k, regionAct, f.mk.actLen(), dsl.PlaceAt(f.mk.Plan.Region(regionAct).Offset), dsl.Align(16), dsl.Doc("this SM's own elements of silu(gate)·up"))
}

// sums are the residual vectors to which o and down add.
func (f *single) sums() tasks.Sums {
	return tasks.Sums{X: f.bufs.x, N: f.mk.Config.Hidden, Turn: f.turn}
}

// residual is the residual vector behind a layer's MLP.
func (f *single) residual() tasks.Vector {
	if f.mk.Options.MLP == MLPFused {
		return f.sums().Before()
	}
	return tasks.FromBuf(f.bufs.x)
}

// startTurn begins with the turn that the launch before has ended with, which keepTurn
// leaves in memory: x and it are 0 at first.
func (f *single) startTurn() {
	if f.mk.Options.MLP == MLPFused {
		f.turn = dsl.NewVar(dsl.Uniform(f.bufs.turn.Load(dsl.At(0)), dsl.GPUScope), "turn")
	}
}

func (f *single) keepTurn() {
	if f.mk.Options.MLP == MLPFused {
		f.k.If(f.env.CTA.EqC(0).And(f.env.Tid.EqC(0)), func() { f.bufs.turn.Store(dsl.At(0), f.turn.Get()) })
	}
}

// fusedMLP replaces the last phases of a layer: o leaves the residual vector in mid, which
// gate_up's norm reads, and in x, to which those that are ahead add already.
func (f *single) fusedMLP(all []phase, per func(name string, ops ...string) Phase) {
	c, bufs, e, own := &f.mk.Config, f.bufs, f.env, f.act
	last := len(all) - 3
	all[last] = f.matrixPhase(all[last].Phase, MatrixO, func(s tasks.Step) tasks.Epilogue {
		f.plain(bufs.attn, c.Heads*c.HeadDim)
		return f.sums().AddResidual(e, bufs.mid, f.first(s))
	}, nil)
	all[last+1] = f.matrixPhase(all[last+1].Phase, MatrixGateUp, func(s tasks.Step) tasks.Epilogue {
		return tasks.SwiGLUOwn(e, own, f.own.matrix(MatrixGateUp), f.norm(tasks.FromBuf(bufs.mid), s.Layer.MulC(2).AddC(1)))
	}, e.Sync)
	all[last+1].Handoff = handoffNone
	down := &tasks.Across{Name: f.mk.matrix(MatrixDown).Name, M: f.mk.matrix(MatrixDown), X: own, Y: bufs.x}
	all[last+2] = phase{Phase: per(down.Name, "down projection by columns", "residual, in any order"),
		produce: func(tasks.Step) { down.Produce(e, f.prod, f.own.matrix(MatrixDown), bufs.weights, f.offset) },
		consume: func(tasks.Step) {
			sums := f.sums()
			down.Consume(e, f.cons, f.ring, f.own.matrix(MatrixDown), sums.Now())
			sums.Next()
		}}
	all[last+2].Matrix = down.Name
}
