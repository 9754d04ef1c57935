package tasks_test

import (
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks"
	"github.com/stretchr/testify/require"
)

func TestAddResidual(t *testing.T) {
	for _, n := range []int{2, 8, 130, 514} {
		rng := newRand(uint64(n))
		x, y := floats(rng, n, 1), floats(rng, n, 1)
		r := newRig(t, setup{sms: 2, consumers: 2})
		yIn, acc := in[dsl.F32](r, "y", f32Bytes(y), n), inOut[dsl.F32](r, "x", f32Bytes(x), n)
		r.body(func(*pipeline.Consumer) { r.eachPair(yIn, n, tasks.AddResidual(acc, tasks.FromBuf(acc))) }, nil)
		got := r.run()["x"]
		for i, v := range f32s(got) { // one f32 addition: exact up to its rounding
			require.Equal(t, float64(x[i]+y[i]), v, "element %d of %d", i, n)
		}
	}
}

// swiglu runs the epilogue on pairs of gate and up.
func swiglu(t testing.TB, gate, up []float32, scale float64) []half.BF16 {
	n := len(gate)
	var y []float32
	for i := range gate {
		y = append(y, gate[i], up[i])
	}
	r := newRig(t, setup{sms: 2, consumers: 1})
	yIn, act := in[dsl.F32](r, "y", f32Bytes(y), 2*n), out[dsl.BF16](r, "act", n)
	r.body(func(*pipeline.Consumer) {
		r.eachPair(yIn, 2*n, tasks.GLU{}.Epilogue(r.e, act, r.k.U32(0), pipeline.FormatBF16, r.k.F32(scale)))
	}, nil)
	return bf16s(r.run()["act"])
}

func TestSwiGLU(t *testing.T) {
	rng := newRand(9)
	for _, scale := range []float64{1, 0.25, 3} {
		gate, up := floats(rng, 300, 4), floats(rng, 300, 2)
		g, u := make([]float64, 300), make([]float64, 300)
		for i := range g {
			g[i], u[i] = scale*float64(gate[i]), scale*float64(up[i])
		}
		want := reference.SwiGLU(g, u)
		// One rounding to bf16 (2⁻⁸), and before it some of 2⁻²² (exp2, rcp) of which
		// the one on the exponent counts |gate| times.
		near(t, want, wide(swiglu(t, gate, up, scale)), scaled(want, 0x1.02p-8, 1e-36), "scale %g", scale)
	}
}

func TestSwiGLUAtTheEdges(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	gate := []float32{0, 1e4, 1e30, -1e4, -87, -89, -104, -1e30, inf, nan, 1, 2, float32(math.Copysign(0, -1)), -inf}
	up := []float32{3, 1, 2, 5, 1, 1, 1, -1, 1, 1, nan, inf, 1, 1}
	got := swiglu(t, gate, up, 1)
	want := make([]float64, len(gate))
	for i := range gate {
		want[i] = reference.SwiGLU([]float64{float64(gate[i])}, []float64{float64(up[i])})[0]
	}
	for i, b := range got {
		switch v := fromBF16(b); {
		case math.IsNaN(want[i]):
			require.True(t, math.IsNaN(v), "gate %g, up %g: %g", gate[i], up[i], v)
		case math.IsInf(want[i], 0):
			require.Equal(t, want[i], v, "gate %g, up %g", gate[i], up[i])
		default: // below the normal numbers of f32 rcp and bf16 may flush to 0
			require.InDelta(t, want[i], v, math.Abs(want[i])*0x1.02p-8+1e-35, "gate %g, up %g", gate[i], up[i])
		}
	}
}

func TestGateUpSourceInterleaves(t *testing.T) {
	s := tasks.GateUpSource(5)
	var rows []int
	for r := range 10 {
		rows = append(rows, s(r))
	}
	require.Equal(t, []int{0, 5, 1, 6, 2, 7, 3, 8, 4, 9}, rows)
}
