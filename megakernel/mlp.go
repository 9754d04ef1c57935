package megakernel

import (
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/product"
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

// mlpWay describes a way of the MLP: what a kernel of one row a step has because of it. The main flow asks the
// description of Options.MLP and knows no way by its name.
type mlpWay interface {
	check(o *Options) error                           // refuses options that the way excludes
	checkArch(o *Options, beyond string) error        // refuses models with what Llama does not have
	repeatable() bool                                 // the same bits in every run
	sync(o *Options) string                           // behind gate_up
	columnsOf() string                                // the matrix whose tiles down's columns are of; "": down is packed by rows
	staged(c *models.Config) int                      // elements of down's input that an SM takes from others
	summed(phase string) bool                         // all SMs add to the phase's output vector
	regions(mk *Kernel) []pipeline.Region             // shared memory of its own
	carried() []string                                // buffers that the kernel keeps from launch to launch; 0 at first
	declareX(mk *Kernel, k *dsl.Kernel, b *buffers)   // the residual vector
	declareAct(mk *Kernel, k *dsl.Kernel, b *buffers) // down's input
	flow(f *single) mlpFlow
}

// mlpFlow is a way's part of a kernel that is being assembled.
type mlpFlow interface {
	begin()                    // of the launch
	step(s dsl.Val[dsl.U32])   // of a step, which is numbered s in the launch
	finish()                   // of a step, behind its layers
	addsEarly(matrix int) bool // whether what the matrix' product is added to is there before its phase
	// phases replaces those of the phases of a layer that differ; per makes one of a layer.
	phases(all []phase, per func(name string, ops ...string) Phase)
	// before is the residual vector that a layer begins with, but for the first.
	before(v *vectors, layer dsl.Val[dsl.U32]) product.Source
	middle() product.Source // the one behind attention, where it is not in packets
	afterO(v *vectors, s attention.Step) product.Finisher
}

// mlp is the description of the options' way; of one that completeMLP refuses, or of none, that of MLPRows.
func (o *Options) mlp() mlpWay {
	if o.MLP == MLPFused {
		return mlpFused{}
	}
	return mlpRows{}
}

// Repeatable is whether a kernel with these options computes the same bits in every run.
func (o *Options) Repeatable() bool { return o.mlp().repeatable() }

// PackedByRows is whether all matrices are packed by rows, as those of other kernels of the model and a checkpoint's
// own codes are.
func (o *Options) PackedByRows() bool { return o.mlp().columnsOf() == "" }

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
	if !slices.Contains(MLPs(), o.MLP) {
		return refuse("MLP", "found %q, want %s", string(o.MLP), plural.Or(MLPs()))
	}
	return o.mlp().check(o)
}

// mlpRows is MLPRows.
type mlpRows struct{}

func (mlpRows) check(*Options) error              { return nil }
func (mlpRows) checkArch(*Options, string) error  { return nil }
func (mlpRows) repeatable() bool                  { return true }
func (mlpRows) sync(o *Options) string            { return o.syncWay(phaseGateUp) }
func (mlpRows) columnsOf() string                 { return "" }
func (mlpRows) staged(c *models.Config) int       { return c.Intermediate }
func (mlpRows) summed(string) bool                { return false }
func (mlpRows) regions(*Kernel) []pipeline.Region { return nil }
func (mlpRows) carried() []string                 { return nil }
func (mlpRows) flow(f *single) mlpFlow            { return rowsFlow{f} }

func (mlpRows) declareX(mk *Kernel, k *dsl.Kernel, b *buffers) {
	if o, n := &mk.Options, mk.Config.Hidden; !o.handsOn(phaseO) || !o.handsOn(phaseDown) {
		b.x = dsl.Global[dsl.F32](k, BufferX, elements(n), dsl.Align(16), bufDoc("[%d] residual vector", n))
	}
}

// What the barrier behind gate_up orders has two places, which the layers use in turn.
func (mlpRows) declareAct(mk *Kernel, k *dsl.Kernel, b *buffers) {
	n := mk.Config.Intermediate
	if mk.Options.handsOn(phaseGateUp) {
		return
	}
	if mk.Options.ordered(phaseDown, phaseGateUp) {
		b.act = dsl.Global[dsl.BF16](k, "act", elements(n), dsl.Align(16), bufDoc("[%d] silu(gate)·up", n))
		return
	}
	b.act = dsl.Global[dsl.BF16](k, "act", elements(2, n), dsl.Align(16),
		bufDoc("[2][%d] silu(gate)·up, the layers in turn", n))
}

// rowsFlow is what layerPhases has as it is.
type rowsFlow struct{ f *single }

func (rowsFlow) begin()                                               {}
func (rowsFlow) step(dsl.Val[dsl.U32])                                {}
func (rowsFlow) finish()                                              {}
func (rowsFlow) addsEarly(int) bool                                   { return true }
func (rowsFlow) phases([]phase, func(string, ...string) Phase)        {}
func (rowsFlow) before(v *vectors, _ dsl.Val[dsl.U32]) product.Source { return v.source(phaseDown) }
func (r rowsFlow) middle() product.Source                             { return product.FromBuf(r.f.bufs.x) }

func (r rowsFlow) afterO(v *vectors, s attention.Step) product.Finisher {
	return v.add(s, phaseO, r.f.earlyOf(MatrixO).Vector(func() product.Vector { return v.addedToInO(s) }))
}
