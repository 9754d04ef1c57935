package megakernel

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/product"
)

// syncNone is a phase's sync where every SM goes on with what it has made itself.
const syncNone = "none"

// regionAct holds an SM's own elements of silu(gate)·up, regionTurn the turn of the launch's
// first layer.
const (
	regionAct  = "act"
	regionTurn = "first_turn"
)

// BufferX is the residual vector. With MLPFused it is three of them, and BufferTurn says which is added to next; both
// are 0 at first.
const (
	BufferX    = "x"
	BufferTurn = "turn"
)

// mlpFused is MLPFused, FlashFormer's MLP without a sync.
type mlpFused struct{}

func (mlpFused) check(o *Options) error {
	switch {
	case o.Tokens > 1:
		return refuse("MLP", "%q with %d query rows a step, want one row", string(o.MLP), o.Tokens)
	case o.graph():
		return refuse("MLP", "%q in a graph of kernels, where a kernel's end is the sync; want %s", string(o.MLP), MLPRows)
	}
	if down := otherThanBF16(o.Weights.For("down")); down != "" {
		return refuse("MLP", "%q with weights of down in %s, want bf16 there, or %s", string(o.MLP), down, MLPRows)
	}
	return nil
}

func (mlpFused) checkArch(o *Options, beyond string) error {
	return refuse("MLP", "%q of a model with %s, want %s", string(o.MLP), beyond, MLPRows)
}

func (mlpFused) repeatable() bool          { return false }
func (mlpFused) sync(*Options) string      { return syncNone }
func (mlpFused) columnsOf() string         { return phaseGateUp }
func (mlpFused) staged(*models.Config) int { return 0 }
func (mlpFused) summed(phase string) bool  { return phase == phaseDown }
func (mlpFused) carried() []string         { return []string{BufferX, BufferTurn} }

func (mlpFused) regions(mk *Kernel) []pipeline.Region {
	return []pipeline.Region{{Name: regionAct, Bytes: 2 * mk.actLen(), Align: 16}, {Name: regionTurn, Bytes: 4, Align: 4}}
}

// actLen is how many elements of silu(gate)·up an SM has at most.
func (mk *Kernel) actLen() int {
	tiles := pipeline.CeilDiv(2*mk.Config.Intermediate, pipeline.TileRows)
	return pipeline.CeilDiv(tiles, mk.Options.SMs) * pipeline.AcrossColumns
}

func (mlpFused) declareX(mk *Kernel, k *dsl.Kernel, b *buffers) {
	n := mk.Config.Hidden
	b.x = dsl.Global[dsl.F32](k, BufferX, elements(product.SumsTurns, n), dsl.Align(16),
		bufDoc("[3][%d] residual vectors behind the MLP, the layers in turn: one is added to, one read, one cleared", n))
	if !mk.Options.handsOn(phaseO) {
		b.mid = dsl.Global[dsl.F32](k, "mid", elements(n), dsl.Align(16),
			bufDoc("[%d] residual vector behind attention, for the MLP's norm", n))
	}
	b.turn = dsl.Global[dsl.U32](k, BufferTurn, 1,
		bufDoc("which of x is the next layer's to add to; 0 at first; kept by the kernel"))
}

// It is in shared memory: see flow.
func (mlpFused) declareAct(*Kernel, *dsl.Kernel, *buffers) {}

// fusedFlow has an SM's own elements of silu(gate)·up, and the number of a layer among all that were ever run, by which
// the residual vectors take turns.
type fusedFlow struct {
	f     *single
	act   dsl.Buf[dsl.BF16] // shared memory
	first dsl.Buf[dsl.U32]  // shared memory: of the layers before the launch, modulo product.SumsTurns
	now   dsl.Val[dsl.U32]  // the launch step
}

func (mlpFused) flow(f *single) mlpFlow {
	at := func(name string) dsl.BufOpt { return dsl.PlaceAt(f.mk.Plan.Region(name).Offset) }
	return &fusedFlow{f: f,
		act: dsl.Shared[dsl.BF16](f.k, regionAct, f.mk.actLen(), at(regionAct), dsl.Align(16),
			dsl.Doc("this SM's own elements of silu(gate)·up")),
		first: dsl.Shared[dsl.U32](f.k, regionTurn, 1, at(regionTurn), dsl.Doc("layers before the launch, modulo 3"))}
}

