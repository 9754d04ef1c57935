package interp

import (
	"fmt"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
)

// race reports that a conflicts with the access behind old.
func (m *machine) race(kind Kind, rg *region, off int64, old record, wrote bool, a *accessor) {
	buf := rg.info.buf
	index := off / int64(buf.Elem.Size())
	now, before := verb(a.write, a.async, a.in), verb(wrote, m.isAsync(old), &m.p.code[old.pc()])
	text := fmt.Sprintf("element %d of %s: this %s and an earlier %s ", index, buf, now, before)
	switch kind {
	case ProxyRace:
		text += "are ordered, but no fence.proxy.async lies between the generic and the async proxy"
	case ScopeRace:
		text += "are strong, but their scopes do not include each other, and nothing orders them"
	default:
		text += "are not ordered by happens-before"
	}
	switch {
	case a.async && a.write && !wrote:
		text = "a stage is overwritten before it was drained: " + text
	case m.isAsync(old) && wrote && m.stillFlying(rg, off, old):
		text += "; the copy is still in flight"
	}
	m.fail(a.w, a.in, int(a.lane), kind, "%s", text).at(buf, index).record(m, "earlier "+before, old)
	m.fault.Sides[0].What = now
}

func verb(write, async bool, in *inst) string {
	v := "read"
	if write {
		v = "write"
	}
	switch {
	case async && in.op == ir.OpWGMMA:
		return "wgmma " + v
	case in.op == ir.OpCopyAsync:
		return "cp.async " + v
	}
	if async {
		return "bulk-copy " + v
	}
	return v
}

func (m *machine) stillFlying(rg *region, off int64, old record) bool {
	f := m.inFlight(rg, off)
	return f != nil && f.rec == old
}

// deadlock reports every warp that waits, and for what.
func (m *machine) deadlock() {
	f := &Fault{Kind: Deadlock, Text: fmt.Sprintf("no warp can go on; %d of %d warps wait", m.live, len(m.warps))}
	m.listWaiters(f)
	m.fault = f
}

// livelock reports that the run does not end.
func (m *machine) livelock() {
	f := &Fault{Kind: Livelock, Text: fmt.Sprintf("not finished after %d steps, the limit", m.limit)}
	m.listWaiters(f)
	m.fault = f
}

// maxWaiters bounds a report; grids of a hundred CTAs wait alike.
const maxWaiters = 64

func (m *machine) listWaiters(f *Fault) {
	more := 0
	for _, w := range m.warps {
		if w.state == exited {
			continue
		}
		if len(f.Sides) >= maxWaiters {
			more++
			continue
		}
		in, what := &m.p.code[w.pc], "runs"
		if w.wait.kind != waitNone {
			in, what = w.wait.in, m.describe(w)
		}
		f.Sides = append(f.Sides, Side{What: what, Region: in.region, Pos: in.pos, Op: in.name(),
			Thread: fmt.Sprintf("cta %d warp %d", w.cta.id, w.wi)})
	}
	if more > 0 {
		f.Text += fmt.Sprintf(" (%d more are not listed)", more)
	}
}

// describe says what w waits for and how far that is.
func (m *machine) describe(w *warp) string {
	in, wt := w.wait.in, &w.wait
	switch wt.kind {
	case waitGroup:
		return fmt.Sprintf("waits for the other warps of its warpgroup: they have come to %v collectives",
			w.cta.logs[w.wi/4].at)
	case waitRegisters:
		return fmt.Sprintf("waits for %d registers a thread and has %d: %d are free", in.attr.N, w.nreg, w.cta.nreg)
	case waitBarrier:
		if wt.id == clusterBarrier {
			b := &m.clusters[w.cta.id/m.clusterSize()]
			return fmt.Sprintf("waits at the cluster's barrier: %d of %d threads have arrived", b.arrived, b.threads)
		}
		b := &w.cta.bars[wt.id]
		return fmt.Sprintf("waits at barrier %d: %d of %d threads have arrived", wt.id, b.arrived, b.threads)
	case waitMBar:
		l := firstLane(w.mask &^ wt.passed)
		b, _ := m.mbarAt(w, in, &in.mem[0], l)
		if b == nil {
			return "waits for an mbarrier"
		}
		s := fmt.Sprintf("lanes %s wait for mbarrier %d of %s, phase of parity %d: phase %d has %d of %d arrivals and %d bytes outstanding",
			laneList(w.mask&^wt.passed), b.index, b.buf, m.in(w, in.a[0])[l], b.phase, b.count-b.pending, b.count, b.tx)
		return s + m.otherLanes(w)
	case waitMem:
		l := firstLane(w.mask &^ wt.passed)
		r := &in.mem[0]
		rg := m.region(w, r)
		i := m.index(w, r, l)
		return fmt.Sprintf("lanes %s wait for element %d of %s, which is %d, to be %s %d", laneList(w.mask&^wt.passed), i,
			r.buf, rg.load(r.base+i*r.elem, 4).lo, condWord(in.attr.Cond), m.in(w, in.a[0])[l]) + m.otherLanes(w)
	}
	return "runs"
}

// otherLanes warns of lanes that wait for the branch w is in to end.
func (m *machine) otherLanes(w *warp) string {
	var rest uint32
	for _, fr := range w.frames {
		rest |= fr.mask
	}
	if rest &^= w.mask; rest == 0 {
		return ""
	}
	return fmt.Sprintf("; lanes %s of the warp are held up by this branch", laneList(rest))
}

func condWord(c ir.Cond) string {
	return strings.Replace(strings.Replace(strings.Replace(c.String(), "eq", "equal to", 1), "ne", "different from", 1),
		"ge", "at least", 1)
}
