package interp_test

import (
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/stretchr/testify/require"
)

// faulty is a kernel with one mistake.
type faulty struct {
	name  string
	warps int
	grid  int
	body  func(k *dsl.Kernel)
	kind  interp.Kind
	text  string // part of the report
	sides int    // parties with a Go line, at least
}

func u32Global(k *dsl.Kernel) dsl.Buf[dsl.U32] { return dsl.Global[dsl.U32](k, "x", 64) }

// copyIn copies bytes of global memory into shared memory and completes on an mbarrier of its own.
func copyIn(k *dsl.Kernel, bytes, expect int, wait bool) (dst dsl.Buf[dsl.U32], bar dsl.MBars) {
	src := dsl.Global[dsl.U32](k, "src", 64, dsl.ReadOnly())
	dst, bar = dsl.Shared[dsl.U32](k, "dst", 64), dsl.NewMBars(k, "bar", 1)
	k.If(k.Tid().EqC(0), func() {
		bar.Init(dsl.At(0), k.U32(1))
		k.FenceMBarInit()
		bar.ArriveExpect(dsl.At(0), k.U32(expect))
		dsl.BulkCopy(dst, dsl.At(0), src, dsl.At(0), k.U32(bytes), bar, dsl.At(0))
	})
	k.Barrier()
	if wait {
		bar.Wait(dsl.At(0), k.U32(0))
	}
	return dst, bar
}

