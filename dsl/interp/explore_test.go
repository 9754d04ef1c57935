package interp_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/stretchr/testify/require"
)

// explored explores a program and keeps the results of its executions.
func explored(t testing.TB, p *interp.Program, b interp.Bounds) (*interp.Exploration, map[[4]uint32]int, error) {
	t.Helper()
	got := map[[4]uint32]int{}
	var m *interp.Memory
	note := func() {
		if m != nil {
			r := u32s(m.Bytes("r"))
			got[[4]uint32{r[0] + 10*r[1], r[4] + 10*r[5], r[8] + 10*r[9], r[12] + 10*r[13]}]++
		}
	}
	x, err := p.Explore(func() *interp.Memory { note(); m = bufs(p); return m }, interp.Options{}, b)
	note()
	var f *interp.Fault
	if !errors.As(err, &f) {
		require.NoError(t, err)
	}
	return x, got, err
}

// Exploration sees every outcome that schedules drawn at random show, and no forbidden one.
func TestExplorationOfLitmusTests(t *testing.T) {
	for _, tt := range litmusTests() {
		t.Run(tt.name, func(t *testing.T) {
			p := litmusProgram(t, max(len(tt.bodies), 2), false, tt.bodies)
			x, got, err := explored(t, p, interp.Bounds{Stale: 100})
			require.NoError(t, err)
			require.True(t, x.Complete)
			require.Equal(t, tt.allowed, got[tt.outcome] > 0, "%v", got)
			drawn, _ := outcomes(t, p, litmusSeeds)
			for o := range drawn {
				require.NotZero(t, got[o], "%v is drawn, and not explored: %v", o, got)
			}
			t.Logf("%d executions, %d cut, %d transitions, %d outcomes (drawn: %d)", x.Executions, x.Cut, x.Transitions,
				len(got), len(drawn))
		})
	}
}

// Classes of executions that are known by counting.
func TestExplorationCountsClasses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		bodies []func(*lit)
		want   int
	}{
		{"three writes of a word", []func(*lit){
			func(l *lit) { l.st(0, 1, rlx) }, func(l *lit) { l.st(0, 2, rlx) }, func(l *lit) { l.st(0, 3, rlx) },
		}, 6},
		{"three writes of three words", []func(*lit){
			func(l *lit) { l.st(0, 1, rlx) }, func(l *lit) { l.st(1, 2, rlx) }, func(l *lit) { l.st(2, 3, rlx) },
		}, 1},
		{"four adds", []func(*lit){
			func(l *lit) { dsl.ReduceAdd(l.x, dsl.At(0), l.k.U32(1), rlx) },
			func(l *lit) { dsl.ReduceAdd(l.x, dsl.At(0), l.k.U32(1), rlx) },
			func(l *lit) { dsl.ReduceAdd(l.x, dsl.At(0), l.k.U32(1), rlx) },
			func(l *lit) { dsl.ReduceAdd(l.x, dsl.At(0), l.k.U32(1), rlx) },
		}, 1},
		{"a write and three reads", []func(*lit){
			func(l *lit) { l.st(0, 1, rlx) }, func(l *lit) { l.ld(0, rlx) }, func(l *lit) { l.ld(0, rlx) },
			func(l *lit) { l.ld(0, rlx) },
		}, 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x, _, err := explored(t, litmusProgram(t, len(tt.bodies), false, tt.bodies), interp.Bounds{})
			require.NoError(t, err)
			require.True(t, x.Complete)
			require.Equal(t, tt.want, x.Executions, "%+v", x)
		})
	}
}

// mixed is a kernel of two CTAs of two warps whose synchronisation is drawn: atomics, polls, barriers, mbarriers,
// copies.
func mixed(t *testing.T, rng *rand.Rand) *interp.Program {
	k := dsl.New("mixed", dsl.Options{Warps: 2, Grid: 2, SharedLimit: 4096})
	g := dsl.Global[dsl.U32](k, "g", 4)
	in := dsl.Global[dsl.B128](k, "in", 4, dsl.ReadOnly())
	to := dsl.Shared[dsl.B128](k, "to", 4, dsl.Align(16))
	flag := dsl.Global[dsl.U32](k, "flag", 2)
	bar := dsl.NewMBars(k, "bar", 1)
	rlx := dsl.Relaxed(ir.GPU)
	lane0 := k.Lane().EqC(0)
	k.If(k.Tid().EqC(0), func() { bar.Init(dsl.At(0), k.U32(1)); k.FenceMBarInit() })
	k.Barrier()
	for range 3 + rng.IntN(4) {
		at, v := rng.IntN(2), 1+rng.IntN(3)
		warp := rng.IntN(4)
		who := func() dsl.Pred { return k.CTA().MulC(2).Add(k.Warp()).EqC(warp).And(lane0) }
		switch rng.IntN(5) {
		case 0:
			k.If(who(), func() { g.Store(dsl.At(at), k.U32(v), rlx) })
		case 1:
			k.If(who(), func() { g.Store(dsl.At(2+at), g.Load(dsl.At(at), rlx), rlx) })
		case 2:
			k.If(who(), func() { dsl.ReduceAdd(g, dsl.At(at), k.U32(v), rlx) })
		case 3:
			k.If(who(), func() { g.Store(dsl.At(2+at), dsl.AtomicAdd(g, dsl.At(at), k.U32(v), rlx), rlx) })
		case 4:
			k.If(lane0.And(k.Warp().EqC(rng.IntN(2))), func() { dsl.ReduceAdd(flag, dsl.At(at), k.U32(1), rlx) })
			k.If(lane0, func() { dsl.WaitUntil(flag, dsl.At(at), dsl.GE, k.U32(1), rlx) })
		}
	}
	k.If(k.Tid().EqC(0), func() {
		bar.ArriveExpect(dsl.At(0), k.U32(64))
		for i := range 2 {
			dsl.BulkCopy(to, dsl.At(2*i), in, dsl.At(2*i), k.U32(32), bar, dsl.At(0))
		}
	})
	k.If(lane0, func() { bar.Wait(dsl.At(0), k.U32(0)) })
	k.Barrier()
	kernel, err := k.Finish()
	require.NoError(t, err)
	p, err := interp.Load(kernel)
	require.NoError(t, err)
	return p
}

// Whatever execution is drawn at random, exploration has seen one that is equivalent, and none twice.
func TestExplorationHasEveryClassOnce(t *testing.T) {
	const most = 400
	whole := 0
	for seed := range uint64(deep.Count(300, 30)) {
		rng := rand.New(rand.NewPCG(seed, 1))
		p := mixed(t, rng)
		classes, again, x, err := p.Classes(func() *interp.Memory { return bufs(p) }, most)
		require.NoError(t, err)
		require.Zero(t, again, "seed %d", seed)
		if !x.Complete {
			continue
		}
		whole++
		for range 400 {
			drawn, err := p.DrawnClass(bufs(p), rng.IntN)
			require.NoError(t, err)
			require.True(t, classes[drawn], "seed %d: a class of executions was not explored", seed)
		}
	}
	require.Greater(t, whole, 10, "kernels small enough to be explored whole")
}
