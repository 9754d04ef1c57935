package emit_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/emit"
	"github.com/stretchr/testify/require"
)

// body is the printed kernel from its opening line.
func body(t *testing.T, build func(k *dsl.Kernel)) string {
	t.Helper()
	text := print(t, kernel(t, "test", build))
	return text[strings.Index(text, `extern "C"`):]
}

// has requires every line, in this order.
func has(t *testing.T, text string, lines ...string) {
	t.Helper()
	rest := text
	for _, l := range lines {
		i := strings.Index(rest, l)
		require.GreaterOrEqual(t, i, 0, "no %q after the ones before it in\n%s", l, text)
		rest = rest[i+len(l):]
	}
}

func TestNamesAreSafeAndUnique(t *testing.T) {
	text := body(t, func(k *dsl.Kernel) {
		out := dsl.Global[dsl.U32](k, "float", 0)      // a C++ word as a member of the params block
		lane := dsl.Global[dsl.U32](k, "threadIdx", 0) // a CUDA word
		for i, name := range []string{"for", "uint4", "ptx", "lane", "row", "row", "__x__", "9lives", "größe", "Params", ""} {
			v := out.Load(dsl.At(i)).Named(name)
			lane.Store(dsl.At(i), v)
			lane.Store(dsl.At(i+32), v)
		}
	})
	has(t, text, "const u32 for_2 = float_2[0];", "const u32 uint4_2 =", "const u32 ptx_2 =", "const u32 lane_2 =",
		"const u32 row =", "const u32 row_2 =", "const u32 x =", "const u32 v9lives =", "const u32 gr_e =",
		"const u32 Params_2 =", "float_2[10]")
	has(t, text, "u32* const float_2 = ptx::global(p->float_2);", "u32* const threadIdx_2 =")
}

func TestSiblingScopesShareNamesAndNestedOnesDoNot(t *testing.T) {
	text := body(t, func(k *dsl.Kernel) {
		out := dsl.Global[dsl.U32](k, "out", 0)
		use := func(name string) {
			v := out.Load(k.Tid()).Named(name)
			out.Store(v, v)
		}
		k.If(k.Tid().EqC(0), func() { use("row") })
		k.If(k.Tid().EqC(1), func() {
			use("row")
			k.For(k.U32(0), k.U32(4),
				func(i dsl.Val[dsl.U32]) { use("row"); k.For(i, k.U32(9), func(j dsl.Val[dsl.U32]) { out.Store(i, j) }) })
		})
	})
	has(t, text, "tid == 0", "u32 row = ", "tid == 1", "u32 row = ", "for (u32 i = 0;", "u32 row_2 =",
		"for (u32 i_2 = i; i_2 < 9; ++i_2)", "out[i] = i_2;")
}

func TestGetIsNotMovedAcrossASet(t *testing.T) {
	text := body(t, func(k *dsl.Kernel) {
		out := dsl.Global[dsl.U32](k, "out", 0)
		x := dsl.NewVar(k.Tid(), "x")
		before := x.Get()
		x.Set(x.Get().AddC(1))
		out.Store(x.Get(), before)
		y := dsl.NewVar(k.U32(5), "y")
		limit := y.Get() // the loop changes y, not its own bound
		k.For(k.U32(0), limit, func(i dsl.Val[dsl.U32]) {
			y.Set(y.Get().Add(before))
			out.Store(i, y.Get())
		})
		a := y.Get()
		k.If(k.Tid().EqC(0), func() { y.Set(k.U32(0)) })
		out.Store(dsl.At(1), a)
	})
	has(t, text, "u32 x = tid;", "const u32 v", " = x;", "x = x + 1;", "out[x] = v", "const u32 v", " = y;", "i < v",
		"y = y + v", "out[i] = y;", "const u32 v", " = y;", "y = 0;", "out[1] = v")
}

func TestLoadIsNotMovedAcrossAStoreOrASync(t *testing.T) {
	text := body(t, func(k *dsl.Kernel) {
		xs := dsl.Global[dsl.U32](k, "xs", 0)
		sh := dsl.Shared[dsl.U32](k, "sh", 128)
		free := xs.Load(dsl.At(0))
		xs.Store(dsl.At(1), free)
		crossed := xs.Load(dsl.At(2))
		xs.Store(dsl.At(2), k.U32(7))
		xs.Store(dsl.At(3), crossed)
		sh.Store(k.Tid(), k.Tid())
		own := sh.Load(k.Tid())
		k.Barrier()
		xs.Store(dsl.At(4), own)
		loop := xs.Load(dsl.At(5))
		k.For(k.U32(0), k.U32(3), func(i dsl.Val[dsl.U32]) { xs.Store(i.AddC(6), loop) })
	})
	has(t, text, "xs[1] = xs[0];", "const u32 v", " = xs[2];", "xs[2] = 7;", "xs[3] = v", " = sh[tid];",
		"__syncthreads();", "xs[4] = v", "const u32 v", " = xs[5];", "for (", "xs[i + 6] = v")
}

