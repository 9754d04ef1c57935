package interp_test

import (
	"errors"
	"flag"
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

var programs = flag.Int("programs", 1000, "random programs to compare")

const (
	rpCTAs, rpWarps, rpLanes = 2, 2, 3
	rpThreads                = rpCTAs * rpWarps * rpLanes
	rpWords                  = 3
	rpBars                   = 16
)

// program writes the same random program for the executor and the reference.
type program struct {
	k     *dsl.Kernel
	r     *rand.Rand
	ref   *reference
	words dsl.Buf[dsl.U32]
	flags dsl.Buf[dsl.U32]
	out   dsl.Buf[dsl.U32]
	stage dsl.Buf[dsl.U32]
	bars  dsl.MBars
	set   []int // flags that are set, in order
	t     int   // the last thread drawn
	used  int   // mbarriers used
	land  []landing
	text  []string
}

// landing is a copy that somebody may wait for.
type landing struct {
	bar, cta int
	k        knowledge // what a waiter acquires
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

// next draws a thread, often the last one or another lane of its warp.
func (p *program) next() int {
	switch n := p.r.IntN(10); {
	case n < 5:
	case n < 7:
		p.t = p.t/rpLanes*rpLanes + p.r.IntN(rpLanes)
	default:
		p.t = p.r.IntN(rpThreads)
	}
	return p.t
}

func (p *program) step() {
	t, k := p.next(), p.k
	scope := []ir.Scope{ir.GPU, ir.Sys}[p.r.IntN(2)]
	switch n := p.r.IntN(26); {
	case n < 7:
		p.touch(t)
	case n < 11:
		p.signal(t, scope)
	case n < 15 && len(p.set) > 0:
		p.await(t, p.set[p.r.IntN(len(p.set))], scope)
	case n < 17:
		p.note("thread %d fences", t)
		for _, k := range p.ref.pending[t] {
			p.ref.knows[t].add(k)
		}
		p.ref.mark(t)
		p.ref.fenced[t] = p.ref.knows[t].copied()
		p.thread(t, func() { k.Fence(scope) })
	case n == 17:
		p.syncWarps()
	case n == 18:
		p.syncCTA()
	case n == 19:
		p.mbarrier(t)
	case n < 22:
		p.proxyFence(t, int64(p.r.IntN(3)))
	case n < 24:
		p.copy(t)
	case len(p.land) > 0:
		p.arrival(p.r.IntN(len(p.land)))
	}
}

// skip lets a program have one race at most, and rather one that is nearly none.
func (p *program) skip(t int, at place, write, async bool) bool {
	switch {
	case len(p.ref.racing(t, at, write, async)) == 0:
		return false
	case p.ref.racy:
		return true
	case p.ref.nearMiss(t, at, write, async):
		return p.r.IntN(8) > 0
	}
	return p.r.IntN(100) > 0
}

// touch is a plain access to global memory or to the CTA's stage.
func (p *program) touch(t int) {
	k, at, write := p.k, place{-1, p.r.IntN(rpWords)}, p.r.IntN(3) > 0
	buf := p.words
	if p.r.IntN(2) > 0 {
		at.cta, buf = ctaOf(t), p.stage
	}
	if p.skip(t, at, write, false) {
		return
	}
	p.note("thread %d accesses %v write %v", t, at, write)
	p.ref.access(t, at, write, false)
	p.thread(t, func() {
		if write {
			buf.Store(dsl.At(4*at.word), k.U32(t))
		} else {
			p.out.Store(dsl.At(64*t+len(p.text)), buf.Load(dsl.At(4*at.word)))
		}
	})
}

func (p *program) proxyFence(t int, space int64) {
	p.note("thread %d proxy fence %d", t, space)
	k := p.ref.knows[t]
	if space != ir.FenceGlobal {
		k.sh.add(k.hb)
	}
	if space != ir.FenceShared {
		k.gl.add(k.hb)
		for e := range k.hb {
			if p.ref.by[e] == ctaOf(t) {
				k.out[e] = true
			}
		}
	}
	p.thread(t, func() {
		[]func(){p.k.FenceProxyAsync, p.k.FenceProxyAsyncGlobal, p.k.FenceProxyAsyncShared}[space]()
	})
}

// copy issues a bulk copy of one word of 16 bytes to the CTA's stage.
func (p *program) copy(t int) {
	k, from, to := p.k, place{-1, p.r.IntN(rpWords)}, place{ctaOf(t), p.r.IntN(rpWords)}
	if p.used == rpBars || p.skip(t, from, false, true) || p.skip(t, to, true, true) {
		return
	}
	b := p.used
	p.used++
	p.note("thread %d copies %v to %v", t, from, to)
	sent := p.ref.knows[t].copied()
	sent.hb[p.ref.access(t, from, false, true)] = true
	sent.hb[p.ref.access(t, to, true, true)] = true
	p.land = append(p.land, landing{b, ctaOf(t), sent})
	p.thread(t, func() {
		p.bars.ArriveExpect(dsl.At(b), k.U32(16))
		dsl.BulkCopy(p.stage, dsl.At(4*to.word), p.words, dsl.At(4*from.word), k.U32(16), p.bars, dsl.At(b))
	})
}

// arrival makes a thread of its CTA wait for copy i.
func (p *program) arrival(i int) {
	c := p.land[i]
	t := c.cta*rpWarps*rpLanes + p.r.IntN(rpWarps*rpLanes)
	p.note("thread %d waits for copy %d", t, c.bar)
	p.ref.knows[t].add(c.k)
	p.thread(t, func() { p.bars.Wait(dsl.At(c.bar), p.k.U32(0)) })
}

func (p *program) signal(t int, scope ir.Scope) {
	f, release := len(p.set), p.r.IntN(2) > 0
	p.set = append(p.set, f)
	p.ref.mark(t)
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
		p.ref.pending[t] = append(p.ref.pending[t], p.ref.flags[f])
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
	if p.used == rpBars {
		return
	}
	b, n := p.used, rpWarps*rpLanes
	p.used++
	u := t/n*n + p.r.IntN(n)
	p.note("thread %d arrives for thread %d", t, u)
	p.ref.mark(t)
	p.ref.knows[u].add(p.ref.knows[t])
	// Every CTA has its own mbarrier: the other CTA's is left alone.
	p.thread(t, func() { p.bars.Arrive(dsl.At(b)) })
	p.thread(u, func() { p.bars.Wait(dsl.At(b), p.k.U32(0)) })
}

func randomProgram(t *testing.T, seed uint64, steps int) (*interp.Program, *program) {
	p := &program{r: rand.New(rand.NewPCG(seed, 5)), ref: newReference()}
	prog := build(t, rpWarps, rpCTAs, func(k *dsl.Kernel) {
		p.k = k
		p.words, p.flags = dsl.Global[dsl.U32](k, "words", 4*rpWords), dsl.Global[dsl.U32](k, "flags", 64)
		p.out, p.bars = dsl.Global[dsl.U32](k, "out", 4096), dsl.NewMBars(k, "bars", rpBars)
		p.stage = dsl.Shared[dsl.U32](k, "stage", 4*rpWords)
		k.If(k.Tid().EqC(0), func() {
			for i := range rpBars {
				p.bars.Init(dsl.At(i), k.U32(1))
			}
			k.FenceMBarInit()
			for w := range rpWords {
				p.stage.StoreN(dsl.At(4*w), []dsl.Val[dsl.U32]{k.U32(0), k.U32(0), k.U32(0), k.U32(0)})
				for c := range rpCTAs {
					p.ref.access(c*rpWarps*rpLanes, place{c, w}, true, false)
				}
			}
		})
		p.syncCTA()
		// Every buffer is used, whatever is drawn.
		k.If(k.Tid().EqC(99), func() {
			p.out.Store(dsl.At(0), p.words.Load(dsl.At(0)))
			p.words.Store(dsl.At(0), k.U32(0))
			p.flags.Store(dsl.At(63), k.U32(0), rlx)
			p.bars.Arrive(dsl.At(0))
			p.bars.Wait(dsl.At(0), k.U32(1))
			p.out.Store(dsl.At(0), p.stage.Load(dsl.At(0)))
		})
		for range steps {
			p.step()
		}
		for i := range p.land { // nobody leaves a copy behind
			p.arrival(i)
		}
	})
	return prog, p
}

func TestRandomProgramsAgreeWithASecondHappensBefore(t *testing.T) {
	racy, quiet, kinds := 0, 0, map[interp.Kind]int{}
	for seed := range uint64(*programs) {
		prog, p := randomProgram(t, seed, 20+int(seed%60))
		for s := range uint64(4) {
			_, err := prog.Run(bufs(prog), interp.Options{Seed: s})
			var f *interp.Fault
			if !errors.As(err, &f) {
				require.NoError(t, err)
			}
			if p.ref.racy {
				require.NotNil(t, f, "program %d has a race that seed %d does not show: %v", seed, s, p.text)
				require.Contains(t, []interp.Kind{interp.DataRace, interp.ProxyRace}, f.Kind, "program %d: %v\n%v", seed, f, p.text)
				kinds[f.Kind]++
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
	require.Greater(t, kinds[interp.ProxyRace], 50)
	t.Logf("%d programs race, %d do not", racy, quiet)
}
