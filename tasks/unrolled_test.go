package tasks_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks"
	"github.com/stretchr/testify/require"
)

// One warp takes 16 rounds of 32 × 8 elements written out, more in a loop, and
// what is left over after it.
func TestAWideInputForFewWarps(t *testing.T) {
	for _, n := range []int{4096, 4104, 4352, 4368, 4352 + 248, 20000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			x := normals(newRand(uint64(n)), n, 1)
			r := newRig(t, setup{})
			p := tasks.PlainInput{N: n, X: in[dsl.BF16](r, "x", bf16Bytes(x), n),
				Dst: dsl.Shared[dsl.BF16](r.k, "input", padded(n), dsl.Align(16))}
			staged := out[dsl.BF16](r, "staged", padded(n))
			r.body(func(*pipeline.Consumer) {
				p.Emit(r.e)
				dump(r, p.Dst, staged, padded(n))
			}, nil)
			require.Equal(t, append(x, make([]half.BF16, padded(n)-n)...), inOrder(bf16s(r.run()["staged"])))
		})
	}
}

func TestNormOfAWideInputForFewWarps(t *testing.T) {
	const n = 2*2048 + 8
	rng := newRand(n)
	x, gains := floats(rng, n, 1), normals(rng, n, 1)
	r := newRig(t, setup{})
	norm := tasks.NormInput{N: n, Eps: 1e-5, X: tasks.FromBuf(in[dsl.F32](r, "x", f32Bytes(x), n)),
		Gain: in[dsl.BF16](r, "gains", bf16Bytes(gains), n),
		Dst:  dsl.Shared[dsl.BF16](r.k, "input", padded(n), dsl.Align(16))}
	staged, scale := out[dsl.BF16](r, "staged", padded(n)), out[dsl.F32](r, "scale", 32)
	r.body(func(*pipeline.Consumer) {
		s := norm.Emit(r.e, r.k.U32(0))
		dump(r, norm.Dst, staged, padded(n))
		scale.Store(r.e.Tid, s)
	}, nil)
	got := r.run()
	mean := 0.0
	for _, v := range x {
		mean += float64(v) * float64(v) / n
	}
	s := float64(f32s(got["scale"])[0])
	require.InEpsilon(t, 1/math.Sqrt(mean+1e-5), s, 0x1p-19)
	full := wide(inOrder(bf16s(got["staged"])))[:n]
	for i := range full {
		full[i] *= s
	}
	want := reference.RMSNorm(wide32(x), gains, 1e-5)
	near(t, want, full, scaled(want, 0x1.02p-8, 1e-30), "")
}

// The code does not grow with the vector: once a vector of 102400 elements for
// one warp gave a kernel that nvcc did not finish in five minutes.
func TestCodeDoesNotGrowWithTheInput(t *testing.T) {
	instructions := func(n int) (count int) {
		r := newRig(t, setup{})
		p := tasks.PlainInput{N: n, X: in[dsl.BF16](r, "x", nil, n),
			Dst: dsl.Shared[dsl.BF16](r.k, "input", padded(n), dsl.Align(16))}
		r.body(func(*pipeline.Consumer) { p.Emit(r.e) }, nil)
		k, err := r.k.Finish()
		require.NoError(t, err)
		k.Instrs(func(*ir.Instr) { count++ })
		return count
	}
	require.LessOrEqual(t, instructions(102400), instructions(4096))
}