func TestPureValueUsedInALoopIsComputedBeforeIt(t *testing.T) {
	text := body(t, func(k *dsl.Kernel) {
		out := dsl.Global[dsl.U32](k, "out", 0)
		base := k.CTA().MulC(100)
		k.For(k.U32(0), k.Tid().AddC(1), func(i dsl.Val[dsl.U32]) { out.Store(base, i) })
	})
	has(t, text, "const u32 v", " = cta * 100;", "for (u32 i = 0; i < tid + 1; ++i) {", "out[v")
}

func TestUnusedResultsAreLeftOutAndEffectsAreNot(t *testing.T) {
	text := body(t, func(k *dsl.Kernel) {
		out := dsl.Global[dsl.U32](k, "out", 0)
		k.Assert(out.Load(dsl.At(3)).MulC(17).LtC(5), "only the executor looks")
		dsl.AtomicAdd(out, dsl.At(0), k.U32(1), dsl.Relaxed(dsl.GPUScope))
		out.Load(dsl.At(1), dsl.Volatile())
		x := dsl.NewVar(k.U32(3), "ghost")
		x.Set(k.U32(4))
	})
	has(t, text, "  ptx::atom_relaxed_gpu_add_u32(out, 1);", "  ptx::ld_volatile_u32(&out[1]);")
	for _, gone := range []string{"17", "out[3]", "ghost"} {
		require.NotContains(t, text, gone)
	}
}

func TestRegionIsBracedOnlyWhenNothingLeavesIt(t *testing.T) {
	text := body(t, func(k *dsl.Kernel) {
		out := dsl.Global[dsl.U32](k, "out", 0)
		var kept dsl.Val[dsl.U32]
		k.Region("closed */ \\", func() { v := out.Load(dsl.At(0)).Named("inner"); out.Store(v, v) })
		k.Region("open", func() {
			k.Region("nested", func() { kept = out.Load(dsl.At(1)).Named("kept") })
			out.Store(dsl.At(2), k.Tid())
		})
		out.Store(kept, kept)
	})
	has(t, text, "  // ---- closed */ ----\n  {\n    const u32 inner",
		"  }\n  // ---- open ----\n  // ---- nested ----\n  const u32 kept", "out[kept] = kept;")
}

// i * (n + 127) / 128 was printed for i · ⌈n/128⌉: pages of other sequences on the GPU, and nothing on the executor.
func TestAFactorThatDividesKeepsItsParentheses(t *testing.T) {
	text := body(t, func(k *dsl.Kernel) {
		out, n := dsl.Global[dsl.U32](k, "out", 0), dsl.Scalar[dsl.U32](k, "n", "")
		s := dsl.Bits[dsl.I32](n)
		for i, x := range []dsl.Val[dsl.U32]{
			k.Lane().Mul(n.AddC(127).DivC(128)), k.Lane().Mul(n.RemC(128)), n.DivC(128).Mul(k.Lane()),
			k.Lane().Mul(n.Mul(k.Warp())), k.Lane().Add(n.Sub(k.Warp())), k.Lane().Sub(n.Add(k.Warp())),
			dsl.Bits[dsl.U32](s.Mul(dsl.Bits[dsl.I32](n.DivC(7)))),
		} {
			out.Store(dsl.At(i), x)
		}
	})
	has(t, text, "out[0] = lane * ((n + 127) / 128);", "out[1] = lane * (n % 128);", "out[2] = n / 128 * lane;",
		"out[3] = lane * n * warp;", "out[4] = lane + n - warp;", "out[5] = lane - (n + warp);", "out[6] = n * (n / 7);")
}

func TestFloatConstantsKeepTheirBits(t *testing.T) {
	text := body(t, func(k *dsl.Kernel) {
		out := dsl.Global[dsl.F32](k, "out", 0)
		for i, x := range []float64{1, -0.5, 0.1, 1e-45, 3.4028234663852886e38, 16777216, negInf()} {
			out.Store(dsl.At(i), k.F32(x))
		}
		out.Store(dsl.At(7), k.F32(0).Mul(k.F32(-1)))
		out.Store(dsl.At(8), k.F32(math.NaN()))
	})
	has(t, text, "out[0] = 1.0f;", "out[1] = -0.5f;", "out[2] = 0.1f;", "out[3] = 1e-45f;", "out[4] = 3.4028235e+38f;",
		"out[5] = 1.6777216e+07f;", "out[6] = __uint_as_float(0xff800000u) /* -inf */;",
		"out[8] = __uint_as_float(0x7fc00000u);")
}

