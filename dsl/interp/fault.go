package interp

import (
	"fmt"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
)

// Kind says what rule a kernel broke.
type Kind uint8

// The kinds of faults.
const (
	NoFault          Kind = iota
	DataRace              // conflicting accesses without order
	ProxyRace             // ordered, but no proxy fence between generic and async access
	ScopeRace             // strong accesses whose scopes do not include each other
	Deadlock              // every warp waits
	Livelock              // the step limit is reached
	OutOfBounds           // outside a buffer
	Misaligned            // not at a multiple of the access's size
	Uninitialised         // read before it was written
	InactiveLanes         // a warp collective without all its lanes
	DivergentBarrier      // a barrier without all lanes of the warp
	BarrierCount          // a named barrier used with two thread counts
	CopyRules             // size of a bulk copy
	LoopOverflow          // a loop counter passed its type's end: the loop would not end, or C++ leaves it open
	ArgumentRange         // an approximate function outside of the range in which the GPU's is accurate
	PhaseSkipped          // an mbarrier phase nobody waited for, or a wait that missed its phase
	ArrivalOverflow       // more arrivals than the mbarrier's count
	TxOverflow            // transaction count out of range
	TxMismatch            // a phase completed before its copies
	MBarrierMisuse        // used before initialisation, initialised twice, bad count or parity
	ExitPending           // left with copies or mbarrier phases unfinished
	DivisionByZero        // integer division
	NotUniform            // uniform found different values
	WarpgroupApart        // a collective of a warpgroup to which not all its warps come alike
	AsyncRegister         // a variable of a wgmma touched without its fence or wait
	AssertFailed          // assert found false
	NeverWaited           // a dependent launch without griddep.wait
	Unexpected            // what Options.Watch says is wrong
	Limit                 // the kernel is too large for the executor
	numKinds
)

var kindNames = [numKinds]string{"no fault", "data race", "missing proxy fence", "insufficient scope", "deadlock",
	"livelock", "out of bounds", "misaligned", "uninitialised read", "inactive lanes", "barrier under divergence",
	"barrier count mismatch", "bulk copy rules", "loop counter overflow", "argument out of range",
	"mbarrier phase skipped", "mbarrier arrival overflow", "transaction count overflow", "transaction count mismatch",
	"mbarrier misuse", "exit with work pending", "division by zero", "not uniform", "warpgroup apart",
	"register of a wgmma", "assertion failed", "dependent launch without a wait", "unexpected access", "executor limit"}

// String is the kind in words.
func (k Kind) String() string { return kindNames[k] }

// Side is one of the parties of a fault.
type Side struct {
	What   string // "write", "earlier read", "waits for …"
	Thread string // "cta 1 warp 3 lane 5"
	Op     string // the instruction's name; "" where it is not known
	Region string // the innermost region around it, "" if none
	Pos    ir.Pos
}

// String is the party on one line.
func (s Side) String() string {
	if s.Op == "" {
		return fmt.Sprintf("%s: %s", s.What, s.Thread)
	}
	if s.Region == "" {
		return fmt.Sprintf("%s: %s, %s at %s", s.What, s.Thread, s.Op, s.Pos)
	}
	return fmt.Sprintf("%s: %s, %s in %q at %s", s.What, s.Thread, s.Op, s.Region, s.Pos)
}

// Fault is a kernel's mistake, found while running it. Sides[0] is the
// instruction that showed it.
type Fault struct {
	Kind   Kind
	Text   string
	Sides  []Side
	Buffer string // the buffer concerned, if any
	Index  int64  // the element in it
	Kernel string
	Seed   uint64
	Policy Policy
	Step   int64 // warp instructions executed before
}

// Error is the whole report, over several lines.
func (f *Fault) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", f.Kind, f.Text)
	for _, s := range f.Sides {
		fmt.Fprintf(&b, "\n\t%s", s)
	}
	fmt.Fprintf(&b, "\n\tkernel %s, seed %d (%s), step %d", f.Kernel, f.Seed, f.Policy, f.Step)
	return b.String()
}

func (f *Fault) finish(m *machine) {
	f.Kernel, f.Seed, f.Policy, f.Step = m.p.kernel.Name, m.o.Seed, m.sched.policy, m.steps
}

// fail stops the run. The first fault counts; later ones go nowhere.
func (m *machine) fail(w *warp, in *inst, lane int, kind Kind, format string, args ...any) *Fault {
	f := &Fault{Kind: kind, Text: fmt.Sprintf(format, args...)}
	f.side("here", w, lane, in)
	if m.fault == nil && !(m.void && voided(kind)) {
		m.fault = f
	}
	return f
}

func (f *Fault) at(b *ir.Buf, index int64) *Fault {
	f.Buffer, f.Index = b.Base().Name, index
	return f
}

// side adds a party; nothing when it is unknown.
func (f *Fault) side(what string, w *warp, lane int, in *inst) *Fault {
	if w != nil && in != nil && (in.op != ir.OpInvalid || in.pos.Line != "") {
		f.Sides = append(f.Sides, Side{What: what, Thread: w.thread(lane), Op: in.name(), Region: in.region, Pos: in.pos})
	}
	return f
}

// record adds the party that left r behind.
func (f *Fault) record(m *machine, what string, r record) *Fault {
	if m.isPrior(r) {
		f.Sides = append(f.Sides,
			Side{What: what, Thread: "a launch before this one, which may not have ended before griddep.wait"})
		return f
	}
	cta, wi := m.splitComp(r.comp())
	in := &m.p.code[r.pc()]
	if int(wi) < m.p.kernel.Warps {
		return f.side(what, m.ctas[cta].warps[wi], int(r.lane()), in)
	}
	if n := int(wi) - m.p.kernel.Warps - m.p.mbars; n >= 0 {
		return f.side(what, m.ctas[cta].warps[n%m.p.kernel.Warps], int(r.lane()), in)
	}
	b := &m.ctas[cta].mbars[int(wi)-m.p.kernel.Warps]
	f.Sides = append(f.Sides, Side{What: what, Region: in.region, Pos: in.pos, Op: in.name(),
		Thread: fmt.Sprintf("bulk copy of cta %d completing phase %d of mbarrier %d of %s", cta, r.epoch()-1, b.index,
			b.buf)})
	return f
}

func (w *warp) thread(lane int) string {
	if lane >= anyLane {
		return fmt.Sprintf("cta %d warp %d all lanes", w.cta.id, w.wi)
	}
	return fmt.Sprintf("cta %d warp %d lane %d", w.cta.id, w.wi, lane)
}

func (in *inst) name() string {
	if in.op == ir.OpInvalid {
		return "control flow"
	}
	n := in.op.String()
	if in.attr.Order != ir.Weak {
		n += "." + in.attr.Order.String()
		if in.attr.Scope >= ir.CTA {
			n += "." + in.attr.Scope.String()
		}
	}
	if len(in.mem) > 0 {
		n += " " + in.mem[0].buf.String()
	}
	return n
}

// laneList writes a mask as ranges, "0-3,8".
func laneList(mask uint32) string {
	var parts []string
	for l := 0; l < 32; l++ {
		if mask>>l&1 == 0 {
			continue
		}
		first := l
		for l < 31 && mask>>(l+1)&1 != 0 {
			l++
		}
		if first == l {
			parts = append(parts, fmt.Sprint(l))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", first, l))
		}
	}
	return strings.Join(parts, ",")
}
