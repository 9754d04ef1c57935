package interp

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/mkgen/mkgen/dsl/ir"
)

func (x *explorer) issued(f *flight) {
	x.copies[f.w.id]++
	f.proc = x.proc(procName{f.w.id, x.copies[f.w.id]})
	x.born = append(x.born, f.proc)
}

// enabled are the processes that can make a transition, in order.
func (x *explorer) enabled(m *machine) (list []int) {
	for _, w := range m.warps {
		if w.state == running && m.answered(w) {
			list = append(list, int(w.id))
		}
	}
	for _, f := range m.flight {
		list = append(list, f.proc)
	}
	slices.SortFunc(list, cmp.Compare)
	return list
}

// invisible executes what w does up to its next synchronising instruction.
func (x *explorer) invisible(m *machine, w *warp) {
	for w.state == running && m.fault == nil && !m.p.code[w.pc].visible() {
		m.burst(w, 1)
	}
}

// visible says whether an instruction is a transition of its own.
func (in *inst) visible() bool {
	switch in.op {
	case ir.OpLd, ir.OpSt:
		return in.strong
	case ir.OpInvalid:
		return in.exits
	case ir.OpFence:
		return in.attr.Order == ir.SeqCst
	case ir.OpSyncWarp, ir.OpFenceProxy, ir.OpFenceMBar, ir.OpNanosleep, ir.OpAssert, ir.OpWGMMAFence, ir.OpWGMMACommit,
		ir.OpLdMatrix, ir.OpCopyAsync, ir.OpCopyCommit, ir.OpCopyWait:
		return false
	}
	e := in.op.Info().Effect
	return e == ir.Writes || e == ir.Synchro
}

// use notes that the transition uses an object.
func (x *explorer) use(kind objectKind, mode useMode, cta, root int32, at int64, gen uint32) {
	u := use{object{kind, cta, root, at}, mode, gen}
	if !slices.Contains(x.uses, u) {
		x.uses = append(x.uses, u)
	}
}

// usesMBar notes a use of an mbarrier of CTA c in a phase: for an arrival or a copy the running one, for a wait the one
// that it has waited for. Arrivals and copies of a phase may be exchanged.
func (m *machine) usesMBar(c *cta, comp int32, mode useMode, phase uint32) {
	if m.ex != nil {
		m.ex.use(objMBar, mode, c.id, 0, int64(comp), phase)
	}
}

// meets notes that w comes to a barrier. What it does behind it happens after all that others have done before.
func (x *explorer) meets(w *warp, b *barrier, id int, wait bool) {
	owner := w.cta.id
	if id == clusterBarrier {
		owner = w.cta.id / int32(max(x.p.kernel.ClusterSize, 1))
	}
	x.use(objBarrier, useAdd, owner, int32(id), -1, uint32(b.gen))
	x.use(objBarrier, useAdd, owner, int32(id), b.gen, 0)
	if wait {
		x.joins[int(w.id)] = append(x.joins[int(w.id)], use{object{objBarrier, owner, int32(id), b.gen}, useRead, 0})
	}
}

// choose picks how many of n places back the transition's strong access goes; all lanes go alike as far as they can.
func (x *explorer) choose(n int) int {
	if n < 2 {
		return 0
	}
	if x.older < 0 {
		if x.older = 0; x.stale < x.bounds.Stale {
			x.older = x.pick(n)
			x.stale += min(x.older, 1)
		}
	}
	return min(x.older, n-1)
}

// pick is the transition's next choice of n.
func (x *explorer) pick(n int) int {
	at := x.path[x.depth]
	if x.taken == len(at.picks) {
		at.picks = append(at.picks, picked{0, n})
	}
	if at.picks[x.taken].n != n {
		panic(fmt.Sprintf("BUG: interp: an execution that is repeated has %d choices where it had %d", n,
			at.picks[x.taken].n))
	}
	x.taken++
	return at.picks[x.taken-1].at
}

// answered says whether w's next instruction can be executed now: whether it is no wait, or one that finds what it
// waits for. What would be a fault is executed.
func (m *machine) answered(w *warp) bool {
	in := &m.p.code[w.pc]
	if in.op == ir.OpSetMaxReg {
		return m.enoughRegisters(w, in)
	}
	if in.op != ir.OpWaitMem && in.op != ir.OpWaitTag && in.op != ir.OpWaitMBar {
		return true
	}
	for l := range 32 {
		if w.mask>>l&1 != 0 && !m.laneAnswered(w, in, l) && !m.raised(w, in, l) {
			return false
		}
	}
	return true
}

func (m *machine) laneAnswered(w *warp, in *inst, l int) bool {
	want := m.in(w, in.a[0])[l]
	if in.op == ir.OpWaitMBar {
		i := m.index(w, &in.mem[0], l)
		if i < 0 || i >= in.mem[0].length {
			return true
		}
		b := &w.cta.mbars[m.p.roots[in.mem[0].root].mbar0+int32(i)]
		return b.count == 0 || want > 1 || uint64(b.phase&1) != want
	}
	v, ok := m.peek(w, &in.mem[0], l, int64(in.size))
	if in.op == ir.OpWaitTag {
		return !ok || v.hi>>32 == want&math.MaxUint32 || m.in2(w, in.a[1])[l]>>32 == want&math.MaxUint32
	}
	return !ok || condHolds(in.attr.Cond, uint32(v.lo), uint32(want))
}

// raised says whether a wait's abort flag is set.
func (m *machine) raised(w *warp, in *inst, l int) bool {
	if len(in.mem) < 2 {
		return false
	}
	v, ok := m.peek(w, &in.mem[1], l, 4)
	return !ok || v.lo != 0
}

// peek is what lies in memory; it is false where a read would be a fault.
func (m *machine) peek(w *warp, r *memRef, l int, n int64) (value, bool) {
	rg := m.region(w, r)
	off := r.base + m.index(w, r, l)*r.elem
	if off < 0 || off+n > int64(len(rg.data)) || off%n != 0 || rg.valid != nil && !rg.isValid(off, n) {
		return value{}, false
	}
	return rg.load(off, n), true
}
