package grammar

import "fmt"

// maxStates bounds what a schema becomes.
const maxStates = 200_000

// edge leads to a state by any byte of a range.
type edge struct {
	lo, hi byte
	to     int32
}

// call goes through a rule and on from a state.
type call struct{ rule, to int32 }

// state is a place in the network.
type state struct {
	edges []edge
	empty []int32 // states that it also is
	calls []call
	end   bool // of a rule
	last  bool // nothing is behind it but the rule's end; see markLast
}

// net is a network under construction. A rule is known by its first state. Methods that take a state and return another
// build a way from the one to the other.
type net struct {
	states []state
	shared map[string]int32 // rules that are built once
}

// tooLarge is what add panics with, for compile to catch.
type tooLarge struct{}

func (n *net) add() int32 {
	if len(n.states) >= maxStates {
		panic(tooLarge{})
	}
	n.states = append(n.states, state{})
	return int32(len(n.states) - 1)
}

func (n *net) also(from, to int32) { n.states[from].empty = append(n.states[from].empty, to) }

func (n *net) byteTo(from int32, lo, hi byte, to int32) {
	n.states[from].edges = append(n.states[from].edges, edge{lo, hi, to})
}

// byte is a way of one byte of a range.
func (n *net) byte(from int32, lo, hi byte) int32 {
	to := n.add()
	n.byteTo(from, lo, hi, to)
	return to
}

// text is a way of these bytes.
func (n *net) text(from int32, text string) int32 {
	for i := range len(text) {
		from = n.byte(from, text[i], text[i])
	}
	return from
}

// either is a way through one of several.
func (n *net) either(from int32, ways ...func(int32) int32) int32 {
	to := n.add()
	for _, way := range ways {
		begin := n.add()
		n.also(from, begin)
		n.also(way(begin), to)
	}
	return to
}

// maybe is a way, or nothing.
func (n *net) maybe(from int32, way func(int32) int32) int32 {
	return n.either(from, way, func(s int32) int32 { return s })
}

// times is a way lo to hi times over; hi below 0 for any number.
func (n *net) times(from int32, lo, hi int, way func(int32) int32) int32 {
	for range lo {
		from = way(from)
	}
	if hi < 0 {
		again, to := n.add(), n.add()
		n.also(from, again)
		n.also(way(again), again)
		n.also(again, to)
		return to
	}
	to := n.add()
	n.also(from, to)
	for range hi - lo {
		from = way(from)
		n.also(from, to)
	}
	return to
}

// call is a way through a rule.
func (n *net) call(from, rule int32) int32 {
	to := n.add()
	n.states[from].calls = append(n.states[from].calls, call{rule, to})
	return to
}

// rule is one that is built by its first use.
func (n *net) rule(name string, build func(int32) int32) int32 {
	if at, ok := n.shared[name]; ok {
		return at
	}
	begin := n.add()
	n.shared[name] = begin // before it is built: it may recur
	end := build(begin)    // may move n.states
	n.states[end].end = true
	return begin
}

// oneByte is a way of any of these bytes.
func (n *net) oneByte(from int32, bytes string) int32 {
	to := n.add()
	for i := range len(bytes) {
		n.byteTo(from, bytes[i], bytes[i], to)
	}
	return to
}

// mostAtOnce bounds the states that a text may be in at once behind one byte of a pattern, and their edges. (.?){30}
// has 1471 and takes 3 to 10 ms a mask, (.?){500} 24501 and 115 to 200.
const mostAtOnce = 2048

