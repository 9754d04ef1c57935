package megakernel

import (
	"slices"
	"strings"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
)

// Fault names a mistake planted in the kernel.
type Fault string

// The faults a kernel can be built with; others are planted by the host, in the
// weights or the page table.
const (
	NoFault         Fault = ""
	FaultDropToken  Fault = "drop-token"  // attention leaves out the token before the query
	FaultRope       Fault = "rope"        // queries are rotated for the next position
	FaultMergeShare Fault = "merge-share" // the last split's merge weight is doubled
	// windows are a token wider, soft caps left out, sigmoids' biases changed; see spoil
	FaultAttention Fault = "attention"
	// windows alone are a token wider, where FaultAttention changes more than these
	FaultWindow Fault = "window"

	// Faults of what models have beyond Llama: see FeatureFaults.
	FaultBias     Fault = "bias"      // biases are left out
	FaultQKNorm   Fault = "qk-norm"   // k is not normalised, but for gains
	FaultPlusOne  Fault = "plus-one"  // gains are taken for 1 + gain
	FaultRopeBase Fault = "rope-base" // all layers are rotated as the first one is
	FaultLogitCap Fault = "logit-cap" // the soft cap of logits is left out
	FaultPostNorm Fault = "post-norm" // what attention adds is not normalised, but for gains
	FaultGrowth   Fault = "growth"    // scores do not grow with the position

	// high and low bytes of down's input have changed places, or of a matrix's before it, where weights are integers
	FaultInputBytes Fault = "input-bytes"

	// down's products of a token get the scale of the token beside it, in prefill kernels whose inputs are e4m3
	FaultTokenScale Fault = "token-scale"

	// FaultLostArrival hangs: the last CTA does not arrive at the sync after
	// gate and up. It is no wrong value, hence not among Faults.
	FaultLostArrival Fault = "lost-arrival"
	// FaultLostRelease hangs within an SM: the last CTA's consumer warp 0 does not
	// release the stages of the output projection.
	FaultLostRelease Fault = "lost-release"
)

// Hangs lists the faults that hang: with the first, every SM waits for another; the
// second takes a kernel with WatchAll to leave.
func Hangs() []Fault { return []Fault{FaultLostArrival, FaultLostRelease} }

// Faults lists the faults a kernel can be built with.
func Faults() []Fault { return []Fault{FaultDropToken, FaultRope, FaultMergeShare} }

// FeatureFaults lists the faults of what a model has beyond Llama, FaultAttention among them.
func FeatureFaults(a *models.Arch, attention string) (list []Fault) {
	l := a.Layer(0)
	ropes, _ := ropesOf(a)
	for _, f := range []struct {
		fault Fault
		has   bool
	}{
		{FaultBias, l.Attn.QKVBias || l.Attn.OBias || l.MLP.Bias},
		{FaultQKNorm, l.Attn.QKNorm.Kind != models.NoNorm},
		{FaultPlusOne, a.Final.PlusOne},
		{FaultRopeBase, len(ropes) > 1},
		{FaultLogitCap, a.Head.SoftCap > 0},
		{FaultPostNorm, l.PostAttn.Kind != models.NoNorm},
		{FaultGrowth, l.Attn.Grows.Every > 0},
		{FaultAttention, attention != ""},
		{FaultWindow, strings.Contains(attention, termWindow) && strings.Contains(attention, termSoftCap)},
	} {
		if f.has {
			list = append(list, f.fault)
		}
	}
	return list
}

func featureFaults(c *models.Config, o *Options) []Fault {
	a := c.Arch()
	return withFixed(FeatureFaults(&a, o.Attention), o)
}

// withFixed are faults and that of fixed point where products have it.
func withFixed(list []Fault, o *Options) []Fault {
	if o.faultMatrix(pipeline.Format.Integers) >= 0 {
		list = append(list, FaultInputBytes)
	}
	return list
}

// spoil is the attention of a kernel with a fault: with FaultAttention windows are a token wider, soft caps 1e4, which
// leaves logits as they are, and a sigmoid's bias is off by 0.1; with FaultWindow windows are a token wider.
func (s attentionSpec) spoil(fault Fault) attentionSpec {
	s = slices.Clone(s)
	for i := range s {
		t := &s[i]
		switch {
		case t.name == termWindow || t.name == termStreaming:
			t.value++
		case fault == FaultWindow:
		case t.name == termSoftCap:
			t.value = maxSoftCap
		case t.name == termSigmoid:
			t.value += 0.1
		}
	}
	return s
}

// lost is the CTA, plus 1, that a hanging fault concerns in a phase; 0 for none.
func (b *builder) lost(fault Fault, phase string) int {
	at := map[Fault]string{FaultLostArrival: "gate_up", FaultLostRelease: phaseO}
	if b.mk.Options.Fault == fault && phase == at[fault] {
		return b.mk.Options.SMs
	}
	return 0
}

// plant puts the fault into the templates it concerns.
func (b *builder) plant(qkv *attention.QKV, merge *attention.Merge) {
	switch b.mk.Options.Fault {
	case FaultRope:
		qkv.QueryShift = 1
	case FaultMergeShare:
		merge.LastBias = 1
	}
	b.plantStores(qkv)
}

// cached is the number of cached tokens that the query at pos attends to.
func (b *builder) cached(pos dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
	if b.mk.Options.Fault == FaultDropToken {
		return pos.MaxC(1).SubC(1)
	}
	return pos
}

// blind is what a ragged kernel's attention does instead of variant v, which may be
// nil: with FaultDropToken no query sees the token right before it.
func (b *builder) blind(v *attention.Variant) *attention.Variant {
	if b.mk.Options.Fault != FaultDropToken {
		return v
	}
	return masking(v, FaultDropToken, func(q *attention.Query, k *attention.Key) dsl.Pred {
		return k.Position.AddC(1).Ne(q.Position)
	})
}

// FaultMatrix returns the matrix of a layer in which a fault is planted that concerns a format: down where has reports
// it of down's format, or else the nearest before it of which it does; -1 where there is none.
func (mk *Kernel) FaultMatrix(has func(pipeline.Format) bool) int { return mk.Options.faultMatrix(has) }

func (o *Options) faultMatrix(has func(pipeline.Format) bool) int {
	for i, format := range slices.Backward(o.layerFormats()) {
		if has(format) {
			return i
		}
	}
	return -1
}

// exchanged is whether matrix i has FaultInputBytes.
func (mk *Kernel) exchanged(i int) bool {
	return mk.Options.Fault == FaultInputBytes && i == mk.FaultMatrix(pipeline.Format.Integers)
}
