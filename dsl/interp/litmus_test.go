package interp_test

import (
	"errors"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/stretchr/testify/require"
)

// lit is what one litmus thread is written with. Threads are lane 0 of a CTA
// each, or of a warp each of one CTA.
type lit struct {
	k    *dsl.Kernel
	x, r dsl.Buf[dsl.U32]
	y    dsl.Buf[dsl.U32]
	t    int
	n    int
}

func (l *lit) st(x, v int, o ...dsl.MemOpt) { l.x.Store(dsl.At(x), l.k.U32(v), o...) }
func (l *lit) ld(x int, o ...dsl.MemOpt) {
	v := l.x.Load(dsl.At(x), o...)
	l.r.Store(dsl.At(4*l.t+l.n), v)
	l.n++
}

// stWeak and ldWeak access plain data, in a buffer of its own.
func (l *lit) stWeak(x, v int) { l.y.Store(dsl.At(x), l.k.U32(v)) }
func (l *lit) ldWeak(x int) {
	l.r.Store(dsl.At(4*l.t+l.n), l.y.Load(dsl.At(x)))
	l.n++
}

func litmusProgram(t testing.TB, threads int, oneCTA bool, bodies []func(l *lit)) *interp.Program {
	warps, grid := 1, threads
	if oneCTA {
		warps, grid = threads, 1
	}
	return build(t, warps, grid, func(k *dsl.Kernel) {
		l := lit{k: k, x: dsl.Global[dsl.U32](k, "x", 4), y: dsl.Global[dsl.U32](k, "y", 4),
			r: dsl.Global[dsl.U32](k, "r", 16)}
		var id dsl.Val[dsl.U32]
		if oneCTA {
			id = k.Warp()
		} else {
			id = k.CTA()
		}
		k.If(k.Lane().EqC(0), func() {
			for i, b := range bodies {
				k.If(id.EqC(i), func() { me := l; me.t = i; b(&me) })
			}
			// Every buffer is used, whatever the test.
			k.If(id.EqC(99), func() { l.st(3, 0, dsl.Relaxed(ir.GPU)); l.stWeak(3, 0); l.ldWeak(3) })
		})
	})
}

// outcomes runs seeds and counts the results; faults are counted by kind.
func outcomes(t testing.TB, p *interp.Program, seeds int) (map[[4]uint32]int, map[interp.Kind]int) {
	got, faults := map[[4]uint32]int{}, map[interp.Kind]int{}
	for s := range seeds {
		m := bufs(p)
		_, err := p.Run(m, interp.Options{Seed: uint64(s)})
		var f *interp.Fault
		if errors.As(err, &f) {
			faults[f.Kind]++
			continue
		}
		require.NoError(t, err)
		r := u32s(m.Bytes("r"))
		got[[4]uint32{r[0] + 10*r[1], r[4] + 10*r[5], r[8] + 10*r[9], r[12] + 10*r[13]}]++
	}
	return got, faults
}

const litmusSeeds = 3000

var (
	rlx = dsl.Relaxed(ir.GPU)
	acq = dsl.Acquire(ir.GPU)
	rel = dsl.Release(ir.GPU)
)

// litmusTest is a published test: threads, the outcome in question, and whether PTX allows it.
type litmusTest struct {
	name    string
	bodies  []func(*lit)
	outcome [4]uint32 // by thread: first result + 10 × second
	allowed bool
}

