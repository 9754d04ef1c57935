package product_test

import (
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/product"
	"github.com/stretchr/testify/require"
)

func TestAddResidual(t *testing.T) {
	for _, n := range []int{4, 8, 132, 516} {
		rng := rig.Rand(uint64(n))
		x, y := rig.Floats(rng, n, 1), rig.Floats(rng, n, 1)
		r := rig.New(t, rig.Setup{SMs: 2, Consumers: 2})
		yIn, acc := rig.In[dsl.F32](r, "y", rig.F32Bytes(y), n), rig.InOut[dsl.F32](r, "x", rig.F32Bytes(x), n)
		r.Body(func(*pipeline.Consumer) { r.EachRows(yIn, n, product.AddResidual(acc, product.FromBuf(acc))) }, nil)
		got := r.Run()["x"]
		for i, v := range rig.F32s(got) { // one f32 addition: exact up to its rounding
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
	r := rig.New(t, rig.Setup{SMs: 2, Consumers: 1})
	yIn, act := rig.In[dsl.F32](r, "y", rig.F32Bytes(y), 2*n), rig.Out[dsl.BF16](r, "act", n)
	r.Body(func(*pipeline.Consumer) {
		by := product.KnownScale(r.K.F32(scale))
		r.EachRows(yIn, 2*n, product.GLU{}.Epilogue(r.Env, act, r.K.U32(0), pipeline.FormatBF16, by))
	}, nil)
	return rig.BF16s(r.Run()["act"])
}

func TestSwiGLU(t *testing.T) {
	rng := rig.Rand(9)
	for _, scale := range []float64{1, 0.25, 3} {
		gate, up := rig.Floats(rng, 300, 4), rig.Floats(rng, 300, 2)
		g, u := make([]float64, 300), make([]float64, 300)
		for i := range g {
			g[i], u[i] = scale*float64(gate[i]), scale*float64(up[i])
		}
		want := reference.SwiGLU(g, u)
		// One rounding to bf16 (2⁻⁸), and before it some of 2⁻²² (exp2, rcp) of which
		// the one on the exponent counts |gate| times.
		rig.Near(t, want, rig.Wide(swiglu(t, gate, up, scale)), rig.Scaled(want, 0x1.02p-8, 1e-36), "scale %g", scale)
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
		switch v := rig.FromBF16(b); {
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
	s := product.GateUpSource(5)
	var rows []int
	for r := range 10 {
		rows = append(rows, s(r))
	}
	require.Equal(t, []int{0, 5, 1, 6, 2, 7, 3, 8, 4, 9}, rows)
}
