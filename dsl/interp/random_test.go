package interp_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/stretchr/testify/require"
)

// Random programs, checked against a second, plain implementation of
// happens-before: sets of events instead of vector clocks. Every flag is set
// once and then waited for, so the order does not depend on the schedule: all
// schedules must race, or none.

const (
	rpCTAs, rpWarps, rpLanes = 2, 2, 3
	rpThreads                = rpCTAs * rpWarps * rpLanes
	rpWords                  = 3
)

type eventSet map[int]bool

func (s eventSet) add(t eventSet) {
	for e := range t {
		s[e] = true
	}
}

func (s eventSet) copied() eventSet {
	out := eventSet{}
	out.add(s)
	return out
}

// reference keeps, for every thread, the set of events that happen before its next.
type reference struct {
	knows    [rpThreads]eventSet
	fenced   [rpThreads]eventSet // known at the last release fence
	pending  [rpThreads]eventSet // read by relaxed waits
	accesses [rpWords][]access
	flags    map[int]eventSet
	events   int
	racy     bool
}

type access struct {
	event int
	write bool
}

func newReference() *reference {
	r := &reference{flags: map[int]eventSet{}}
	for t := range rpThreads {
		r.knows[t], r.fenced[t], r.pending[t] = eventSet{}, eventSet{}, eventSet{}
	}
	return r
}

// races reports whether an access would.
func (r *reference) races(t, word int, write bool) bool {
	for _, a := range r.accesses[word] {
		if (a.write || write) && !r.knows[t][a.event] {
			return true
		}
	}
	return false
}

func (r *reference) access(t, word int, write bool) {
	r.racy = r.racy || r.races(t, word, write)
	r.events++
	r.knows[t][r.events] = true
	r.accesses[word] = append(r.accesses[word], access{r.events, write})
}

func (r *reference) join(threads []int) {
	all := eventSet{}
	for _, t := range threads {
		all.add(r.knows[t])
	}
	for _, t := range threads {
		r.knows[t].add(all)
	}
}

// program writes the same random program for the executor and the reference.
type program struct {
	k     *dsl.Kernel
	r     *rand.Rand
	ref   *reference
	words dsl.Buf[dsl.U32]
	flags dsl.Buf[dsl.U32]
	out   dsl.Buf[dsl.U32]
	bars  dsl.MBars
	set   []int // flags that are set, in order
	used  int   // mbarriers used
	text  []string
}

// thread runs body in thread t alone.
func (p *program) thread(t int, body func()) {
	cta, warp, lane := t/(rpWarps*rpLanes), t/rpLanes%rpWarps, t%rpLanes
	at := p.k.CTA().MulC(64).Add(p.k.Tid())
	p.k.If(at.EqC(64*cta+32*warp+lane), body)
}

func (p *program) note(format string, args ...any) {
	p.text = append(p.text, fmt.Sprintf(format, args...))
}

func (p *program) step() {
	t, k := p.r.IntN(rpThreads), p.k
	scope := []ir.Scope{ir.GPU, ir.Sys}[p.r.IntN(2)]
	switch n := p.r.IntN(20); {
	case n < 7:
		w, write := p.r.IntN(rpWords), p.r.IntN(3) > 0
		if p.ref.races(t, w, write) && p.r.IntN(20) > 0 {
			return // most races are left out, so that half the programs have none
		}
		p.note("thread %d accesses %d write %v", t, w, write)
		p.ref.access(t, w, write)
		p.thread(t, func() {
			if write {
				p.words.Store(dsl.At(w), k.U32(t))
			} else {
				p.out.Store(dsl.At(64*t+len(p.text)), p.words.Load(dsl.At(w)))
			}
		})
	case n < 11:
		p.signal(t, scope)
	case n < 15 && len(p.set) > 0:
		p.await(t, p.set[p.r.IntN(len(p.set))], scope)
	case n < 17:
		p.note("thread %d fences", t)
		p.ref.knows[t].add(p.ref.pending[t])
		p.ref.fenced[t] = p.ref.knows[t].copied()
		p.thread(t, func() { k.Fence(scope) })
	case n == 17:
		p.syncWarps()
	case n == 18:
		p.syncCTA()
	case n == 19:
		p.mbarrier(t)
	}
}

