package ir_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
)

func TestPrintShowsEveryOpAndNode(t *testing.T) {
	k := everyOp(t)
	seen := map[ir.Op]bool{}
	for _, c := range ir.Stats(k).Ops {
		seen[c.Op] = true
	}
	for _, o := range ir.AllOps() {
		require.True(t, seen[o], "%s is missing in the golden", o)
	}
	golden(t, "everyop.txt", k.String())
}

func TestStatsCountByOpWidthAndSpace(t *testing.T) {
	golden(t, "stats.txt", ir.Stats(everyOp(t)).String())
}

func TestPrintIsTheSameEveryTime(t *testing.T) {
	require.Equal(t, everyOp(t).String(), everyOp(t).String())
	require.Equal(t, ir.Stats(everyOp(t)), ir.Stats(everyOp(t)))
}

type failing struct{ left int }

func (w *failing) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errors.New("disk full")
	}
	return len(p), nil
}

func TestPrintReturnsTheFirstWriteError(t *testing.T) {
	require.EqualError(t, ir.Print(&failing{left: 100}, everyOp(t)), "disk full")
}

func TestVariableNamesDoNotMeet(t *testing.T) {
	a, b := ir.Var{ID: 12, Hint: "x"}, ir.Var{ID: 2, Hint: "x1"}
	require.Equal(t, "%x12", a.String())
	require.Equal(t, "%x1.2", b.String())
}

// everyOp is a correct kernel in which every op and every node occurs.
func everyOp(t *testing.T) *ir.Kernel {
	k := dsl.New("everyop", dsl.Options{Warps: 8, Grid: 4, Cluster: 2, SharedLimit: 8192, Doc: []string{"Every op once."}})
	e := &everything{
		k:     k,
		out:   dsl.Global[dsl.F32](k, "out", 0, dsl.Doc("results")),
		in:    dsl.Global[dsl.U32](k, "in", 64, dsl.ReadOnly()),
		words: dsl.Global[dsl.U32](k, "words", 16, dsl.Align(16)),
		tile:  dsl.Shared[dsl.BF16](k, "tile", 2048, dsl.Align(1024)),
		full:  dsl.NewMBars(k, "full", 2),
	}
	epoch := dsl.Scalar[dsl.U32](k, "epoch", "counts launches")
	k.Region("integers", func() { e.integers(epoch) })
	k.Region("floats", e.floats)
	k.Region("memory", e.memory)
	k.Region("warp", e.warp)
	k.Region("synchronisation", e.sync)
	p, err := k.Finish()
	require.NoError(t, err)
	return p
}

type everything struct {
	k     *dsl.Kernel
	out   dsl.Buf[dsl.F32]
	in    dsl.Buf[dsl.U32]
	words dsl.Buf[dsl.U32]
	tile  dsl.Buf[dsl.BF16]
	full  dsl.MBars
}

type u32 = dsl.Val[dsl.U32]
type f32 = dsl.Val[dsl.F32]

func (e *everything) keep(v u32) { e.words.Store(dsl.At(0), v) }

func (e *everything) integers(epoch u32) {
	k := e.k
	a, b := k.Lane().Named("a"), k.Warp()
	r := a.Add(b).Sub(k.CTA()).Mul(k.Grid()).Div(b.AddC(1)).Rem(a.AddC(3)).Min(epoch).Max(k.Tid())
	r = dsl.MulHi(r, a).And(b).Or(a).Xor(b).Not().ShlC(3).Shr(b)
	low, high := dsl.Halves(r)
	r = dsl.Cast[dsl.U32](low).Add(dsl.Cast[dsl.U32](high))
	r = r.Add(k.SMID()).Add(dsl.Permute(a, dsl.Opaque(b), 0x5410)).Add(dsl.PermuteBy(a, b, a)).
		Add(dsl.Dot2(a, 1, -1, b)).Add(dsl.XorAnd(a, b, r))
	s := dsl.Cast[dsl.I32](r).Neg().Abs()
	x := dsl.NewVar(s, "s")
	x.Set(x.Get().AddC(-1))
	p := a.Eq(b).And(a.Ne(b)).Or(a.Lt(b)).Xor(a.Le(b)).And(a.Gt(b)).And(a.Ge(b)).Not().Named("odd")
	e.keep(dsl.Select(p, r, dsl.Cast[dsl.U32](x.Get())))
	k.IfElse(p, func() { e.keep(a) }, func() { e.keep(b) })
	k.Assert(p, `lane "a" is odd`)
	e.keep(dsl.Cast[dsl.U32](k.Clock().Add(k.GlobalTimer())))
}

