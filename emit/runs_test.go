package emit_test

import (
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/emit"
	"github.com/stretchr/testify/require"
)

// Variables of one hint that begin alike are declared together, and a vector's components assigned together; what
// breaks a run begins another.
func TestAlikeStatementsShareALine(t *testing.T) {
	text := body(t, func(k *dsl.Kernel) {
		in, out := dsl.Global[dsl.F32](k, "in", 0, dsl.ReadOnly()), dsl.Global[dsl.F32](k, "out", 0)
		acc := dsl.NewArray(k.F32(0), 4, "acc")
		other := dsl.NewVar(k.F32(0), "other")
		one := dsl.NewVar(k.F32(1), "other")
		load := func(at int) []dsl.Val[dsl.F32] { return in.LoadN(k.Tid().MulC(4).AddC(at), 4) }
		for i, v := range load(0) {
			acc[i].Set(v)
		}
		a, b := load(4), load(8)
		acc[0].Set(a[3])
		acc[1].Set(b[0]) // of another vector
		acc[2].Set(b[1])
		other.Set(one.Get())
		for _, v := range append(acc, other, one) {
			out.Store(k.Tid(), v.Get())
		}
	})
	has(t, text, "float acc = 0.0f, acc_2 = 0.0f, acc_3 = 0.0f, acc_4 = 0.0f;\n", "  float other = 0.0f;\n",
		"  float other_2 = 1.0f;\n")
	has(t, text, "  acc = v2.x; acc_2 = v2.y; acc_3 = v2.z; acc_4 = v2.w;\n")
	has(t, text, ".w;\n  acc_2 = ", ".x; acc_3 = ", ".y;\n  other = other_2;\n")
}

// A long run is broken between assignments, and every line is of its statements' instructions.
func TestALongRunIsBroken(t *testing.T) {
	k := kernel(t, "test", func(k *dsl.Kernel) {
		in, out := dsl.Global[dsl.F32](k, "in", 0, dsl.ReadOnly()), dsl.Global[dsl.F32](k, "out", 0)
		acc := dsl.NewArray(k.F32(0), 4, strings.Repeat("accumulator_", 3))
		for i, v := range in.LoadN(k.Tid().MulC(4), 4) {
			acc[i].Set(v)
		}
		for _, v := range acc {
			out.Store(k.Tid(), v.Get())
		}
	})
	src, err := emit.Print(k, target(t), emit.Options{})
	require.NoError(t, err)
	sets := 0
	for i, line := range strings.Split(string(src.Text), "\n") {
		require.LessOrEqual(t, len(line), 120)
		if strings.Contains(line, "_4 = v") {
			sets++
			require.Len(t, src.Instrs[i], 4)
		}
	}
	require.Equal(t, 1, sets)
}

// What goes to the next statement alone has no name of its own, whatever its length or its effect; what is read twice,
// or behind something else that orders memory, keeps one.
func TestAValueForTheNextStatementIsWrittenThere(t *testing.T) {
	text := body(t, func(k *dsl.Kernel) {
		in, out := dsl.Global[dsl.U32](k, "in", 0, dsl.ReadOnly()), dsl.Global[dsl.U32](k, "out", 0)
		x := dsl.NewVar(k.U32(0), "x")
		x.Set(out.Load(k.Tid(), dsl.Relaxed(dsl.GPUScope)))
		out.Store(k.Tid(), in.Load(k.Tid(), dsl.CacheHint(dsl.NonCoherent)))
		out.Store(k.Lane(), out.Load(k.Tid(), dsl.Relaxed(dsl.GPUScope)))
		v := out.Load(k.Lane(), dsl.Relaxed(dsl.GPUScope))
		x.Set(v)
		out.Store(x.Get(), v)
	})
	has(t, text, "  x = ptx::ld_relaxed_gpu_u32(&out[tid]);", "  out[tid] = ptx::ld_nc_u32(&in[tid]);",
		"= ptx::ld_relaxed_gpu_u32(&out[tid]);\n  out[lane] = v", "= ptx::ld_relaxed_gpu_u32(&out[lane]);\n  x = v")
}
