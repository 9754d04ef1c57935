package ir_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
)

// scopeOf builds a kernel around make and gives the scope of the value named "x".
func scopeOf(t *testing.T, warps int, make func(k kern) u32) ir.Scope {
	t.Helper()
	k := dsl.New("uniform", dsl.Options{Warps: warps})
	sink(k, make(k).Named("x"))
	p, err := k.Finish()
	require.NoError(t, err)
	u, scope, found := ir.Analyze(p), ir.Thread, false
	p.Instrs(func(in *ir.Instr) {
		for _, r := range in.Res {
			if r.Hint == "x" {
				scope, found = u.Of(r), true
			}
		}
	})
	require.True(t, found)
	return scope
}

// asU32 makes a predicate a number.
func asU32(k kern, p dsl.Pred) u32 { return dsl.Select(p, k.U32(1), k.U32(0)) }

func TestUniformityOfSources(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(k kern) u32
		want ir.Scope
	}{
		{"param", func(k kern) u32 { return dsl.Scalar[dsl.U32](k, "n", "").AddC(1) }, ir.GPU},
		{"grid", func(k kern) u32 { return k.Grid().AddC(1) }, ir.GPU},
		{"cta", func(k kern) u32 { return k.CTA().Add(k.Grid()) }, ir.CTA},
		{"warp", func(k kern) u32 { return k.Warp().Mul(k.CTA()) }, ir.Warp},
		{"lane", func(k kern) u32 { return k.Lane().Add(k.CTA()) }, ir.Thread},
		{"tid", func(k kern) u32 { return k.Tid() }, ir.Thread},
		{"smid", func(k kern) u32 { return k.SMID() }, ir.Thread},
		{"clock", func(k kern) u32 { return dsl.Cast[dsl.U32](k.Clock()) }, ir.Thread},
		{"load", func(k kern) u32 { return words(k).Load(nil) }, ir.Thread},
		{"atomic", func(k kern) u32 {
			return dsl.AtomicAdd(words(k), nil, k.U32(1), dsl.Relaxed(dsl.GPUScope))
		}, ir.Thread},
		{"select by lane", func(k kern) u32 { return asU32(k, k.Lane().EqC(0)) }, ir.Thread},
		{"select by cta", func(k kern) u32 { return asU32(k, k.CTA().EqC(0)) }, ir.CTA},
		{"asserted of a load", func(k kern) u32 { return dsl.Uniform(words(k).Load(nil), dsl.CTAScope) }, ir.CTA},
		{"asserted narrower than known", func(k kern) u32 { return dsl.Uniform(k.Grid(), dsl.WarpScope) }, ir.GPU},
		{"asserted predicate", func(k kern) u32 { return asU32(k, dsl.UniformPred(k.Tid().LtC(99), dsl.CTAScope)) }, ir.CTA},
		{"shuffle from lane 0", func(k kern) u32 { return dsl.Shfl(k.Lane(), k.U32(0)) }, ir.Warp},
		{"shuffle from the warp's lane", func(k kern) u32 { return dsl.Shfl(k.Lane(), k.Warp()) }, ir.Warp},
		{"shuffle from lanes apart", func(k kern) u32 { return dsl.Shfl(k.Lane(), k.Lane()) }, ir.Thread},
		{"shuffle of the same", func(k kern) u32 { return dsl.ShflXor(k.CTA(), 1) }, ir.CTA},
		{"shuffle of the warp's", func(k kern) u32 { return dsl.ShflUp(k.Warp(), 1) }, ir.Warp},
		{"butterfly", func(k kern) u32 { return dsl.WarpSum(k.Lane()) }, ir.Thread},
		{"vote", func(k kern) u32 { return asU32(k, dsl.Any(k.Lane().EqC(3))) }, ir.Warp},
		{"vote of the same", func(k kern) u32 { return asU32(k, dsl.All(k.CTA().EqC(3))) }, ir.CTA},
		{"ballot", func(k kern) u32 { return dsl.Ballot(k.Lane().LtC(3)) }, ir.Warp},
	} {
		require.Equal(t, c.want, scopeOf(t, 4, c.make), c.name)
	}
	require.Equal(t, ir.CTA, scopeOf(t, 1, func(k kern) u32 { return k.Warp() }), "one warp is the CTA")
	require.Equal(t, ir.CTA, scopeOf(t, 1, func(k kern) u32 { return dsl.Ballot(k.Lane().LtC(3)) }), "one warp is the CTA")
}