// widest is the most states and edges that a text has at once behind one byte of a way, which begins at a state and is
// the last that was built. It stops counting beyond mostAtOnce.
func (n *net) widest(begin int32) (most int) {
	last := make([]int32, len(n.states)) // the state, and 1, that a state was counted for last
	count := func(from int32) (all int) {
		for work := []int32{from}; len(work) > 0 && all <= mostAtOnce; {
			at := work[len(work)-1]
			work = work[:len(work)-1]
			if last[at] != from+1 {
				last[at] = from + 1
				all += 1 + len(n.states[at].edges)
				work = append(work, n.states[at].empty...)
			}
		}
		return all
	}
	counted := make([]bool, len(n.states))
	look := func(at int32) {
		for !counted[at] {
			counted[at] = true
			if s := &n.states[at]; len(s.edges) > 0 || len(s.empty) != 1 {
				most = max(most, count(at))
				return
			}
			at = n.states[at].empty[0] // as behind most characters
		}
	}
	look(begin)
	for i := begin; int(i) < len(n.states) && most <= mostAtOnce; i++ {
		for _, e := range n.states[i].edges {
			look(e.to)
		}
	}
	return most
}

// prune takes ways out that lead nowhere, and refuses a rule that leads nowhere or comes to itself without a byte.
func (n *net) prune(root int32) error {
	done := make([]bool, len(n.states))
	for changed := true; changed; {
		changed = false
		for i := len(n.states) - 1; i >= 0; i-- { // ends mostly are behind beginnings
			if !done[i] && n.ends(&n.states[i], done) {
				done[i], changed = true, true
			}
		}
	}
	if !done[root] {
		return fmt.Errorf("no value fits it")
	}
	for i := range n.states {
		s := &n.states[i]
		s.edges = keep(s.edges, func(e edge) bool { return done[e.to] })
		s.empty = keep(s.empty, func(to int32) bool { return done[to] })
		s.calls = keep(s.calls, func(c call) bool { return done[c.rule] && done[c.to] })
	}
	return n.checkLoops()
}

// ends reports whether a state is known to lead to an end of its rule.
func (n *net) ends(s *state, done []bool) bool {
	if s.end {
		return true
	}
	for _, e := range s.edges {
		if done[e.to] {
			return true
		}
	}
	for _, to := range s.empty {
		if done[to] {
			return true
		}
	}
	for _, c := range s.calls {
		if done[c.rule] && done[c.to] {
			return true
		}
	}
	return false
}

func keep[T any](all []T, good func(T) bool) []T {
	kept := all[:0]
	for _, x := range all {
		if good(x) {
			kept = append(kept, x)
		}
	}
	return kept
}

// checkLoops refuses rules that come back to themselves before any byte: their texts would never begin. Rules that can
// be empty call none that recur.
func (n *net) checkLoops() error {
	const open, closed = 1, 2
	seen := make([]byte, len(n.states))
	var visit func(rule int32) error
	visit = func(rule int32) error {
		seen[rule] = open
		within := map[int32]bool{rule: true}
		for work := []int32{rule}; len(work) > 0; {
			s := &n.states[work[len(work)-1]]
			work = work[:len(work)-1]
			for _, c := range s.calls {
				if seen[c.rule] == open {
					return fmt.Errorf("a $ref leads back to itself before there is any value")
				}
				if seen[c.rule] == 0 {
					if err := visit(c.rule); err != nil {
						return err
					}
				}
			}
			for _, to := range s.empty {
				if !within[to] {
					within[to] = true
					work = append(work, to)
				}
			}
		}
		seen[rule] = closed
		return nil
	}
	for i := range n.states {
		for _, c := range n.states[i].calls {
			if seen[c.rule] == 0 {
				if err := visit(c.rule); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// markLast marks states that lead to the rule's end and to nothing else.
func (n *net) markLast() {
	seen := make([]bool, len(n.states))
	var mark func(at int32) bool
	mark = func(at int32) bool {
		s := &n.states[at]
		if !seen[at] {
			seen[at] = true // and not last meanwhile: no circle is
			last := len(s.edges) == 0 && len(s.calls) == 0 && (s.end || len(s.empty) > 0)
			for _, to := range s.empty {
				last = mark(to) && last
			}
			s.last = last
		}
		return s.last
	}
	for at := range n.states {
		mark(int32(at))
	}
}
