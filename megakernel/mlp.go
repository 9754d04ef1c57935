package megakernel

import (
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks"
)

// MLP is how the MLP's down projection gets its input, silu(gate)·up.
type MLP string

// The ways.
const (
	// MLPRows, the default: an SM has rows of the down projection, which need all of the
	// input, so that a sync lies before them.
	MLPRows MLP = "rows"
	// MLPFused, with one row only: an SM has the columns that multiply what it has computed
	// itself of the input, with no sync before, and adds its parts of all rows to the
	// residual vector, as FlashFormer does. They come in any order: THE LAST BITS OF
	// RESULTS DIFFER FROM RUN TO RUN. For comparison only.
	MLPFused MLP = "fused"
)

// MLPs lists the ways.
func MLPs() []MLP { return []MLP{MLPRows, MLPFused} }

// Repeatable is whether a kernel with these options computes the same bits in every run.
func (o *Options) Repeatable() bool { return o.MLP != MLPFused }

// OtherMLP is MLP where it is not the default, for files.
func (o *Options) OtherMLP() MLP {
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
		return refuse("MLP", "found %q, want %s", string(o.MLP), plural.Or(MLPs()))
	case o.MLP == MLPRows:
	case o.Tokens > 1:
		return refuse("MLP", "%q with %d query rows a step, want one row", string(o.MLP), o.Tokens)
	case o.graph():
		return refuse("MLP", "%q in a graph of kernels, where a kernel's end is the sync; want %s", string(o.MLP), MLPRows)
	}
	return nil
}

// syncNone is a phase's sync where every SM goes on with what it has made itself.
const syncNone = "none"

// regionAct holds an SM's own elements of silu(gate)·up, regionTurn the turn of the launch's
// first layer.
const (
	regionAct  = "act"
	regionTurn = "first_turn"
)

// actLen is how many they are at most.
func (mk *Kernel) actLen() int {
	tiles := ceilDiv(2*mk.Config.Intermediate, pipeline.TileRows)
	return ceilDiv(tiles, mk.Options.SMs) * pipeline.AcrossColumns
}

// With MLPFused BufferX are three residual vectors, and BufferTurn says which of them is added
// to next. Both are 0 at first.
const (
	BufferX    = "x"
	BufferTurn = "turn"
)

// declareSums declares the residual vectors of MLPFused.
func (mk *Kernel) declareSums(k *dsl.Kernel, b *buffers) {
	n := mk.Config.Hidden
	b.x = dsl.Global[dsl.F32](k, BufferX, product(tasks.SumsTurns, n), dsl.Align(16),
		bufDoc("[3][%d] residual vectors behind the MLP, the layers in turn: one is added to, one read, one cleared", n))
	if !mk.Options.handsOn(phaseO) {
		b.mid = dsl.Global[dsl.F32](k, "mid", product(n), dsl.Align(16),
			bufDoc("[%d] residual vector behind attention, for the MLP's norm", n))
	}
	b.turn = dsl.Global[dsl.U32](k, BufferTurn, 1,
		bufDoc("which of x is the next layer's to add to; 0 at first; kept by the kernel"))
}

// declareFused declares an SM's own elements of silu(gate)·up, and the turn.
func (f *single) declareFused() {
	at := func(name string) dsl.BufOpt { return dsl.PlaceAt(f.mk.Plan.Region(name).Offset) }
	f.act = dsl.Shared[dsl.BF16](f.k, regionAct, f.mk.actLen(), at(regionAct), dsl.Align(16),
		dsl.Doc("this SM's own elements of silu(gate)·up"))
	f.turns.first = dsl.Shared[dsl.U32](f.k, regionTurn, 1, at(regionTurn), dsl.Doc("layers before the launch, modulo 3"))
}

// turns is what the number of a layer among all that were ever run follows from, by which
// the residual vectors take turns.
type turns struct {
	first dsl.Buf[dsl.U32] // shared memory: of the layers before the launch, modulo tasks.SumsTurns
	step  dsl.Val[dsl.U32] // the launch step
}

// before is how many layers were run before the step, but for a multiple of the turns.
func (f *single) before() dsl.Val[dsl.U32] {
	first := dsl.Uniform(f.turns.first.Load(dsl.At(0)), dsl.CTAScope)
	f.k.Claim("the launch's first turn is none of the three", func() dsl.Pred { return first.LtC(tasks.SumsTurns) })
	return f.turns.step.MulC(f.mk.Config.Layers).Add(first)
}

// sums are the residual vectors to which o and down of a layer add.
func (f *single) sums(layer dsl.Val[dsl.U32]) tasks.Sums {
	return tasks.Sums{X: f.bufs.x, N: f.mk.Config.Hidden, Turn: f.before().Add(layer)}
}

// fetchTurn brings the turn that the launch before has ended with, which keepTurn leaves in
// memory after every step: x and it are 0 at first.
func (f *single) fetchTurn() {
	if f.mk.Options.MLP == MLPFused {
		f.k.If(f.env.Tid.EqC(0), func() { f.turns.first.Store(dsl.At(0), f.bufs.turn.Load(dsl.At(0))) })
	}
}

func (f *single) keepTurn() {
	if f.mk.Options.MLP == MLPFused {
		f.k.If(f.env.CTA.EqC(0).And(f.env.Tid.EqC(0)), func() {
			f.bufs.turn.Store(dsl.At(0), f.before().AddC(f.mk.Config.Layers).RemC(tasks.SumsTurns))
		})
	}
}

// addToSums is o's epilogue of MLPFused: it hands the residual vector on to gate_up's norm, in
// words or in mid, and adds it in x, to which those that are ahead add already.
func (v *vectors) addToSums(s tasks.Step) tasks.Epilogue {
	f := v.f
	sums, keep := f.sums(s.Layer), func(row dsl.Val[dsl.U32], sum []dsl.Val[dsl.F32]) { f.bufs.mid.StoreN(row, sum) }
	if f.mk.Options.handsOn(phaseO) {
		keep = v.handed(phaseO, 0).Keep(f.env)
	}
	return sums.AddResidual(f.env, tasks.Either(f.env, s.Layer.EqC(0), v.embedding(), sums.Before()), keep)
}

// fusedMLP replaces the MLP's phases, the last two of a layer.
func (f *single) fusedMLP(all []phase, per func(name string, ops ...string) Phase) {
	bufs, e, own := f.bufs, f.env, f.act
	gateUp, last := len(all)-2, len(all)-1
	all[gateUp] = f.matrixPhase(all[gateUp].Phase, MatrixGateUp, func(s tasks.Step) tasks.Epilogue {
		return tasks.SwiGLUOwn(e, own, f.own.matrix(MatrixGateUp),
			f.norm((&vectors{f}).middle(s), f.mk.kind().PreMLP, f.gainRow(s.Layer, models.RolePreMLP), f.mk.Options.Weights))
	}, e.Sync)
	down := &tasks.Across{Name: f.mk.matrix(MatrixDown).Name, M: f.mk.matrix(MatrixDown), X: own, Y: bufs.x}
	all[last] = phase{Phase: per(down.Name, "down projection by columns", "residual, in any order"),
		produce: func(s tasks.Step) {
			down.Produce(e, f.prod, f.own.matrix(MatrixDown), bufs.weights, f.weightsOf(s, MatrixDown))
		},
		consume: func(s tasks.Step) {
			down.Consume(e, f.cons, f.ring, f.own.matrix(MatrixDown), f.sums(s.Layer).Now())
		}}
	all[last].Matrix = down.Name
}
