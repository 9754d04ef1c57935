package product_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/product"
	"github.com/stretchr/testify/require"
)

// One warp takes 16 rounds of 32 × 8 elements written out, more in a loop, and
// what is left over after it.
func TestAWideInputForFewWarps(t *testing.T) {
	for _, n := range []int{4096, 4104, 4352, 4368, 4352 + 248, 20000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			x := rig.Normals(rig.Rand(uint64(n)), n, 1)
			r := rig.New(t, rig.Setup{})
			p := product.PlainInput{N: n, X: rig.In[dsl.BF16](r, "x", rig.BF16Bytes(x), n),
				Dst: dsl.Shared[dsl.BF16](r.K, "input", rig.Padded(n), dsl.Align(16))}
			staged := rig.Out[dsl.BF16](r, "staged", rig.Padded(n))
			r.Body(func(*pipeline.Consumer) {
				p.Emit(r.Env)
				dump(r, p.Dst, staged, rig.Padded(n))
			}, nil)
			require.Equal(t, append(x, make([]half.BF16, rig.Padded(n)-n)...), inOrder(rig.BF16s(r.Run()["staged"])))
		})
	}
}

func TestNormOfAWideInputForFewWarps(t *testing.T) {
	const n = 2*2048 + 8
	rng := rig.Rand(n)
	x, gains := rig.Floats(rng, n, 1), rig.Normals(rng, n, 1)
	r := rig.New(t, rig.Setup{})
	norm := product.NormInput{N: n, Eps: 1e-5, X: product.FromBuf(rig.In[dsl.F32](r, "x", rig.F32Bytes(x), n)),
		Gain: rig.In[dsl.BF16](r, "gains", rig.BF16Bytes(gains), n),
		Dst:  dsl.Shared[dsl.BF16](r.K, "input", rig.Padded(n), dsl.Align(16))}
	staged, scale := rig.Out[dsl.BF16](r, "staged", rig.Padded(n)), rig.Out[dsl.F32](r, "scale", 32)
	r.Body(func(*pipeline.Consumer) {
		s := norm.Emit(r.Env, r.K.U32(0))
		dump(r, norm.Dst, staged, rig.Padded(n))
		scale.Store(r.Env.Tid, s())
	}, nil)
	got := r.Run()
	mean := 0.0
	for _, v := range x {
		mean += float64(v) * float64(v) / n
	}
	s := float64(rig.F32s(got["scale"])[0])
	require.InEpsilon(t, 1/math.Sqrt(mean+1e-5), s, 0x1p-19)
	full := rig.Wide(inOrder(rig.BF16s(got["staged"])))[:n]
	for i := range full {
		full[i] *= s
	}
	want := reference.RMSNorm(rig.Wide32(x), gains, 1e-5)
	rig.Near(t, want, full, rig.Scaled(want, 0x1.02p-8, 1e-30), "")
}

// The code does not grow with the vector: once a vector of 102400 elements for
// one warp gave a kernel that nvcc did not finish in five minutes.
func TestCodeDoesNotGrowWithTheInput(t *testing.T) {
	instructions := func(n int) (count int) {
		r := rig.New(t, rig.Setup{})
		p := product.PlainInput{N: n, X: rig.In[dsl.BF16](r, "x", nil, n),
			Dst: dsl.Shared[dsl.BF16](r.K, "input", rig.Padded(n), dsl.Align(16))}
		r.Body(func(*pipeline.Consumer) { p.Emit(r.Env) }, nil)
		k, err := r.K.Finish()
		require.NoError(t, err)
		k.Instrs(func(*ir.Instr) { count++ })
		return count
	}
	require.LessOrEqual(t, instructions(102400), instructions(4096))
}
