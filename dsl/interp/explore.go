package interp

import (
	"slices"

	"github.com/mkgen/mkgen/dsl/ir"
)

// Exploration instead of drawn schedules: stateless model checking. A program is run again and again from its start,
// each time with other choices, until one execution of every equivalence class has been seen. Two executions are
// equivalent when they order all dependent operations alike. What is explored and what is not: docs/verify.md.
//
// The algorithm is source-DPOR with sleep sets (Abdulla, Aronis, Jonsson and Sagonas, Optimal Dynamic Partial Order
// Reduction, POPL 2014). Processes are warps, and bulk copies between issue and completion. A transition is one
// synchronising instruction and what its warp executes behind it up to the next one; plain accesses are no choice,
// since the race check is about order and does not depend on when they execute. A wait can be executed only when it
// would be answered.

// Bounds of an exploration.
type Bounds struct {
	Executions int // at most this many are begun; 0: no bound
	Stale      int // strong loads that see an older value than the newest, and stores put before others, an execution
}

// Exploration is what was explored.
type Exploration struct {
	Executions  int   // run to their ends
	Cut         int   // left where all that could follow had been explored
	Transitions int64 // executed, in both
	Longest     int   // transitions of the longest execution
	Complete    bool  // nothing is left to explore within Bounds.Stale
}

// Explore executes the program once for each way in which its synchronising operations can be ordered, and stops at the
// first fault (an error that is a *Fault). mem makes the memory that an execution starts with. Seed, Policy and Host of
// the options are not used.
func (p *Program) Explore(mem func() *Memory, o Options, b Bounds) (*Exploration, error) {
	o.Host = nil
	x := &explorer{p: p, bounds: b, procs: map[procName]int{}}
	for b.Executions == 0 || x.Executions+x.Cut < b.Executions {
		m, err := p.newMachine(mem(), o)
		if err != nil {
			return nil, err
		}
		if err := x.run(m); err != nil {
			return &x.Exploration, err
		}
		if !x.back() {
			x.Complete = true
			break
		}
	}
	return &x.Exploration, nil
}

// objectKind says what processes meet at.
type objectKind uint8

const (
	objWord      objectKind = iota // accessed strongly
	objMBar                        // an mbarrier
	objBarrier                     // a barrier of the CTA or cluster
	objEnd                         // of a CTA: whether copies are in flight
	objRegisters                   // that warps of a CTA have given up
	objOther                       // fence.sc, marks of launches: one order for all
)

type object struct {
	kind objectKind
	cta  int32
	root int32
	at   int64
}

// useMode says which uses of an object may be exchanged: reads may, and adds of the same generation.
type useMode uint8

const (
	useRead useMode = iota
	useAdd
	useWrite
)

type use struct {
	object
	mode useMode
	gen  uint32
}

func conflict(a, b use) bool {
	return a.object == b.object && (a.mode == useWrite || b.mode == useWrite || a.mode != b.mode || a.mode == useAdd &&
		a.gen != b.gen)
}

// reversible says whether a later transition's uses b could have come before a's: not where all that they conflict in
// is that b is let go on by a, with others: who has waited at a barrier, or for the phase of an mbarrier, has waited
// for every arrival. Who has got registers has waited for those that others gave up, as far as they were needed, and
// the others give theirs up whatever he does.
func reversible(a, b []use) bool {
	for _, x := range a {
		for _, y := range b {
			lets := x.kind == objRegisters || x.mode == useAdd && y.mode == useRead && (x.kind == objBarrier ||
				x.kind == objMBar && x.gen == y.gen)
			if conflict(x, y) && !lets {
				return true
			}
		}
	}
	return false
}

func dependent(a, b []use) bool {
	for _, x := range a {
		if slices.ContainsFunc(b, func(y use) bool { return conflict(x, y) }) {
			return true
		}
	}
	return false
}

// procName is a warp (copy 0), or the nth copy that it has issued.
type procName struct {
	warp int32
	copy int32
}

// event is an executed transition: the process's seq-th, with what it knows of the others.
type event struct {
	proc  int
	seq   int32
	clock []int32 // by process: the latest event that happens before this one, or is it
	uses  []use
}