var faults = []faulty{
	{"two CTAs write one word", 1, 2, func(k *dsl.Kernel) {
		u32Global(k).Store(k.Lane(), k.CTA())
	}, interp.DataRace, "element 0 of @x: this write and an earlier write are not ordered", 2},
	{"two lanes write one word", 1, 1, func(k *dsl.Kernel) {
		u32Global(k).Store(k.Lane().DivC(2), k.Lane())
	}, interp.DataRace, "element 0 of @x", 2},
	{"atomics of two sizes on one place", 1, 2, func(k *dsl.Kernel) {
		x := u32Global(k)
		k.If(k.Lane().EqC(0), func() {
			k.IfElse(k.CTA().EqC(0), func() { dsl.ReduceAdd(x, dsl.At(0), k.U32(1), rlx) },
				func() { dsl.ReduceAdd(dsl.View[dsl.U64](x), dsl.At(0), k.U64(1), rlx) })
		})
	}, interp.DataRace, "element 0 of @x: this write and an earlier write are not ordered", 2},
	{"lanes exchange without syncwarp", 1, 1, func(k *dsl.Kernel) {
		s := dsl.Shared[dsl.U32](k, "s", 32)
		s.Store(k.Lane(), k.Lane())
		u32Global(k).Store(k.Lane(), s.Load(k.Lane().XorC(1)))
	}, interp.DataRace, "element 1 of @s: this read and an earlier write", 2},
	{"an elected lane's acquire is not the warp's", 1, 2, func(k *dsl.Kernel) {
		x, f := u32Global(k), dsl.Global[dsl.U32](k, "f", 1)
		k.IfElse(k.CTA().EqC(0), func() {
			x.Store(k.Lane(), k.Lane())
			k.SyncWarp()
			k.If(k.Lane().EqC(0), func() { f.Store(dsl.At(0), k.U32(1), rel) })
		}, func() {
			k.If(k.Lane().EqC(0), func() { dsl.WaitUntil(f, dsl.At(0), dsl.EQ, k.U32(1), acq) })
			x.Store(k.Lane().AddC(32), x.Load(k.Lane()))
		})
	}, interp.DataRace, "element 1 of @x", 2},
	{"missing CTA barrier", 2, 1, func(k *dsl.Kernel) {
		s := dsl.Shared[dsl.U32](k, "s", 64)
		s.Store(k.Tid(), k.Tid())
		u32Global(k).Store(k.Tid(), s.Load(k.U32(63).Sub(k.Tid())))
	}, interp.NoFault, "element", 1},
	{"read past the end", 1, 1, func(k *dsl.Kernel) {
		x := u32Global(k)
		x.Store(k.Lane(), x.Load(k.Lane().AddC(40)))
	}, interp.OutOfBounds, "access to 1 element(s) at index 64 of @x, which has 64", 1},
	{"negative index", 1, 1, func(k *dsl.Kernel) {
		x := u32Global(k)
		x.Store(dsl.Bits[dsl.I32](k.Lane()).SubC(1), k.Lane())
	}, interp.OutOfBounds, "index -1 of @x", 1},
	{"shared store past the end", 1, 1, func(k *dsl.Kernel) {
		s := dsl.Shared[dsl.U32](k, "s", 31)
		s.Store(k.Lane(), k.Lane())
		u32Global(k).Store(k.Lane(), s.Load(k.Lane()))
	}, interp.OutOfBounds, "index 31 of @s", 1},
	{"vector load off its alignment", 1, 1, func(k *dsl.Kernel) {
		x := u32Global(k)
		x.Store(k.Lane(), x.LoadN(k.Lane().AddC(1), 2)[0])
	}, interp.Misaligned, "access of 8 bytes to element 1 of @x, at byte 4", 1},
	{"shared memory read before it is written", 1, 1, func(k *dsl.Kernel) {
		s := dsl.Shared[dsl.U32](k, "s", 64)
		s.Store(k.Lane(), k.Lane())
		k.SyncWarp()
		u32Global(k).Store(k.Lane(), s.Load(k.Lane().AddC(1)))
	}, interp.Uninitialised, "reads element 32 of @s, which nobody has written", 1},
	{"division by zero", 1, 1, func(k *dsl.Kernel) {
		u32Global(k).Store(k.Lane(), k.U32(7).Div(k.Lane()))
	}, interp.DivisionByZero, "divides 7 by 0", 1},
	{"assertion", 1, 1, func(k *dsl.Kernel) { k.Assert(k.Lane().LtC(31), "lane too high") }, interp.AssertFailed,
		"lane too high", 1},
	{"uniform over the warp", 1, 1, func(k *dsl.Kernel) {
		u32Global(k).Store(k.Lane(), dsl.Uniform(k.Lane(), ir.Warp))
	}, interp.NotUniform, "lane 0 has 0 and lane 1 has 1", 1},
	{"uniform over the CTA", 2, 1, func(k *dsl.Kernel) {
		u32Global(k).Store(k.Tid(), dsl.Uniform(k.Warp(), ir.CTA))
	}, interp.NotUniform, "the value is said to be the same over the cta", 2},
	{"uniform over the grid", 1, 2, func(k *dsl.Kernel) {
		u32Global(k).Store(k.CTA().MulC(32).Add(k.Lane()), dsl.Uniform(k.CTA(), ir.GPU))
	}, interp.NotUniform, "over the gpu", 2},
	{"named barriers with two counts", 3, 1, func(k *dsl.Kernel) {
		k.Roles(dsl.Role{Name: "a", First: 0, End: 1, Body: func() { k.NamedBarrier(1, 2) }},
			dsl.Role{Name: "b", First: 1, End: 3, Body: func() { k.NamedBarrier(1, 3) }})
	}, interp.BarrierCount, "barrier 1 is used with", 2},
	{"barrier one warp never reaches", 2, 1, func(k *dsl.Kernel) {
		k.Roles(dsl.Role{Name: "a", First: 0, End: 1, Body: func() { k.NamedBarrier(1, 2) }})
	}, interp.Deadlock, "waits at barrier 1: 32 of 64 threads have arrived", 1},
	{"wait for a word nobody writes", 1, 1, func(k *dsl.Kernel) {
		dsl.WaitUntil(u32Global(k), dsl.At(3), dsl.GE, k.U32(5), acq)
	}, interp.Deadlock, "wait for element 3 of @x, which is 0, to be at least 5", 1},
	{"endless loop", 1, 1, func(k *dsl.Kernel) {
		x := u32Global(k)
		k.For(k.U32(0), k.U32(1<<31), func(i dsl.Val[dsl.U32]) { x.Store(k.Lane(), i) })
	}, interp.Livelock, "not finished after 1000000 steps", 1},
	{"loop counter that wraps before its bound", 1, 1, func(k *dsl.Kernel) {
		x := u32Global(k)
		k.ForStep(k.U32(1<<32-40), k.Lane().Add(k.U32(1<<32-32)), 16, func(i dsl.Val[dsl.U32]) { x.Store(k.Lane(), i) })
	}, interp.LoopOverflow, "the counter is 4294967288 and steps by 16, the bound is 4294967289", 1},
	{"sine of an angle that was not reduced", 1, 1, func(k *dsl.Kernel) {
		u32Global(k).Store(k.Lane(), dsl.Bits[dsl.U32](dsl.Sin(dsl.Cast[dsl.F32](k.Lane()))))
	}, interp.ArgumentRange, "the angle is 4, want one in [−π, π]", 1},
	{"cosine of an angle that was not reduced", 1, 1, func(k *dsl.Kernel) {
		u32Global(k).Store(k.Lane(), dsl.Bits[dsl.U32](dsl.Cos(dsl.Cast[dsl.F32](k.Lane()).Mul(k.F32(-1)))))
	}, interp.ArgumentRange, "the angle is -4", 1},
	{"bulk copy of 0 bytes", 1, 1, func(k *dsl.Kernel) { copyInDynamic(k, 0, 0) }, interp.CopyRules,
		"bulk copy of 0 bytes, want a positive multiple of 16", 1},
	{"bulk copy of 20 bytes", 1, 1, func(k *dsl.Kernel) { copyInDynamic(k, 20, 20) }, interp.CopyRules,
		"bulk copy of 20 bytes, want a positive multiple of 16", 1},
	{"bulk copy past the end", 1, 1, func(k *dsl.Kernel) { copyInDynamic(k, 272, 272) }, interp.OutOfBounds,
		"bulk copy of 272 bytes at element 0 of @dst", 1},
	{"nobody waits for a copy", 1, 1, func(k *dsl.Kernel) { copyIn(k, 256, 256, false) }, interp.ExitPending, "", 1},
	{"more bytes expected than copied", 1, 1, func(k *dsl.Kernel) { copyIn(k, 256, 272, true) }, interp.Deadlock,
		"phase 0 has 1 of 1 arrivals and 16 bytes outstanding", 1},
	{"fewer bytes expected than copied", 1, 1, func(k *dsl.Kernel) { copyIn(k, 256, 240, true) }, interp.Deadlock,
		"phase 0 has 1 of 1 arrivals and -16 bytes outstanding", 1},
	{"too many bytes expected", 1, 1, func(k *dsl.Kernel) {
		bar := dsl.NewMBars(k, "bar", 1)
		k.If(k.Lane().EqC(0), func() {
			bar.Init(dsl.At(0), k.U32(2))
			bar.ArriveExpect(dsl.At(0), k.U32(1<<19))
			bar.ArriveExpect(dsl.At(0), k.U32(1<<19))
		})
	}, interp.TxOverflow, "expects 1048576 bytes in one phase", 1},
	{"mbarrier used before it is initialised", 1, 1, func(k *dsl.Kernel) {
		bar := dsl.NewMBars(k, "bar", 2)
		k.If(k.Lane().EqC(0), func() { bar.Init(dsl.At(0), k.U32(1)) })
		bar.Wait(dsl.At(1), k.U32(1))
	}, interp.MBarrierMisuse, "used before it is initialised", 1},
	{"mbarrier initialised twice", 1, 1, func(k *dsl.Kernel) {
		bar := dsl.NewMBars(k, "bar", 1)
		bar.Init(dsl.At(0), k.U32(1))
	}, interp.MBarrierMisuse, "initialised a second time", 2},
	{"mbarrier initialisation not ordered", 2, 1, func(k *dsl.Kernel) {
		bar := dsl.NewMBars(k, "bar", 1)
		k.IfElse(k.Warp().EqC(0), func() { k.If(k.Lane().EqC(0), func() { bar.Init(dsl.At(0), k.U32(1)) }) },
			func() { bar.Wait(dsl.At(0), k.U32(1)) })
	}, interp.NoFault, "mbarrier 0 of @bar", 1},
	{"arrival in a phase after one nobody waited for", 1, 1, func(k *dsl.Kernel) {
		bar := dsl.NewMBars(k, "bar", 1)
		k.If(k.Lane().EqC(0), func() {
			bar.Init(dsl.At(0), k.U32(1))
			bar.Arrive(dsl.At(0))
			bar.Arrive(dsl.At(0))
		})
	}, interp.PhaseSkipped, "arrives in phase 1 of mbarrier 0 of @bar, but nobody has waited for phase 0", 2},
	{"arrival beyond the count", 1, 1, func(k *dsl.Kernel) {
		bar := dsl.NewMBars(k, "bar", 1)
		k.If(k.Lane().EqC(0), func() {
			bar.Init(dsl.At(0), k.U32(1))
			bar.ArriveExpect(dsl.At(0), k.U32(16))
			bar.Arrive(dsl.At(0))
		})
	}, interp.ArrivalOverflow, "has had 1 of the 1 arrivals of phase 0 (16 bytes are outstanding), 1 more are too many",
		2},
	{"more arrivals at once than are left", 1, 1, func(k *dsl.Kernel) {
		bar := dsl.NewMBars(k, "bar", 1)
		k.If(k.Lane().EqC(0), func() {
			bar.Init(dsl.At(0), k.U32(3))
			bar.Arrive(dsl.At(0))
			bar.ArriveN(dsl.At(0), k.U32(3))
		})
	}, interp.ArrivalOverflow, "has had 1 of the 3 arrivals of phase 0 (0 bytes are outstanding), 3 more are too many", 2},
	{"no arrival", 1, 1, func(k *dsl.Kernel) {
		bar := dsl.NewMBars(k, "bar", 1)
		k.If(k.Lane().EqC(0), func() {
			bar.Init(dsl.At(0), k.U32(3))
			bar.ArriveN(dsl.At(0), k.Lane())
		})
	}, interp.MBarrierMisuse, "arrives 0 times on mbarrier 0 of @bar, want 1 to", 1},
	{"phase left in the middle", 1, 1, func(k *dsl.Kernel) {
		bar := dsl.NewMBars(k, "bar", 1)
		k.If(k.Lane().EqC(0), func() {
			bar.Init(dsl.At(0), k.U32(2))
			bar.Arrive(dsl.At(0))
		})
	}, interp.ExitPending, "in the middle of phase 0, after 1 of 2 arrivals", 1},
	{"named arrival nobody takes", 2, 1, func(k *dsl.Kernel) {
		k.Roles(dsl.Role{Name: "a", First: 0, End: 1, Body: func() { k.NamedArrive(1, 2) }})
	}, interp.ExitPending, "32 of 64 threads arrived at barrier 1", 1},
}