func (e *everything) floats() {
	x := e.out.Load(dsl.At(0)).Named("x")
	y := x.Sub(e.k.F32(0.5)).Mul(x).Div(x)
	for _, f := range []func(f32) f32{dsl.Exp2, dsl.Log2, dsl.Rcp, dsl.Rsqrt, dsl.Sqrt, dsl.Sin, dsl.Cos, dsl.Tanh,
		dsl.Rint, dsl.Floor} {
		y = f(y)
	}
	lo, hi := dsl.Unpack[dsl.BF16x2](dsl.Pack[dsl.BF16x2](y, x))
	lo = lo.Add(lowOf(dsl.Cast[dsl.F16x2](dsl.Pack[dsl.E4M3x2](y, x))))
	ws := dsl.Split(dsl.Join(dsl.Bits[dsl.U32](lo), e.k.U32(1), e.k.U32(2), e.k.U32(3)))
	e.out.Store(dsl.At(0), dsl.FMA(dsl.Bits[dsl.F32](ws[0]), hi, x))
}

func lowOf(p dsl.Val[dsl.F16x2]) f32 {
	lo, _ := dsl.Unpack(p)
	return lo
}

func (e *everything) memory() {
	k, at := e.k, dsl.At(4)
	vs := e.in.LoadN(k.Lane().MulC(2), 2, dsl.CacheHint(ir.NonCoherent))
	e.words.StoreN(at, []u32{vs[0], vs[1], vs[0], vs[1]}, dsl.CacheHint(ir.EvictLast))
	r := e.words.Load(at, dsl.Acquire(dsl.GPUScope)).Add(e.words.Load(at, dsl.Volatile()))
	e.words.Store(at, r, dsl.Release(dsl.GPUScope))
	gpu := dsl.AcqRel(dsl.GPUScope)
	for _, f := range []func(dsl.Buf[dsl.U32], dsl.Index, u32, ...dsl.MemOpt) u32{
		dsl.AtomicAdd[dsl.U32], dsl.AtomicMax[dsl.U32], dsl.AtomicMin[dsl.U32], dsl.AtomicOr[dsl.U32],
		dsl.AtomicExch[dsl.U32],
	} {
		r = f(e.words, at, r, gpu)
	}
	r = dsl.AtomicCAS(e.words, at, r, k.U32(0), dsl.Relaxed(dsl.SysScope))
	dsl.ReduceAdd(e.words, at, r, dsl.Release(dsl.CTAScope))
}

func (e *everything) warp() {
	k := e.k
	a := dsl.LoadMatrix(e.tile, k.Lane().MulC(8), false)
	b := dsl.LoadMatrix(e.tile, k.Lane().MulC(8), true)
	zero := k.F32(0)
	d := dsl.MMA(a, [2]dsl.Val[dsl.BF16x2]{b[0], b[1]}, [4]f32{zero, zero, zero, zero})
	word := dsl.ReduxAdd(dsl.Bits[dsl.I32](dsl.ReduxMax(dsl.Bits[dsl.U32](a[0]))))
	words, sums := [4]u32{e.k.U32(1), e.k.U32(2), e.k.U32(3), e.k.U32(4)}, [4]dsl.Val[dsl.I32]{word, word, word, word}
	sums = dsl.MMABytes(words, [2]dsl.Val[dsl.I32]{word, word}, sums)
	sums = dsl.MMABytes(sums, [2]dsl.Val[dsl.I32]{word, word}, sums)
	d[0] = d[0].Add(dsl.Cast[dsl.F32](sums[0]))
	v := dsl.Shfl(d[0], k.U32(0)).Add(dsl.ShflXor(d[1], 16)).Add(dsl.ShflUp(d[2], 1)).Add(dsl.ShflDown(d[3], 2))
	p := dsl.All(v.Gt(zero)).And(dsl.Any(v.Lt(zero)))
	n := dsl.Uniform(dsl.Ballot(p), dsl.WarpScope)
	k.SyncWarp()
	k.For(k.U32(0), n, func(i u32) { e.out.Store(i.Named("i"), v) }, dsl.Unroll(1))
}

