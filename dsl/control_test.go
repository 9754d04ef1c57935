package dsl_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
)

func TestIfElse(t *testing.T) {
	require.Equal(t, text("v0:u32 = lane", "v1:pred = lt v0, 4", "if v1 {", "nanosleep 1", "} else {", "nanosleep 2", "}"),
		body(t, func(k *dsl.Kernel) {
			k.IfElse(k.Lane().LtC(4), func() { k.Nanosleep(k.U32(1)) }, func() { k.Nanosleep(k.U32(2)) })
		}))
}

func TestIfWithAConstantDecidesAtGoTime(t *testing.T) {
	require.Equal(t, text("nanosleep 1", "nanosleep 3"), body(t, func(k *dsl.Kernel) {
		k.If(k.Bool(true), func() { k.Nanosleep(k.U32(1)) })
		k.If(k.Bool(false), func() { k.Nanosleep(k.U32(2)) })
		k.IfElse(k.U32(1).EqC(2), func() { k.Nanosleep(k.U32(2)) }, func() { k.Nanosleep(k.U32(3)) })
	}))
}

func TestFor(t *testing.T) {
	require.Equal(t, text("v0:u32 = cta", "for v1.i:u32 in 2..v0 step 1 {", "nanosleep v1", "}",
		"for v2:u32 in v0..64 step 8 unroll 4 {", "nanosleep v2", "}"), body(t, func(k *dsl.Kernel) {
		n := k.CTA()
		k.For(k.U32(2), n, func(i u32) { k.Nanosleep(i.Named("i")) })
		k.ForStep(n, k.U32(64), 8, func(i u32) { k.Nanosleep(i) }, dsl.Unroll(4))
	}))
}

func TestForOfNothingEmitsNothing(t *testing.T) {
	require.Empty(t, body(t, func(k *dsl.Kernel) {
		k.For(k.U32(4), k.U32(4), func(u32) { t.Error("the body is built") })
		k.For(k.U32(5), k.U32(4), func(u32) { t.Error("the body is built") })
	}))
}

func TestRolesAndRegionsNest(t *testing.T) {
	require.Equal(t, text(`region "step" {`, "roles {", "producer warps 3..4 {", "nanosleep 1", "}",
		"consumer warps 0..3 {", `region "sum" {`, "nanosleep 2", "}", "}", "}", "}"), body(t, func(k *dsl.Kernel) {
		k.Region("step", func() {
			k.Roles(
				dsl.Role{Name: "producer", First: 3, End: 4, Body: func() { k.Nanosleep(k.U32(1)) }},
				dsl.Role{Name: "consumer", First: 0, End: 3, Body: func() {
					k.Region("sum", func() { k.Nanosleep(k.U32(2)) })
				}},
			)
		})
	}))
}

func TestControlRefusesZeroValuesAndNilBodies(t *testing.T) {
	require.Equal(t, text(
		"if: the predicate is a zero Pred or the body is nil", "if: the predicate is a zero Pred or the body is nil",
		"for: a bound is a zero Val or the body is nil", "for: a bound is a zero Val or the body is nil",
		"for: the step is -1, want 1 to 2^32-1", "role r: the body is nil",
		"role r: has warps 0..9, want a range that is not empty within 0..4",
	), mistakes(t, func(k *dsl.Kernel) {
		k.If(dsl.Pred{}, func() {})
		k.If(k.Bool(true), nil)
		k.For(u32{}, k.U32(1), func(u32) {})
		k.For(k.U32(0), k.U32(1), nil)
		k.ForStep(k.U32(0), k.U32(1), -1, func(u32) {})
		k.Roles(dsl.Role{Name: "r", First: 0, End: 9})
	}))
}

func TestVariablesAreReadWhereGetStands(t *testing.T) {
	require.Equal(t, text("%x0:u32 = var 1", "v0:u32 = get %x0", "v1:u32 = lane", "set %x0, v1", "v2:u32 = get %x0",
		"v3:u32 = add v0, v2", "st.u32 @out[0], v3"), body(t, func(k *dsl.Kernel) {
		x := dsl.NewVar(k.U32(1), "x")
		before := x.Get()
		x.Set(k.Lane())
		out(k, before.Add(x.Get()))
	}))
}

func TestArraysAreOneVariableAnElement(t *testing.T) {
	p := finish(t, func(k *dsl.Kernel) {
		xs := dsl.NewArray(k.F32(0), 3, "acc")
		xs[2].Set(xs[1].Get())
		require.Len(t, xs, 3)
	})
	require.Len(t, p.Vars, 3)
	require.Equal(t, "%acc2", p.Vars[2].String())
}