// begin brings the turn that the launch before has ended with, which finish leaves in memory after every step: x and it
// are 0 at first.
func (m *fusedFlow) begin() {
	m.f.k.If(m.f.env.Tid.EqC(0), func() { m.first.Store(dsl.At(0), m.f.bufs.turn.Load(dsl.At(0))) })
}

func (m *fusedFlow) step(s dsl.Val[dsl.U32]) { m.now = s }

func (m *fusedFlow) finish() {
	m.f.k.If(m.f.env.CTA.EqC(0).And(m.f.env.Tid.EqC(0)), func() {
		m.f.bufs.turn.Store(dsl.At(0), m.layersBefore().AddC(m.f.mk.Config.Layers).RemC(product.SumsTurns))
	})
}

// layersBefore is how many layers were run before the step, but for a multiple of the turns.
func (m *fusedFlow) layersBefore() dsl.Val[dsl.U32] {
	first := dsl.Uniform(m.first.Load(dsl.At(0)), dsl.CTAScope)
	m.f.k.Claim("the launch's first turn is none of the three", func() dsl.Pred { return first.LtC(product.SumsTurns) })
	return m.now.MulC(m.f.mk.Config.Layers).Add(first)
}

// sums are the residual vectors to which o and down of a layer add.
func (m *fusedFlow) sums(layer dsl.Val[dsl.U32]) product.Sums {
	return product.Sums{X: m.f.bufs.x, N: m.f.mk.Config.Hidden, Turn: m.layersBefore().Add(layer)}
}

// Several vectors are added to.
func (*fusedFlow) addsEarly(matrix int) bool { return matrix != MatrixO && matrix != MatrixDown }

func (m *fusedFlow) before(_ *vectors, layer dsl.Val[dsl.U32]) product.Source {
	return m.sums(layer).Before()
}

func (m *fusedFlow) middle() product.Source { return product.FromBuf(m.f.bufs.mid) }

// afterO passes the residual vector to gate_up's norm, in packets or in mid, and adds it in x, to which those that are
// ahead add already.
func (m *fusedFlow) afterO(v *vectors, s attention.Step) product.Finisher {
	f := m.f
	sums, keep := m.sums(s.Layer), func(row dsl.Val[dsl.U32], sum []dsl.Val[dsl.F32]) { f.bufs.mid.StoreN(row, sum) }
	if f.mk.Options.handsOn(phaseO) {
		keep = func(row dsl.Val[dsl.U32], sum []dsl.Val[dsl.F32]) {
			v.handed(phaseO, 0).StoreFour(f.env, row.DivC(4), sum)
		}
	}
	return sums.AddResidual(f.env, product.Either(f.env, s.Layer.EqC(0), v.embedding(), sums.Before()), keep)
}

// phases replaces the MLP's phases, the last two of a layer.
func (m *fusedFlow) phases(all []phase, per func(name string, ops ...string) Phase) {
	f := m.f
	bufs, e, own := f.bufs, f.env, m.act
	gateUp, last := len(all)-2, len(all)-1
	all[gateUp] = f.matrixPhase(all[gateUp].Phase, MatrixGateUp, func(s attention.Step) product.Finisher {
		return product.SwiGLUOwn(e, own, f.own.matrix(MatrixGateUp),
			f.norm((&vectors{f}).middle(s), f.mk.kind().PreMLP, f.gainRow(s.Layer, models.RolePreMLP), MatrixGateUp))
	}, e.Sync)
	down := &product.Across{Name: f.mk.matrix(MatrixDown).Name, M: f.mk.matrix(MatrixDown), X: own, Y: bufs.x}
	all[last] = phase{Phase: per(down.Name, "down projection by columns", "residual, in any order"),
		produce: func(s attention.Step) {
			down.Produce(e, f.prod, f.own.matrix(MatrixDown), bufs.weights, f.weightsOf(s, MatrixDown))
		},
		consume: func(s attention.Step) {
			down.Consume(e, f.cons, f.ring, f.own.matrix(MatrixDown), m.sums(s.Layer).Now())
		}}
	all[last].Matrix = down.Name
}