func (e *everything) sync() {
	k, one := e.k, k32(e.k, 1)
	k.If(k.Tid().EqC(0), func() {
		e.full.Init(dsl.At(0), one)
		k.FenceMBarInit()
	})
	k.Barrier()
	producer := func() {
		k.If(k.Lane().EqC(0), func() {
			k.FenceProxyAsync()
			k.FenceProxyAsyncShared()
			k.FenceProxyAsyncGlobal()
			e.full.ArriveExpect(dsl.At(0), k32(k, 512))
			dsl.BulkCopy(e.tile, dsl.At(0), e.in, nil, k32(k, 128), e.full, dsl.At(0), dsl.CacheHint(ir.EvictFirst))
			dsl.CopyAsync(e.tile, dsl.At(8), e.in, dsl.At(8))
			e.full.Arrive(dsl.At(1))
			e.full.ArriveN(dsl.At(1), k32(k, 2))
		})
		k.CopyCommit()
		k.CopyWait(0)
		k.NamedArrive(1, 3)
	}
	consumer := func() {
		k.NamedBarrier(1, 3)
		e.full.Wait(dsl.At(0), k32(k, 0))
		k.Assert(e.full.Test(dsl.At(0), k32(k, 0)), "complete")
		stop := e.full.WaitOr(dsl.At(0), k32(k, 1), e.words, dsl.At(1))
		k.Assert(stop, "stopped")
		k.Fence(dsl.GPUScope)
		k.FenceSC(dsl.SysScope)
		dsl.WaitUntil(e.words, dsl.At(2), dsl.GE, one, dsl.Acquire(dsl.GPUScope))
		k.Assert(dsl.WaitUntilOr(e.words, dsl.At(2), dsl.NE, one, e.words, dsl.At(3), dsl.Relaxed(dsl.GPUScope)).Not(), "on")
		tagged := dsl.View[dsl.B128](e.words)
		dsl.WaitTag(tagged, dsl.At(1), tagged.Load(dsl.At(1), dsl.Relaxed(dsl.GPUScope)), one, dsl.Relaxed(dsl.GPUScope))
		k.Nanosleep(k32(k, 100))
		k.LaunchDependents()
		k.WaitForPrior()
	}
	k.Roles(dsl.Role{Name: "producer", First: 2, End: 3, Body: producer},
		dsl.Role{Name: "consumer", First: 0, End: 2, Body: consumer},
		dsl.Role{Name: "group", First: 4, End: 8, Body: e.group})
	k.ClusterBarrier()
}

func (e *everything) group() {
	k := e.k
	sums := dsl.NewArray(k.F32(0), 8, "sum")
	a := [4]*dsl.Var[dsl.BF16x2](dsl.NewArray(dsl.Lit[dsl.BF16x2](k, 0), 4, "a"))
	narrow, wide := dsl.Tile{Swizzle: 64, Stride: 512}, dsl.Tile{Swizzle: 128, Stride: 1024}
	half := dsl.View[dsl.BF16x2](e.in)
	box := dsl.NewTensorMap(k, "map", half, 0, [3]int64{16, 2, 2}, [2]int64{32, 64}, [3]int{16, 2, 2}, dsl.Doc("of in"))
	k.FewerRegisters(56)
	k.MoreRegisters(64)
	k.WGMMAFence()
	dsl.WGMMA[dsl.F16x2](sums, e.tile, dsl.At(0), narrow, e.tile, dsl.At(16), narrow)
	dsl.WGMMARegisters(sums, a, e.tile, dsl.At(0), wide)
	k.WGMMACommit()
	k.WGMMAWait(0)
	k.If(k.Elect(), func() {
		e.out.Store(dsl.At(0), sums[7].Get())
		zero := k.I32(0)
		dsl.TensorCopy(e.tile, dsl.At(0), box, [3]dsl.Val[dsl.I32]{zero, zero, k.I32(1)}, e.full, dsl.At(0), 0)
		dsl.TensorCopy(e.tile, dsl.At(0), box, [3]dsl.Val[dsl.I32]{zero, zero, k.I32(1)}, e.full, dsl.At(0), 3)
		e.full.ArriveAt(dsl.At(1), k.ClusterRank())
	})
}

func k32(k *dsl.Kernel, x int) u32 { return k.U32(x) }