func TestUniformAndAssert(t *testing.T) {
	require.Equal(t, text("v0:u32 = lane", "v1:u32 = uniform.cta v0", "v2:pred = eq v1, 3", "v3:pred = uniform.warp v2",
		`assert v3 "three"`, `assert false "never"`), body(t, func(k *dsl.Kernel) {
		v := dsl.Uniform(k.Lane(), dsl.CTAScope)
		k.Assert(dsl.UniformPred(v.EqC(3), dsl.WarpScope), "three")
		k.Assert(k.Bool(true), "always: emits nothing")
		k.Assert(k.Bool(false), "never")
		require.Equal(t, int64(0), dsl.Global[dsl.U32](k, "y", 0).Len())
	}))
	require.Equal(t, "nanosleep 3", body(t, func(k *dsl.Kernel) { k.Nanosleep(dsl.Uniform(k.U32(3), dsl.GPUScope)) }),
		"constants are uniform")
	require.Equal(t, text("uniform: asserts uniformity over sys, want warp, cta or gpu"),
		mistakes(t, func(k *dsl.Kernel) { dsl.Uniform(k.Lane(), dsl.SysScope) }))
}

func TestSynchronisation(t *testing.T) {
	require.Equal(t, text("bar.cta", "bar.sync id=3 n=128", "bar.arrive id=4 n=128", "syncwarp", "fence.acq_rel.gpu",
		"fence.sc.sys", "fence.proxy.async", "fence.proxy.async.shared", "fence.proxy.async.global", "fence.mbarrier_init"),
		body(t, func(k *dsl.Kernel) {
			k.Barrier()
			k.NamedBarrier(3, 4)
			k.NamedArrive(4, 4)
			k.SyncWarp()
			k.Fence(dsl.GPUScope)
			k.FenceSC(dsl.SysScope)
			k.FenceProxyAsync()
			k.FenceProxyAsyncShared()
			k.FenceProxyAsyncGlobal()
			k.FenceMBarInit()
		}))
	require.Equal(t, text("bar.sync: has id 16 and 64 threads, want id 1 to 15 and a positive multiple of 32",
		"fence: has order acq_rel and scope warp, want acq_rel or sc, and cta or wider"), mistakes(t, func(k *dsl.Kernel) {
		k.NamedBarrier(16, 2)
		k.Fence(dsl.WarpScope)
	}))
}

func TestMBarriersAndBulkCopies(t *testing.T) {
	require.Equal(t, text("v0:u32 = lane", "mbar.init @full[v0], 1", "mbar.expect @full[0], 256", "mbar.arrive @full[0]",
		"wait.mbar @full[1], 0", "v1:pred = wait.mbar @full[1], 1 abort=@stop[0]", `assert v1 "stopped"`,
		"bulk.g2s @ring[64], @w[v0], @full[0], 256 hint=evict_first"), body(t, func(k *dsl.Kernel) {
		full := dsl.NewMBars(k, "full", 2, dsl.Align(16))
		ring, w := dsl.Shared[dsl.BF16](k, "ring", 256), dsl.Global[dsl.B128](k, "w", 0)
		lane := k.Lane()
		full.Init(lane, k.U32(1))
		full.ArriveExpect(dsl.At(0), k.U32(256))
		full.Arrive(dsl.At(0))
		full.Wait(dsl.At(1), k.U32(0))
		k.Assert(full.WaitOr(dsl.At(1), k.U32(1), dsl.Global[dsl.U32](k, "stop", 1), nil), "stopped")
		dsl.BulkCopy(ring, dsl.At(64), w, lane, k.U32(256), full, dsl.At(0), dsl.CacheHint(ir.EvictFirst))
	}))
}

func TestWaits(t *testing.T) {
	require.Equal(t, text("wait.ge.acquire.gpu @flag[0], 7", "v0:pred = wait.eq.relaxed.sys @flag[1], 0 abort=@stop[0]",
		`assert v0 "stopped"`, "wait.ne.volatile @flag[0], 7"), body(t, func(k *dsl.Kernel) {
		flag, stop := dsl.Global[dsl.U32](k, "flag", 2), dsl.Global[dsl.U32](k, "stop", 1)
		dsl.WaitUntil(flag, dsl.At(0), dsl.GE, k.U32(7), dsl.Acquire(dsl.GPUScope))
		k.Assert(dsl.WaitUntilOr(flag, dsl.At(1), dsl.EQ, k.U32(0), stop, nil, dsl.Relaxed(dsl.SysScope)), "stopped")
		dsl.WaitUntil(flag, nil, dsl.NE, k.U32(7), dsl.Volatile())
	}))
	require.Equal(t, text("wait: has order weak, want relaxed, acquire or volatile"), mistakes(t, func(k *dsl.Kernel) {
		dsl.WaitUntil(dsl.Global[dsl.U32](k, "flag", 2), nil, dsl.GE, k.U32(7))
	}))
}
