package tasks_test

import (
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks"
)

// vectorRig builds whatever emit does in the consumer warps.
func vectorRig(t testing.TB, emit func(r *rig)) *rig {
	r := newRig(t, setup{consumers: 2})
	r.body(func(*pipeline.Consumer) { emit(r) }, nil)
	return r
}

// choose writes the token that each CTA finds.
func (r *rig) choose(a *tasks.Argmax, next dsl.Buf[dsl.U32]) {
	token := a.Choose(r.e)
	r.k.If(r.e.Tid.EqC(0), func() { next.Store(r.e.CTA, token) })
}

// gemvTolerance: products of bf16 are exact in f32, so only the sums round, in
// at most K/16 + a few steps of at most 2⁻²⁴ of the partial sum each. 2⁻²⁰ of
// Σ|w·x| is above that for K up to 256 in the worst case and far above for
// random signs.
func gemvTolerance(w []half.BF16, x []float64) []float64 {
	abs := make([]half.BF16, len(w))
	for i, b := range w {
		abs[i] = b &^ 0x8000
	}
	ax := make([]float64, len(x))
	for i, v := range x {
		ax[i] = math.Abs(v)
	}
	return scaled(reference.MatVec(abs, ax), 0x1p-20, 0)
}

// padded is n rounded up to whole groups of 32 columns.
func padded(n int) int { return (n + 31) / 32 * 32 }
