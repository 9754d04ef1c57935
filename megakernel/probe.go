package megakernel

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/product"
)

// The buffers of Options.Probe, which hold the last step of a launch.
const (
	// BufferProbeResidual is [Layers][2][Hidden] f32: the residual vector behind a layer's
	// attention, and behind its MLP. A layer begins with what the one before ended with, the
	// first with the token's embedding.
	BufferProbeResidual = "probe_residual"
	// BufferProbeAttention is [Layers][Heads][HeadDim] bf16: attention's output, which the
	// output projection gets, as CTA 0 has it.
	BufferProbeAttention = "probe_attention"
)

// probeBuffers are those.
type probeBuffers struct {
	probeResiduals dsl.Buf[dsl.F32]
	probeOutputs   dsl.Buf[dsl.BF16]
}

// ProbeBytes is the size of the buffers of Options.Probe, by name.
func (mk *Kernel) ProbeBytes() map[string]int64 {
	c := &mk.Config
	return map[string]int64{
		BufferProbeResidual:  4 * elements(c.Layers, 2, c.Hidden),
		BufferProbeAttention: 2 * elements(c.Layers, c.Heads*c.HeadDim),
	}
}

// CanProbe is whether a kernel with these options can have Options.Probe.
func (o *Options) CanProbe() bool { return o.Tokens <= 1 && !o.graph() && o.Repeatable() }

// checkProbe refuses a probe where nothing would write it.
func (o *Options) checkProbe() error {
	switch {
	case !o.Probe || o.CanProbe():
		return nil
	case o.Tokens > 1:
		return refuse("Probe", "a probe with %d query rows a step, want one row", o.Tokens)
	case o.graph():
		return refuse("Probe", "a probe of a graph of kernels, want a single one")
	}
	return refuse("Probe", "a probe with MLP %q, where no SM has the residual vector behind a layer; want %s",
		string(o.MLP), MLPRows)
}

// declareProbe declares the buffers where they are wanted.
func (mk *Kernel) declareProbe(k *dsl.Kernel, b *buffers) {
	if !mk.Options.Probe {
		return
	}
	c := &mk.Config
	b.probeResiduals = dsl.Global[dsl.F32](k, BufferProbeResidual, elements(c.Layers, 2, c.Hidden), dsl.Align(16),
		bufDoc("out: [%d][2][%d] residual vector behind attention, and behind the MLP, of each layer", c.Layers, c.Hidden))
	b.probeOutputs = dsl.Global[dsl.BF16](k, BufferProbeAttention, elements(c.Layers, c.Heads*c.HeadDim), dsl.Align(16),
		bufDoc("out: [%d][%d][%d] attention's output of each layer", c.Layers, c.Heads, c.HeadDim))
}

// probeResidual stores what o (the phase phaseO) or down adds up; nothing without a probe.
func (f *single) probeResidual(s attention.Step, phase string) []product.Keep {
	if !f.mk.Options.Probe {
		return nil
	}
	which, hidden := 0, f.mk.Config.Hidden
	if phase == phaseDown {
		which = 1
	}
	return []product.Keep{func(row dsl.Val[dsl.U32], sum []dsl.Val[dsl.F32]) {
		f.bufs.probeResiduals.StoreN(s.Layer.MulC(2*hidden).Add(row).AddC(which*hidden), sum)
	}}
}

// seesAttention is that of an input in fixed point: it stores the elements as they come.
func (f *single) seesAttention(s attention.Step) func(i dsl.Val[dsl.U32], x []dsl.Val[dsl.F32]) {
	format := f.mk.matrix(MatrixO).Format
	if !f.mk.Options.Probe || !format.Integers() {
		return nil
	}
	n := f.mk.Config.Heads * f.mk.Config.HeadDim
	return product.CopyFours(f.env, format, f.bufs.probeOutputs, s.Layer.MulC(n))
}

// probeAttention stores attention's output, which has just been staged as o's input.
func (f *single) probeAttention(s attention.Step) {
	if f.mk.Options.Probe && !f.mk.matrix(MatrixO).Format.Integers() {
		n := f.mk.Config.Heads * f.mk.Config.HeadDim
		product.CopyInput(f.env, f.x, n, f.bufs.probeOutputs, s.Layer.MulC(n))
	}
}