func litmusTests() []litmusTest {
	fence := func(l *lit) { l.k.Fence(ir.GPU) }
	sc := func(l *lit) { l.k.FenceSC(ir.GPU) }
	mp := func(st, ld dsl.MemOpt, between func(l *lit)) []func(*lit) {
		return []func(*lit){
			func(l *lit) { l.st(0, 1, rlx); between(l); l.st(1, 1, st) },
			func(l *lit) { l.ld(1, ld); between(l); l.ld(0, rlx) },
		}
	}
	none := func(*lit) {}
	sb := func(between func(l *lit)) []func(*lit) {
		return []func(*lit){
			func(l *lit) { l.st(0, 1, rel); between(l); l.ld(1, acq) },
			func(l *lit) { l.st(1, 1, rel); between(l); l.ld(0, acq) },
		}
	}
	iriw := func(between func(l *lit)) []func(*lit) {
		return []func(*lit){
			func(l *lit) { l.st(0, 1, rlx) },
			func(l *lit) { l.st(1, 1, rlx) },
			func(l *lit) { l.ld(0, acq); between(l); l.ld(1, acq) },
			func(l *lit) { l.ld(1, acq); between(l); l.ld(0, acq) },
		}
	}
	type weak = [4]uint32
	return []litmusTest{
		{"MP relaxed", mp(rlx, rlx, none), weak{0, 1}, true},
		{"MP release acquire", mp(rel, acq, none), weak{0, 1}, false},
		{"MP release relaxed", mp(rel, rlx, none), weak{0, 1}, true},
		{"MP relaxed acquire", mp(rlx, acq, none), weak{0, 1}, true},
		{"MP fences", mp(rlx, rlx, fence), weak{0, 1}, false},
		{"MP volatile", mp(dsl.Volatile(), dsl.Volatile(), none), weak{0, 1}, true},
		{"SB release acquire", sb(none), weak{0, 0}, true},
		{"SB fence acq_rel", sb(fence), weak{0, 0}, true},
		{"SB fence sc", sb(sc), weak{0, 0}, false},
		{"IRIW acquire", iriw(none), weak{0, 0, 1, 1}, true},
		{"IRIW fence sc", iriw(sc), weak{0, 0, 1, 1}, false},
		{"CoRR", []func(*lit){
			func(l *lit) { l.st(0, 1, rlx) },
			func(l *lit) { l.ld(0, rlx); l.ld(0, rlx) },
		}, weak{0, 1}, false},
		{"WRC", []func(*lit){
			func(l *lit) { l.st(0, 1, rlx) },
			func(l *lit) { l.ld(0, rlx); l.k.Fence(ir.GPU); l.st(1, 1, rlx) },
			func(l *lit) { l.ld(1, acq); l.ld(0, rlx) },
		}, weak{0, 1, 1}, false},
		{"WRC relaxed", []func(*lit){
			func(l *lit) { l.st(0, 1, rlx) },
			func(l *lit) { l.ld(0, rlx); l.st(1, 1, rlx) },
			func(l *lit) { l.ld(1, rlx); l.ld(0, rlx) },
		}, weak{0, 1, 1}, true},
		{"ISA2", []func(*lit){
			func(l *lit) { l.st(0, 1, rlx); l.st(1, 1, rel) },
			func(l *lit) { l.ld(1, acq); l.st(2, 1, rel) },
			func(l *lit) { l.ld(2, acq); l.ld(0, rlx) },
		}, weak{0, 1, 1}, false},
		{"ISA2 relaxed middle", []func(*lit){
			func(l *lit) { l.st(0, 1, rlx); l.st(1, 1, rel) },
			func(l *lit) { l.ld(1, rlx); l.st(2, 1, rel) },
			func(l *lit) { l.ld(2, acq); l.ld(0, rlx) },
		}, weak{0, 1, 1}, true},
		{"release sequence through atomics", []func(*lit){
			func(l *lit) { l.st(0, 1, rlx); l.st(1, 1, rel) },
			func(l *lit) { dsl.ReduceAdd(l.x, dsl.At(1), l.k.U32(1), rlx) },
			func(l *lit) { l.ld(1, acq); l.ld(0, rlx) },
		}, weak{0, 0, 2}, false},
		{"release, then a relaxed store of the same thread", []func(*lit){
			func(l *lit) { l.st(0, 1, rlx); l.st(1, 1, rel); l.st(1, 2, rlx) },
			func(l *lit) { l.ld(1, acq); l.ld(0, rlx) },
		}, weak{0, 2}, false},
		{"coherence of one thread's stores", []func(*lit){
			func(l *lit) { l.st(0, 1, rlx); l.st(0, 2, rlx) },
			func(l *lit) { l.ld(0, rlx); l.ld(0, rlx) },
		}, weak{0, 12}, false},
	}
}