// node is a state on the current path: what can be done there, what has been, and what is done now.
type node struct {
	enabled []int
	asleep  map[int][]use // explored from an earlier state, and nothing that has happened since depends on it
	done    map[int][]use
	todo    []int // to be explored
	now     int
	picks   []picked // values chosen in the transition
}

// picked is a choice of one of n.
type picked struct{ at, n int }

// explorer keeps the path between executions.
type explorer struct {
	Exploration
	p      *Program
	bounds Bounds
	path   []*node
	procs  map[procName]int
	fresh  int // the first node whose transition has not been executed yet

	events []event
	users  map[object][]int // events that have used an object, in order
	clocks [][]int32        // by process
	depth  int
	taken  int   // picks of the transition that executes
	older  int   // how far its loads look back; −1: not chosen
	stale  int   // so far
	uses   []use // of the transition that executes
	joins  map[int][]use
	copies map[int32]int32 // by warp: issued
	born   []int           // copies issued by the transition that executes
	draw   func(n int) int // of a test: chooses one of n processes, whatever has been explored
}

// run executes along the path and on from its end.
func (x *explorer) run(m *machine) error {
	m.ex = x
	m.sched.stale = 0
	x.events, x.clocks, x.stale, x.depth = x.events[:0], x.clocks[:0], 0, 0
	x.joins, x.copies, x.users = map[int][]use{}, map[int32]int32{}, map[object][]int{}
	for _, w := range m.warps {
		x.proc(procName{warp: w.id})
		x.invisible(m, w)
	}
	for m.fault == nil {
		enabled := x.enabled(m)
		if len(enabled) == 0 {
			break
		}
		if x.depth == len(x.path) && !x.extend(enabled) {
			x.Cut++
			return nil
		}
		x.transition(m, x.path[x.depth])
		x.depth++
		x.Transitions++
	}
	x.Executions++
	if m.o.Ended != nil && m.fault == nil && m.live == 0 {
		m.o.Ended()
	}
	x.Longest = max(x.Longest, x.depth)
	if m.fault == nil && m.live > 0 {
		for _, w := range m.warps {
			if w.state == running { // it is to say what it waits for
				m.burst(w, 1)
			}
		}
		m.deadlock()
	}
	m.checkWaited()
	if m.fault == nil {
		return nil
	}
	m.fault.finish(m)
	return m.fault
}

// extend adds a node for the state reached. It is false where whatever can follow was explored from another state.
func (x *explorer) extend(enabled []int) bool {
	n := &node{enabled: enabled, asleep: map[int][]use{}, done: map[int][]use{}}
	if x.depth > 0 {
		above, uses := x.path[x.depth-1], x.events[x.depth-1].uses
		for _, explored := range []map[int][]use{above.asleep, above.done} {
			for p, u := range explored {
				if p != above.now && !dependent(u, uses) {
					n.asleep[p] = u
				}
			}
		}
	}
	if x.draw != nil {
		n.now = enabled[x.draw(len(enabled))]
		x.path = append(x.path, n)
		return true
	}
	for _, p := range enabled {
		if _, sleeps := n.asleep[p]; !sleeps {
			n.now, n.todo = p, []int{p}
			x.path = append(x.path, n)
			return true
		}
	}
	return false
}

// back moves the path to the next choice. It is false when there is none.
func (x *explorer) back() bool {
	for len(x.path) > 0 {
		n := x.path[len(x.path)-1]
		for len(n.picks) > 0 {
			last := &n.picks[len(n.picks)-1]
			if last.at++; last.at < last.n {
				x.fresh = len(x.path) - 1
				return true
			}
			n.picks = n.picks[:len(n.picks)-1]
		}
		for _, p := range n.todo {
			_, sleeps := n.asleep[p]
			if _, done := n.done[p]; !done && !sleeps {
				n.now = p
				x.fresh = len(x.path) - 1
				return true
			}
		}
		x.path = x.path[:len(x.path)-1]
	}
	return false
}

