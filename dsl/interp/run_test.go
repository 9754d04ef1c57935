package interp_test

import (
	"math"
	"os/exec"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/stretchr/testify/require"
)

func TestImportsOnlyIR(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "github.com/mkgen/mkgen/dsl/interp").Output()
	require.NoError(t, err)
	for _, p := range strings.Fields(string(out)) {
		if strings.Contains(p, "mkgen") {
			require.Contains(t, []string{"github.com/mkgen/mkgen/dsl/ir", "github.com/mkgen/mkgen/dsl/interp"}, p)
		}
	}
}

func TestMemoryPersistsBetweenRuns(t *testing.T) {
	p := build(t, 1, 2, func(k *dsl.Kernel) {
		x, step := dsl.Global[dsl.U32](k, "x", 64), dsl.Scalar[dsl.U32](k, "step", "")
		i := k.CTA().XorC(0).MulC(32).Add(k.Lane())
		x.Store(i, x.Load(i).Add(step))
	})
	m := bufs(p)
	for s := range uint64(3) {
		_, err := p.Run(m, interp.Options{Seed: s, Params: map[string]uint64{"step": 10 + s}})
		require.NoError(t, err)
	}
	require.Equal(t, uint32(33), u32s(m.Bytes("x"))[63])
	_, err := p.Run(m, interp.Options{})
	require.ErrorContains(t, err, "parameter step has no value")
	_, err = p.Run(m, interp.Options{Grid: 3, Params: map[string]uint64{"step": 0}})
	require.ErrorContains(t, err, "is run over 3 CTAs, want 2")
}

func TestUninitialisedGlobalMemoryAndItsCopies(t *testing.T) {
	p := build(t, 1, 1, func(k *dsl.Kernel) {
		x, y := dsl.Global[dsl.U32](k, "x", 32), dsl.Global[dsl.U32](k, "y", 32)
		y.Store(k.Lane(), k.U32(1))
		k.If(k.Lane().LtC(20), func() { y.Store(k.Lane(), x.Load(k.Lane())) })
	})
	m := bufs(p)
	require.True(t, m.MarkUninit("x"))
	require.False(t, m.MarkUninit("z"))
	_, err := p.Run(m, interp.Options{})
	require.ErrorContains(t, err, "reads element 0 of @x, which nobody has written")
	m.MarkInit("x", 0, 76)
	_, err = p.Run(m, interp.Options{})
	require.ErrorContains(t, err, "reads element 19 of @x")
	m.MarkInit("x", 76, 4)
	_, err = p.Run(m, interp.Options{})
	require.NoError(t, err)
}

func TestCopiesCarryUninitialisedBytes(t *testing.T) {
	p := build(t, 1, 1, func(k *dsl.Kernel) {
		dst, bar := copyIn(k, 256, 256, true)
		dsl.Global[dsl.U32](k, "y", 64).Store(k.Lane(), dst.Load(k.Lane().AddC(32)))
		_ = bar
	})
	m := bufs(p)
	m.MarkUninit("src")
	m.MarkInit("src", 0, 255)
	_, err := p.Run(m, interp.Options{})
	require.ErrorContains(t, err, "reads element 63 of @dst")
}

func TestDivergenceInLoopsAndBranches(t *testing.T) {
	p := build(t, 1, 1, func(k *dsl.Kernel) {
		y := dsl.Global[dsl.U32](k, "y", 32)
		sum := dsl.NewVar(k.U32(0), "sum")
		k.ForStep(k.Lane().RemC(3), k.Lane(), 2, func(i dsl.Val[dsl.U32]) {
			k.IfElse(i.AndC(4).EqC(0), func() { sum.Set(sum.Get().Add(i)) }, func() {
				k.If(k.Lane().Gt(k.U32(20)), func() { sum.Set(sum.Get().AddC(1000)) })
			})
		})
		y.Store(k.Lane(), sum.Get())
	})
	m := bufs(p)
	run(t, p, m, 0)
	for lane, got := range u32s(m.Bytes("y")) {
		want := 0
		for i := lane % 3; i < lane; i += 2 {
			if i&4 == 0 {
				want += i
			} else if lane > 20 {
				want += 1000
			}
		}
		require.EqualValues(t, want, got, "lane %d", lane)
	}
}

func TestLoopToTheEndOfItsType(t *testing.T) {
	p := build(t, 1, 1, func(k *dsl.Kernel) {
		y := dsl.Global[dsl.U32](k, "y", 32)
		n := dsl.NewVar(k.U32(0), "n")
		k.ForStep(k.U32(1<<32-10), k.U32(1<<32-4), 4, func(i dsl.Val[dsl.U32]) { n.Set(n.Get().Add(i.AndC(1)).AddC(1)) })
		y.Store(k.Lane(), n.Get())
	})
	m := bufs(p)
	run(t, p, m, 0)
	require.Equal(t, uint32(2), u32s(m.Bytes("y"))[0]) // the longest bound that ForStep allows: + step is 2³²
}