// copyInDynamic is copyIn with a size the verifier cannot see.
func copyInDynamic(k *dsl.Kernel, bytes, expect int) {
	src := dsl.Global[dsl.U32](k, "src", 64, dsl.ReadOnly())
	dst, bar := dsl.Shared[dsl.U32](k, "dst", 64), dsl.NewMBars(k, "bar", 1)
	k.If(k.Tid().EqC(0), func() {
		bar.Init(dsl.At(0), k.U32(1))
		k.FenceMBarInit()
		n := k.Tid().AddC(bytes)
		bar.ArriveExpect(dsl.At(0), n)
		dsl.BulkCopy(dst, dsl.At(0), src, dsl.At(0), n, bar, dsl.At(0))
	})
	bar.Wait(dsl.At(0), k.U32(0))
}

// A copy that completes late is read while it is under way.
func TestBytesReadWhileTheyAreCopiedAreReported(t *testing.T) {
	k := dsl.New("test", dsl.Options{Warps: 1, Grid: 1, SharedLimit: 1 << 16})
	dst, bar := copyIn(k, 256, 256, false)
	v := dst.Load(k.Lane())
	bar.Wait(dsl.At(0), k.U32(0))
	u32Global(k).Store(k.Lane(), v)
	built, err := k.Finish()
	require.NoError(t, err)
	f := faultUnder(t, load(t, built), interp.PolicyLateCopy, 20)
	require.Equal(t, interp.DataRace, f.Kind)
	require.Contains(t, f.Error(),
		"this read and an earlier bulk-copy write are not ordered by happens-before; the copy is still in flight")
	require.Len(t, f.Sides, 2)
}

func TestFaultsAreReported(t *testing.T) {
	for _, tt := range faults {
		t.Run(tt.name, func(t *testing.T) {
			k := dsl.New("test", dsl.Options{Warps: tt.warps, Grid: tt.grid, SharedLimit: 1 << 16})
			tt.body(k)
			built, err := k.Finish()
			require.NoError(t, err)
			f := faultIn(t, load(t, built), 20)
			if tt.kind != interp.NoFault {
				require.Equal(t, tt.kind, f.Kind, f.Error())
			}
			require.Contains(t, f.Error(), tt.text)
			require.GreaterOrEqual(t, len(f.Sides), tt.sides, f.Error())
			for _, s := range f.Sides {
				require.Contains(t, s.Pos.Line, "faults_test.go", f.Error())
			}
			t.Log(f)
		})
	}
}