func TestLitmus(t *testing.T) {
	for _, tt := range litmusTests() {
		t.Run(tt.name, func(t *testing.T) {
			p := litmusProgram(t, max(len(tt.bodies), 2), false, tt.bodies)
			got, faults := outcomes(t, p, litmusSeeds)
			require.Empty(t, faults)
			if tt.allowed {
				require.NotZero(t, got[tt.outcome], "the weak outcome never appears: %v", got)
			} else {
				require.Zero(t, got[tt.outcome], "a forbidden outcome appears: %v", got)
			}
			require.Greater(t, len(got), 1, "only one outcome: %v", got)
		})
	}
}

func TestLitmus2Plus2W(t *testing.T) {
	body := func(between func(l *lit)) []func(*lit) {
		return []func(*lit){
			func(l *lit) { l.st(0, 1, rlx); between(l); l.st(1, 2, rlx) },
			func(l *lit) { l.st(1, 1, rlx); between(l); l.st(0, 2, rlx) },
		}
	}
	count := func(p *interp.Program) (weak int) {
		for s := range litmusSeeds {
			m := bufs(p)
			run(t, p, m, uint64(s))
			if x := u32s(m.Bytes("x")); x[0] == 1 && x[1] == 1 {
				weak++
			}
		}
		return weak
	}
	require.NotZero(t, count(litmusProgram(t, 2, false, body(func(*lit) {}))))
	require.Zero(t, count(litmusProgram(t, 2, false, body(func(l *lit) { l.k.FenceSC(ir.GPU) }))))
}

// dataMP passes plain data: the flag decides whether that is a race.
func dataMP(st, ld dsl.MemOpt, before, behind func(l *lit)) []func(*lit) {
	return []func(*lit){
		func(l *lit) { l.stWeak(0, 7); before(l); l.st(0, 1, st) },
		func(l *lit) {
			dsl.WaitUntil(l.x, dsl.At(0), dsl.EQ, l.k.U32(1), ld)
			behind(l)
			l.ldWeak(0)
		},
	}
}

func TestMessagePassingOfPlainData(t *testing.T) {
	none := func(*lit) {}
	fence := func(s ir.Scope) func(*lit) { return func(l *lit) { l.k.Fence(s) } }
	cta := dsl.Relaxed(ir.CTA)
	tests := []struct {
		name   string
		oneCTA bool
		bodies []func(*lit)
		want   interp.Kind
	}{
		{"release acquire", false, dataMP(rel, acq, none, none), interp.NoFault},
		{"relaxed", false, dataMP(rlx, rlx, none, none), interp.DataRace},
		{"release relaxed", false, dataMP(rel, rlx, none, none), interp.DataRace},
		{"relaxed acquire", false, dataMP(rlx, acq, none, none), interp.DataRace},
		{"fences", false, dataMP(rlx, rlx, fence(ir.GPU), fence(ir.GPU)), interp.NoFault},
		{"fence too narrow", false, dataMP(rlx, rlx, fence(ir.CTA), fence(ir.GPU)), interp.DataRace},
		{"fence missing", false, dataMP(rlx, rlx, none, fence(ir.GPU)), interp.DataRace},
		{"volatile", false, dataMP(dsl.Volatile(), dsl.Volatile(), none, none), interp.DataRace},
		{"volatile with fences", false, dataMP(dsl.Volatile(), dsl.Volatile(), fence(ir.GPU), fence(ir.GPU)), interp.NoFault},
		{"cta scope across CTAs", false, dataMP(dsl.Release(ir.CTA), acq, none, none), interp.ScopeRace},
		{"cta acquire across CTAs", false, dataMP(rel, dsl.Acquire(ir.CTA), none, none), interp.ScopeRace},
		{"cta scope in one CTA", true, dataMP(dsl.Release(ir.CTA), dsl.Acquire(ir.CTA), none, none), interp.NoFault},
		{"cta relaxed with cta fences in one CTA", true, dataMP(cta, cta, fence(ir.CTA), fence(ir.CTA)), interp.NoFault},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := litmusProgram(t, 2, tt.oneCTA, tt.bodies)
			if tt.want == interp.NoFault {
				clean(t, p, 300)
				return
			}
			_, faults := outcomes(t, p, 300)
			require.Equal(t, map[interp.Kind]int{tt.want: 300}, faults, "every schedule shows it")
		})
	}
}