func TestAtomicsAndTheirResults(t *testing.T) {
	p := build(t, 2, 2, func(k *dsl.Kernel) {
		x, y := dsl.Global[dsl.U32](k, "x", 8), dsl.Global[dsl.U32](k, "y", 128)
		i := k.CTA().MulC(64).Add(k.Tid())
		y.Store(dsl.AtomicAdd(x, dsl.At(0), k.U32(1), rlx), i) // each ticket once
		dsl.AtomicMax(x, dsl.At(1), i, rlx)
		dsl.AtomicMin(dsl.View[dsl.I32](x), dsl.At(2), dsl.Bits[dsl.I32](i).Neg(), rlx)
		dsl.AtomicOr(x, dsl.At(3), k.U32(1).Shl(k.Lane()), rlx)
		dsl.AtomicCAS(x, dsl.At(4), k.U32(0), k.U32(9), rlx)
		dsl.ReduceAdd(dsl.View[dsl.U64](x), dsl.At(3), dsl.Cast[dsl.U64](k.U32(1<<31)), rlx)
	})
	for seed := range uint64(8) {
		m := bufs(p)
		run(t, p, m, seed)
		x := u32s(m.Bytes("x"))
		require.Equal(t, []uint32{128, 127, ^uint32(126), 0xffffffff, 9, 0, 0, 64}, x)
		seen := map[uint32]bool{}
		for _, v := range u32s(m.Bytes("y")) {
			seen[v] = true
		}
		require.Len(t, seen, 128)
	}
}

// Sums of floats round after every term, in an order that the seed draws.
func TestReductionOfFloatsRoundsInTheOrderOfArrival(t *testing.T) {
	p := build(t, 2, 1, func(k *dsl.Kernel) {
		x := dsl.Global[dsl.F32](k, "x", 2)
		big := k.Tid().EqC(0)
		dsl.ReduceAdd(x, dsl.At(0), dsl.Select(big, k.F32(1<<24), k.F32(1)), rlx)
		dsl.ReduceAdd(x, dsl.At(1), k.F32(0.5), rlx)
	})
	sums := map[float32]bool{}
	for seed := range uint64(16) {
		m := bufs(p)
		run(t, p, m, seed)
		x := u32s(m.Bytes("x"))
		sums[math.Float32frombits(x[0])] = true
		require.Equal(t, float32(32), math.Float32frombits(x[1]))
	}
	require.Greater(t, len(sums), 1, "one behind 2^24 is lost, one before it counts")
	for sum := range sums {
		require.LessOrEqual(t, math.Abs(float64(sum)-(1<<24)), 63.0)
	}
}

func TestAbortFlagEndsWaits(t *testing.T) {
	p := build(t, 2, 1, func(k *dsl.Kernel) {
		x, stop, y := dsl.Global[dsl.U32](k, "x", 1), dsl.Global[dsl.U32](k, "stop", 1), dsl.Global[dsl.U32](k, "y", 64)
		bar := dsl.NewMBars(k, "bar", 1)
		k.If(k.Tid().EqC(0), func() { bar.Init(dsl.At(0), k.U32(1)) })
		k.Barrier()
		k.Roles(
			dsl.Role{Name: "waiter", First: 0, End: 1, Body: func() {
				a := dsl.WaitUntilOr(x, dsl.At(0), dsl.EQ, k.U32(1), stop, dsl.At(0), acq)
				b := bar.WaitOr(dsl.At(0), k.U32(0), stop, dsl.At(0))
				y.Store(k.Lane(), dsl.Select(a.And(b), k.U32(7), k.U32(8)))
			}},
			dsl.Role{Name: "stopper", First: 1, End: 2, Body: func() {
				k.If(k.Lane().EqC(0), func() { stop.Store(dsl.At(0), k.U32(1), dsl.Relaxed(ir.Sys)) })
			}},
		)
	})
	for seed := range uint64(40) {
		m := bufs(p)
		run(t, p, m, seed)
		require.Equal(t, uint32(7), u32s(m.Bytes("y"))[31])
	}
}

func TestWaitComparesByWrapSafeDifference(t *testing.T) {
	p := build(t, 1, 1, func(k *dsl.Kernel) {
		x := dsl.Global[dsl.U32](k, "x", 1)
		dsl.WaitUntil(x, dsl.At(0), dsl.GE, k.U32(1<<32-3), acq)
	})
	m := bufs(p)
	m.Bind("x", putU32s(2))
	run(t, p, m, 0)
	m.Bind("x", putU32s(1<<32-4))
	_, err := p.Run(m, interp.Options{})
	require.ErrorContains(t, err, "deadlock")
}

func TestEveryOpHasAMeaning(t *testing.T) {
	require.Empty(t, interp.OpsWithoutMeaning())
}

func TestWithoutRaceChecksTheValuesAreTheSame(t *testing.T) {
	p := build(t, ringConsumers+1, ringGrid, ringKernel)
	words := make([]uint32, ringGrid*ringChunks*ringWords)
	for i := range words {
		words[i] = uint32(i)
	}
	for seed := range uint64(20) {
		m := bufs(p)
		m.Bind("w", putU32s(words...))
		_, err := p.Run(m, interp.Options{Seed: seed, NoRaces: true})
		require.NoError(t, err)
		n := uint32(len(words))
		require.Equal(t, n*(n-1)/2, u32s(m.Bytes("out"))[0])
	}
}
