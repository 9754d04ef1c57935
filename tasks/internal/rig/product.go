package rig

import (
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/product"
)

// VectorRig builds whatever emit does in the consumer warps.
func VectorRig(t testing.TB, emit func(r *Rig)) *Rig {
	r := New(t, Setup{Consumers: 2})
	r.Body(func(*pipeline.Consumer) { emit(r) }, nil)
	return r
}

// Choose writes the token that each CTA finds.
func (r *Rig) Choose(a *product.Argmax, next dsl.Buf[dsl.U32]) {
	token := a.Choose(r.Env)
	r.K.If(r.Env.Tid.EqC(0), func() { next.Store(r.Env.CTA, token) })
}

// GemvTolerance: products of bf16 are exact in f32, so only the sums round, in
// at most K/16 + a few steps of at most 2⁻²⁴ of the partial sum each. 2⁻²⁰ of
// Σ|w·x| is above that for K up to 256 in the worst case and far above for
// random signs.
func GemvTolerance(w []half.BF16, x []float64) []float64 {
	abs := make([]half.BF16, len(w))
	for i, b := range w {
		abs[i] = b &^ 0x8000
	}
	ax := make([]float64, len(x))
	for i, v := range x {
		ax[i] = math.Abs(v)
	}
	return Scaled(reference.MatVec(abs, ax), 0x1p-20, 0)
}

// Padded is n rounded up to whole groups of 32 columns.
func Padded(n int) int { return (n + 31) / 32 * 32 }