func TestUniformityOfVariablesAndLoops(t *testing.T) {
	counter := func(k kern) *dsl.Var[dsl.U32] { return dsl.NewVar(k.U32(0), "c") }
	for _, c := range []struct {
		name string
		make func(k kern) u32
		want ir.Scope
	}{
		{"never set", func(k kern) u32 { return counter(k).Get() }, ir.GPU},
		{"set to the lane later", func(k kern) u32 {
			c := counter(k)
			before := c.Get()
			c.Set(k.Lane())
			return before
		}, ir.Thread},
		{"counted in a uniform loop", func(k kern) u32 {
			c := counter(k)
			k.For(k.U32(0), k.CTA(), func(u32) { c.Set(c.Get().AddC(1).AndC(3)) })
			return c.Get()
		}, ir.CTA},
		{"counted in a warp's loop", func(k kern) u32 {
			c := counter(k)
			k.For(k.U32(0), k.Warp(), func(u32) { c.Set(c.Get().AddC(1)) })
			return c.Get()
		}, ir.Warp},
		{"set in a lane's branch", func(k kern) u32 {
			c := counter(k)
			k.If(k.Lane().EqC(0), func() { c.Set(k.U32(1)) })
			return c.Get()
		}, ir.Thread},
		{"set in a warp's branch", func(k kern) u32 {
			c := counter(k)
			k.If(k.Warp().EqC(0), func() { c.Set(k.U32(1)) })
			return c.Get()
		}, ir.Warp},
		{"set in a lane's else", func(k kern) u32 {
			c := counter(k)
			k.IfElse(k.Lane().EqC(0), func() { k.Nanosleep(k.U32(1)) }, func() { c.Set(k.U32(1)) })
			return c.Get()
		}, ir.Thread},
		{"declared and set in a lane's branch", func(k kern) u32 {
			k.If(k.Lane().LtC(4), func() {
				c := counter(k)
				k.If(k.CTA().EqC(0), func() { c.Set(k.U32(1)) })
				k.Nanosleep(c.Get().Named("x"))
			})
			return k.U32(0)
		}, ir.CTA},
		{"a loop's index", func(k kern) u32 {
			k.For(k.CTA(), k.Grid(), func(i u32) { k.Nanosleep(i.AddC(1).Named("x")) })
			return k.U32(0)
		}, ir.CTA},
		{"a loop's index in a lane's branch", func(k kern) u32 {
			k.If(k.Lane().LtC(4), func() {
				k.For(k.U32(0), k.Grid(), func(i u32) { k.Nanosleep(i.AddC(1).Named("x")) })
			})
			return k.U32(0)
		}, ir.Thread},
		{"set in a role", func(k kern) u32 {
			c := counter(k)
			inRole(k, 0, 2, func() { c.Set(k.U32(1)) })
			return c.Get()
		}, ir.Warp},
		{"a chain of variables turned back by a loop", func(k kern) u32 {
			a, b, c := counter(k), counter(k), counter(k)
			k.For(k.U32(0), k.U32(9), func(u32) {
				a.Set(b.Get())
				b.Set(c.Get())
				c.Set(k.Lane())
			})
			return a.Get()
		}, ir.Thread},
	} {
		require.Equal(t, c.want, scopeOf(t, 4, c.make), c.name)
	}
}

// TestUniformityOfVariablesAcrossRoles sets a variable declared before the
// roles in warps 0..2 and reads it in other ranges.
func TestUniformityOfVariablesAcrossRoles(t *testing.T) {
	for _, c := range []struct {
		name       string
		first, end int
		together   bool // the reading role stands beside the setting one
		want       ir.Scope
	}{
		{"by the same warps later", 0, 2, false, ir.CTA},
		{"by some of them", 1, 2, false, ir.CTA},
		{"by others", 2, 4, true, ir.GPU},
		{"by them and others", 1, 4, false, ir.Warp},
	} {
		got := scopeOf(t, 4, func(k kern) u32 {
			x := dsl.NewVar(k.U32(0), "v")
			set := dsl.Role{Name: "set", First: 0, End: 2, Body: func() {
				k.For(k.U32(0), k.CTA(), func(u32) { x.Set(x.Get().AddC(1)) })
			}}
			get := dsl.Role{Name: "get", First: c.first, End: c.end, Body: func() { k.Nanosleep(x.Get().Named("x")) }}
			if c.together {
				k.Roles(set, get)
			} else {
				k.Roles(set)
				k.Roles(get)
			}
			return k.U32(0)
		})
		require.Equal(t, c.want, got, c.name)
	}
}