func (p *program) signal(t int, scope ir.Scope) {
	f, release := len(p.set), p.r.IntN(2) > 0
	p.set = append(p.set, f)
	p.note("thread %d sets flag %d release %v", t, f, release)
	sent, order := p.ref.fenced[t].copied(), dsl.Relaxed(scope)
	if release {
		sent, order = p.ref.knows[t].copied(), dsl.Release(scope)
	}
	p.ref.flags[f] = sent
	p.thread(t, func() {
		if p.r.IntN(2) > 0 {
			dsl.ReduceAdd(p.flags, dsl.At(f), p.k.U32(1), order)
		} else {
			p.flags.Store(dsl.At(f), p.k.U32(1), order)
		}
	})
}

func (p *program) await(t, f int, scope ir.Scope) {
	acquire := p.r.IntN(3) > 0
	p.note("thread %d waits for flag %d acquire %v", t, f, acquire)
	order := dsl.Relaxed(scope)
	if acquire {
		p.ref.knows[t].add(p.ref.flags[f])
		order = dsl.Acquire(scope)
	} else {
		p.ref.pending[t].add(p.ref.flags[f])
	}
	p.thread(t, func() { dsl.WaitUntil(p.flags, dsl.At(f), dsl.EQ, p.k.U32(1), order) })
}

func (p *program) syncWarps() {
	p.note("syncwarp everywhere")
	for w := range rpThreads / rpLanes {
		var ts []int
		for l := range rpLanes {
			ts = append(ts, w*rpLanes+l)
		}
		p.ref.join(ts)
	}
	p.k.SyncWarp()
}

func (p *program) syncCTA() {
	p.note("bar.cta everywhere")
	for c := range rpCTAs {
		var ts []int
		for i := range rpWarps * rpLanes {
			ts = append(ts, c*rpWarps*rpLanes+i)
		}
		p.ref.join(ts)
	}
	p.k.Barrier()
}

// mbarrier: thread t arrives, another of its CTA waits, on a fresh mbarrier.
func (p *program) mbarrier(t int) {
	if p.used == 8 {
		return
	}
	b, n := p.used, rpWarps*rpLanes
	p.used++
	u := t/n*n + p.r.IntN(n)
	p.note("thread %d arrives for thread %d", t, u)
	p.ref.knows[u].add(p.ref.knows[t])
	// Every CTA has its own mbarrier: the other CTA's is left alone.
	p.thread(t, func() { p.bars.Arrive(dsl.At(b)) })
	p.thread(u, func() { p.bars.Wait(dsl.At(b), p.k.U32(0)) })
}

func randomProgram(t *testing.T, seed uint64, steps int) (*interp.Program, *program) {
	p := &program{r: rand.New(rand.NewPCG(seed, 5)), ref: newReference()}
	prog := build(t, rpWarps, rpCTAs, func(k *dsl.Kernel) {
		p.k = k
		p.words, p.flags = dsl.Global[dsl.U32](k, "words", rpWords), dsl.Global[dsl.U32](k, "flags", 64)
		p.out, p.bars = dsl.Global[dsl.U32](k, "out", 4096), dsl.NewMBars(k, "bars", 8)
		k.If(k.Tid().EqC(0), func() {
			for i := range 8 {
				p.bars.Init(dsl.At(i), k.U32(1))
			}
		})
		k.Barrier()
		// Every buffer is used, whatever is drawn.
		k.If(k.Tid().EqC(99), func() {
			p.out.Store(dsl.At(0), p.words.Load(dsl.At(0)))
			p.words.Store(dsl.At(0), k.U32(0))
			p.flags.Store(dsl.At(63), k.U32(0), rlx)
			p.bars.Arrive(dsl.At(0))
			p.bars.Wait(dsl.At(0), k.U32(1))
		})
		for range steps {
			p.step()
		}
	})
	return prog, p
}

func TestRandomProgramsAgreeWithASecondHappensBefore(t *testing.T) {
	racy, quiet := 0, 0
	for seed := range uint64(600) {
		prog, p := randomProgram(t, seed, 15+int(seed%30))
		for s := range uint64(4) {
			_, err := prog.Run(bufs(prog), interp.Options{Seed: s})
			var f *interp.Fault
			if !errors.As(err, &f) {
				require.NoError(t, err)
			}
			if p.ref.racy {
				require.NotNil(t, f, "program %d has a race that seed %d does not show: %v", seed, s, p.text)
				require.Equal(t, interp.DataRace, f.Kind, "program %d: %v\n%v", seed, f, p.text)
			} else {
				require.Nil(t, f, "program %d has no race: %v\n%v", seed, f, p.text)
			}
		}
		if p.ref.racy {
			racy++
		} else {
			quiet++
		}
	}
	require.Greater(t, racy, 100)
	require.Greater(t, quiet, 100)
	t.Logf("%d programs race, %d do not", racy, quiet)
}