func TestLinesLeadBackToGo(t *testing.T) {
	k := kernel(t, "variables", variables)
	src, err := emit.Print(k, target(t), emit.Options{Lines: true})
	require.NoError(t, err)
	lines := strings.Split(string(src.Text), "\n")
	require.Len(t, src.Lines, len(lines)-1)
	found := 0
	for i, l := range lines {
		if strings.Contains(l, "largest = fmaxf") {
			found++
			require.Contains(t, src.Pos(i+1).Line, "emit/groups_test.go:")
			require.True(t, strings.HasSuffix(l, "  // "+src.Pos(i+1).Line), l)
			require.Equal(t, src.Pos(i+1), src.Lines[i])
		}
	}
	require.Equal(t, 1, found)
	require.Equal(t, ir.Pos{}, src.Pos(1), "the head comes from no statement")
	require.NotEqual(t, ir.Pos{}, src.Pos(len(lines)), "the closing brace belongs to the last statement")
}

func TestPrintRefusesWhatTheTargetCannotTake(t *testing.T) {
	for _, c := range []struct {
		change func(k *ir.Kernel)
		want   string
	}{
		{func(k *ir.Kernel) { k.Name = "while" }, `kernel name "while" is not a free C++ identifier`},
		{func(k *ir.Kernel) { k.Name = "a b" }, `kernel name "a b" is not a free C++ identifier`},
		{func(k *ir.Kernel) { k.Warps = 33 }, "has 33 warps a CTA, want 1 to 32 on sm_90a"},
		{func(k *ir.Kernel) { k.SharedBytes = 232449 }, "uses 232449 bytes of shared memory, a CTA has 232448 on sm_90a"},
		{func(k *ir.Kernel) { k.ClusterSize = 16 }, "clusters of 16 CTAs, want at most 8"},
		{func(k *ir.Kernel) { k.Grid, k.ClusterSize = 3, 2 }, "grid of 3 CTAs, no multiple of its clusters of 2"},
		{func(k *ir.Kernel) { k.Shareds()[0].Offset = -1 }, "is not placed within the kernel's"},
		{func(k *ir.Kernel) { k.Shareds()[0].Align = 4096 }, "wants alignment 4096"},
	} {
		k := kernel(t, "bulk", bulk)
		c.change(k)
		_, err := emit.Print(k, target(t), emit.Options{})
		require.ErrorContains(t, err, c.want)
	}
	_, err := emit.Print(kernel(t, "bulk", bulk), emit.Target{Arch: "sm_80"}, emit.Options{})
	require.ErrorContains(t, err, "want one of: sm_90a")
}

func TestClustersAreAnAttribute(t *testing.T) {
	k := kernel(t, "bulk", bulk)
	k.Grid, k.ClusterSize = 4, 2
	require.Contains(t, print(t, k), `extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128, 1)`)
}

func TestLongKernelIsPrintedQuickly(t *testing.T) {
	k := kernel(t, "lengthy", func(k *dsl.Kernel) {
		out := dsl.Global[dsl.F32](k, "out", 0)
		x := dsl.NewVar(k.F32(0), "x")
		for i := range 5000 {
			v := out.Load(dsl.At(i)).Named("v")
			x.Set(dsl.FMA(v, v, x.Get()))
			out.Store(dsl.At(i), x.Get())
		}
	})
	require.GreaterOrEqual(t, k.NumValues, 20000)
	start := time.Now()
	text := print(t, k)
	took := time.Since(start)
	require.Less(t, took, 10*time.Second) // 65 ms on an idle core; what this guards against is quadratic growth
	require.Equal(t, 5000, strings.Count(text, "fmaf("))
	t.Logf("%d values, %d bytes in %v", k.NumValues, len(text), took)
}

// A load in an asm that is not volatile may be moved out of the If that guards it.
func TestLoadsStayWhereTheProgramHasThem(t *testing.T) {
	files, err := filepath.Glob("testdata/*.cu")
	require.NoError(t, err)
	loads := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotRegexp(t, `asm\("(ld|st|atom|red|cp|mbarrier)`, string(text), file)
		loads += strings.Count(string(text), `asm volatile("ld`)
	}
	require.Greater(t, loads, 10)
}