// transition executes one of the node's process and finds the races that it is in.
func (x *explorer) transition(m *machine, n *node) {
	x.uses, x.taken, x.older = x.joins[n.now], 0, -1
	delete(x.joins, n.now)
	if n.now < len(m.warps) {
		w := m.warps[n.now]
		before := len(m.flight)
		switch m.p.code[w.pc].op {
		case ir.OpFence, ir.OpWGMMA, ir.OpWGMMAWait, ir.OpGridWait, ir.OpGridLaunch:
			x.use(objOther, useWrite, 0, 0, 0, 0)
		}
		m.burst(w, 1)
		for _, f := range m.flight[min(before, len(m.flight)):] {
			x.issued(f)
		}
	} else {
		i := slices.IndexFunc(m.flight, func(f *flight) bool { return f.proc == n.now })
		x.use(objEnd, useAdd, m.flight[i].cta.id, 0, 0, 0)
		m.complete(i)
	}
	for _, w := range m.warps { // this one, and those that it has let go on
		x.invisible(m, w)
	}
	x.note(n)
}

// note adds the event that was executed, with what happens before it, and adds what is to be explored for its races.
func (x *explorer) note(n *node) {
	p := n.now
	n.done[p] = append(n.done[p], x.uses...)
	own := make([]int32, len(x.procs))
	copy(own, x.clocks[p])
	var races []int
	for _, i := range x.before() {
		e := &x.events[i]
		if e.proc == p || own[e.proc] >= e.seq || !dependent(e.uses, x.uses) {
			continue
		}
		if reversible(e.uses, x.uses) {
			races = append(races, i)
		}
		join(own, e.clock)
	}
	for _, u := range x.uses {
		if list := x.users[u.object]; len(list) == 0 || list[len(list)-1] != len(x.events) {
			x.users[u.object] = append(list, len(x.events))
		}
	}
	own[p]++
	x.events = append(x.events, event{p, own[p], own, x.uses})
	x.clocks[p] = own
	for _, c := range x.born {
		x.clocks[c] = own
	}
	x.born = x.born[:0]
	if x.depth >= x.fresh {
		for _, i := range races {
			x.reverse(i)
		}
	}
	x.uses = nil
}

// before are the events that have used an object of the transition that was executed, the latest first.
func (x *explorer) before() (list []int) {
	seen := map[object]bool{}
	for _, u := range x.uses {
		if !seen[u.object] {
			seen[u.object] = true
			list = append(list, x.users[u.object]...)
		}
	}
	slices.SortFunc(list, func(a, b int) int { return b - a })
	return slices.Compact(list)
}

func join(a, b []int32) {
	for i, v := range b {
		a[i] = max(a[i], v)
	}
}

// reverse makes sure that the state before event i explores a process that can begin an execution in which the last
// event comes before event i, where there is one.
func (x *explorer) reverse(i int) {
	first, n := &x.events[i], x.path[i]
	after := func(e *event) bool { return e.clock[first.proc] >= first.seq }
	var rest []*event // what does not happen after event i, and the last event
	for k := i + 1; k < len(x.events); k++ {
		if e := &x.events[k]; k == len(x.events)-1 || !after(e) {
			rest = append(rest, e)
		}
	}
	var initials []int
	seen := map[int]bool{}
	for k, e := range rest {
		if seen[e.proc] {
			continue
		}
		seen[e.proc] = true
		behind := slices.ContainsFunc(rest[:k], func(o *event) bool { return e.clock[o.proc] >= o.seq })
		if !behind && slices.Contains(n.enabled, e.proc) {
			initials = append(initials, e.proc)
		}
	}
	for _, p := range initials {
		if slices.Contains(n.todo, p) {
			return
		}
	}
	if len(initials) > 0 {
		n.todo = append(n.todo, initials[0])
	}
}

// proc numbers processes, alike in all executions.
func (x *explorer) proc(name procName) int {
	n, ok := x.procs[name]
	if !ok {
		n = len(x.procs)
		x.procs[name] = n
	}
	for len(x.clocks) <= n {
		x.clocks = append(x.clocks, nil)
	}
	return n
}