// accepted are correct templates a strict verifier could wrongly refuse.
var accepted = []struct {
	name  string
	build func(kern)
}{
	{"one lane arrives", func(k kern) {
		bars := dsl.NewMBars(k, "bars", 2)
		k.If(k.Lane().EqC(0), func() { bars.Init(dsl.At(0), k.U32(1)); bars.Arrive(dsl.At(0)) })
		bars.Wait(dsl.At(0), k.U32(0))
	}},
	{"a loop of asserted length around a barrier", func(k kern) {
		plan := words(k)
		lo := dsl.Uniform(plan.Load(k.CTA()), dsl.CTAScope)
		hi := dsl.Uniform(plan.Load(k.CTA().AddC(1)), dsl.CTAScope)
		k.For(lo, hi, func(u32) { k.Barrier() })
	}},
	{"stage and parity counters of a role", func(k kern) {
		full := dsl.NewMBars(k, "full", 4)
		k.If(k.Tid().LtC(4), func() { full.Init(k.Tid(), k.U32(1)) })
		inRole(k, 0, 3, func() {
			stage, parity := dsl.NewVar(k.U32(0), "stage"), dsl.NewVar(k.U32(0), "parity")
			k.For(k.U32(0), dsl.Scalar[dsl.U32](k, "n", ""), func(u32) {
				full.Wait(stage.Get(), parity.Get())
				next := stage.Get().AddC(1)
				wraps := next.EqC(4)
				stage.Set(dsl.Select(wraps, k.U32(0), next))
				k.If(wraps, func() { parity.Set(parity.Get().XorC(1)) })
				k.If(parity.Get().EqC(1), func() { k.NamedBarrier(1, 3) })
			})
		})
	}},
	{"a counter declared before the roles that each count", func(k kern) {
		stage := dsl.NewVar(k.U32(0), "stage")
		turn := func(id, warps int) func() {
			return func() {
				k.For(k.U32(0), k.CTA(), func(u32) { stage.Set(stage.Get().AddC(1).AndC(3)) })
				k.If(stage.Get().EqC(0), func() { k.NamedBarrier(id, warps) })
			}
		}
		k.Roles(dsl.Role{Name: "producer", First: 3, End: 4, Body: turn(1, 1)},
			dsl.Role{Name: "consumer", First: 0, End: 3, Body: turn(2, 3)})
	}},
	{"a collective of one warp", func(k kern) {
		k.If(k.Warp().EqC(0), func() { sink(k, dsl.WarpSum(k.Lane())) })
	}},
	{"a named barrier of a role of one warp", func(k kern) {
		n := dsl.Shfl(words(k).Load(k.Lane()), k.U32(0))
		inRole(k, 3, 4, func() { k.For(k.U32(0), dsl.Uniform(n, dsl.WarpScope), func(u32) { k.NamedArrive(2, 4) }) })
	}},
	{"values of a region used after it", func(k kern) {
		var x u32
		k.Region("first", func() { x = k.Lane().AddC(1) })
		sink(k, x)
	}},
	{"an unused uniform, parameter, load and atomic", func(k kern) {
		dsl.Uniform(dsl.Scalar[dsl.U32](k, "n", ""), dsl.CTAScope)
		words(k).Load(nil)
		dsl.AtomicAdd(dsl.Global[dsl.U32](k, "count", 1), nil, k.U32(1), dsl.Relaxed(dsl.GPUScope))
	}},
	{"one of two results used", func(k kern) {
		lo, _ := dsl.Unpack[dsl.BF16x2](dsl.Global[dsl.BF16x2](k, "x", 8).Load(nil))
		sink(k, dsl.Bits[dsl.U32](lo))
	}},
	{"a branch inside a divergent branch, then a barrier", func(k kern) {
		k.If(k.Lane().LtC(7), func() { k.If(k.Lane().EqC(0), func() { sink(k, k.Lane()) }) })
		k.Barrier()
		k.SyncWarp()
	}},
}

func TestVerifyAcceptsCommonTemplates(t *testing.T) {
	for _, a := range accepted {
		k := dsl.New("good", dsl.Options{Warps: 4, SharedLimit: 2048})
		a.build(k)
		_, err := k.Finish()
		require.NoError(t, err, a.name)
	}
}

// large is a kernel of about n instructions in loops and branches.
func large(t testing.TB, n int) *ir.Kernel {
	k := dsl.New("large", dsl.Options{Warps: 8, SharedLimit: 1 << 16})
	x := dsl.Shared[dsl.F32](k, "x", 4096)
	for range n / 40 {
		acc := dsl.NewVar(k.F32(0), "acc")
		k.For(k.U32(0), k.U32(16), func(i u32) {
			for range 8 {
				acc.Set(dsl.FMA(x.Load(i), x.Load(k.Lane()), acc.Get()))
			}
		})
		k.If(k.Lane().EqC(0), func() { x.Store(k.Warp(), acc.Get()) })
		k.Barrier()
	}
	p, err := k.Finish()
	require.NoError(t, err)
	return p
}

func TestVerifyIsFast(t *testing.T) {
	p := large(t, 20000)
	require.Greater(t, ir.Stats(p).Instrs, 20000)
	best := time.Hour
	for range 5 {
		start := time.Now()
		require.NoError(t, ir.Verify(p))
		best = min(best, time.Since(start))
	}
	require.Less(t, best, slowdown*100*time.Millisecond)
}

func BenchmarkVerify20k(b *testing.B) {
	p := large(b, 20000)
	for b.Loop() {
		if err := ir.Verify(p); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBuild20k(b *testing.B) {
	for b.Loop() {
		large(b, 20000)
	}
}
