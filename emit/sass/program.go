package sass

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
)

// place is a point of the program: an event, a plain access, or where paths meet (no kind).
type place struct {
	kind     string
	plain    bool      // an access that events order, but no event
	optional bool      // the compiler may leave it out
	in       *ir.Instr // nil for the entry, the end, and where paths meet
	arms     []arm     // that it is in, the outermost first
	next     []int
}

// arm is one of the two sides of a condition.
type arm struct {
	of   *ir.If
	then bool
}

// apart says whether places are on the two sides of a condition, so that each time the program comes to it one of them
// is passed over.
func (p *program) apart(a, b int) bool {
	for _, x := range p.places[a].arms {
		if slices.Contains(p.places[b].arms, arm{x.of, !x.then}) {
			return true
		}
	}
	return false
}

// sameLine says whether places stand for instructions of one line of a template, from wherever it is called.
func (p *program) sameLine(a, b int) bool {
	x, y := p.places[a].in, p.places[b].in
	return x != nil && y != nil && x.Op == y.Op && x.Pos.Line == y.Pos.Line && p.places[a].kind == p.places[b].kind
}

// sameStatement says whether places stand for copies of one statement of a template.
func (p *program) sameStatement(a, b int) bool {
	return p.sameLine(a, b) && p.places[a].in.Pos == p.places[b].in.Pos
}

// program is the graph of a kernel's places; 0 is the entry.
type program struct {
	places  []place
	follows [][]int // by place, once asked for: the events that come next
	plains  []map[int]bool
	prior   [][]int // by place: those that lead to it
}

// item is one machine instruction that an instruction of the program becomes.
type item struct {
	kind     string
	optional bool
}

// newProgram is the graph of k for machine code or for PTX. printed says which instructions the text has at all.
func newProgram(k *ir.Kernel, printed map[*ir.Instr]bool, ptx bool) (*program, error) {
	p := &program{places: []place{{}}}
	b := builder{p: p, printed: printed, ptx: ptx}
	ends := b.block(k.Body, []int{0})
	b.add(ends, place{kind: kindExit})
	p.follows, p.plains = make([][]int, len(p.places)), make([]map[int]bool, len(p.places))
	p.prior = make([][]int, len(p.places))
	for i, pl := range p.places {
		for _, n := range pl.next {
			p.prior[n] = append(p.prior[n], i)
		}
	}
	return p, b.err
}

type builder struct {
	p       *program
	printed map[*ir.Instr]bool
	ptx     bool
	arms    []arm // of what is appended
	err     error
}

// add appends a place behind others and returns it as the only end.
func (b *builder) add(from []int, pl place) []int {
	at := len(b.p.places)
	pl.arms = slices.Clone(b.arms)
	b.p.places = append(b.p.places, pl)
	b.link(from, at)
	return []int{at}
}

func (b *builder) link(from []int, to int) {
	for _, f := range from {
		b.p.places[f].next = append(b.p.places[f].next, to)
	}
}

// block appends the statements of a block behind the places from and returns where it can end.
func (b *builder) block(blk *ir.Block, from []int) []int {
	for _, s := range blk.Stmts {
		switch s := s.(type) {
		case *ir.Instr:
			from = b.instr(s, from)
		case *ir.For:
			head := b.add(from, place{})
			b.link(b.block(s.Body, head), head[0])
			from = head
		case *ir.If:
			then, other := b.arm(arm{s, true}, s.Then, from), from
			if s.Else != nil {
				other = b.arm(arm{s, false}, s.Else, from)
			}
			from = b.add(append(append([]int{}, then...), other...), place{})
		case *ir.Roles:
			ends := slices.Clone(from) // the text asks for the warp's number even where every warp has a role
			for _, r := range s.Roles {
				ends = append(ends, b.block(r.Body, from)...)
			}
			from = b.add(ends, place{})
		case *ir.Region:
			from = b.block(s.Body, from)
		}
	}
	return from
}

// arm appends a side of a condition.
func (b *builder) arm(a arm, blk *ir.Block, from []int) []int {
	b.arms = append(b.arms, a)
	ends := b.block(blk, from)
	b.arms = b.arms[:len(b.arms)-1]
	return ends
}

func (b *builder) instr(in *ir.Instr, from []int) []int {
	if !b.printed[in] {
		return from
	}
	if in.Op.Waits() {
		return b.wait(in, from)
	}
	seq, err := items(in)
	if err != nil && b.err == nil {
		b.err = err
	}
	if b.ptx && err == nil {
		seq = asWritten(in, seq)
	}
	ends := b.sequence(in, seq, from)
	if in.Op == ir.OpBarCluster && !b.ptx { // what ptxas makes of it where a cluster has one CTA, which is asked for
		alone := b.sequence(in, []item{{kind: "bar.sync 0"}}, from)
		b.p.places[alone[0]].optional = true
		ends = append(ends, alone...)
	}
	return ends
}

// sequence appends the machine instructions that in becomes, one behind the other.
func (b *builder) sequence(in *ir.Instr, seq []item, from []int) []int {
	for _, it := range seq {
		to := b.add(from, place{kind: it.kind, plain: isPlain(it.kind), optional: it.optional, in: in})
		if it.kind == kindRegisters {
			b.link(to, to[0]) // asked for until they are there
		}
		if it.optional {
			to = append(to, from...)
		}
		from = to
	}
	return from
}

// wait is a poll that repeats until it is answered, or until the flag that ends the launch is seen.
func (b *builder) wait(in *ir.Instr, from []int) []int {
	head := b.add(from, place{})
	ends := b.add(head, place{kind: pollKind(in), in: in})
	if in.Op == ir.OpWaitMem && in.Attr.Order == ir.Acquire && in.Attr.Scope > ir.CTA {
		ends = b.add(ends, place{kind: kindInval, in: in})
	}
	if in.Op == ir.OpWaitTag {
		ends = append(ends, head[0]) // what was read before may be right
	}
	if len(in.Mem) > 1 {
		flag := b.add(ends, place{kind: access("ld", ir.Sys, 32), in: in})
		b.link(flag, head[0])
		for range len(in.Mem) - 2 { // a note of it, once a warp
			read := b.add(flag, place{kind: plainSharedLoad, plain: true, in: in})
			flag = append(flag, b.add(read, place{kind: plainSharedStore, plain: true, in: in})...)
		}
		ends = append(ends, flag...)
	}
	b.link(ends, head[0])
	return b.add(ends, place{})
}

// follow is the events that may come next behind place at, and the plain accesses that may lie between: those that the
// program has there, and those that only events part from there which do not order them, so that the compiler may
// exchange both.
func (p *program) follow(at int) (events []int, plains map[int]bool) {
	if p.plains[at] != nil {
		return p.follows[at], p.plains[at]
	}
	plains = map[int]bool{}
	var found []int
	p.reach(at, p.next, func(n int) bool {
		pl := &p.places[n]
		if pl.plain {
			plains[n] = true
		} else if pl.kind != "" {
			found = append(found, n)
		}
		return pl.kind == "" || pl.plain
	})
	for _, space := range []string{"global", "shared"} {
		visit := func(n int) bool { return p.passable(n, space, plains) }
		for _, e := range found {
			if lets(p.places[e].kind, space) {
				p.reach(e, p.next, visit)
			}
		}
		if lets(p.places[at].kind, space) {
			p.reach(at, p.before, visit)
		}
	}
	p.follows[at], p.plains[at] = found, plains
	return found, plains
}

// passable notes a plain access to a space, and says whether such accesses may be exchanged with place n.
func (p *program) passable(n int, space string, plains map[int]bool) bool {
	pl := &p.places[n]
	if pl.plain && strings.HasSuffix(pl.kind, space) {
		plains[n] = true
	}
	return pl.kind == "" || pl.plain || lets(pl.kind, space)
}

func (p *program) next(at int) []int   { return p.places[at].next }
func (p *program) before(at int) []int { return p.prior[at] }

// reach calls visit for places that lead on from at, each once, and goes on behind those for which it is true.
func (p *program) reach(at int, way func(int) []int, visit func(int) bool) {
	seen, todo := map[int]bool{}, []int{at}
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, n := range way(i) {
			if !seen[n] {
				seen[n] = true
				if visit(n) {
					todo = append(todo, n)
				}
			}
		}
	}
}

// say is a place in words: its kind, op and Go line.
func (p *program) say(at int) string {
	pl := &p.places[at]
	switch {
	case at == 0:
		return "the start"
	case pl.in == nil:
		return "the end"
	}
	return fmt.Sprintf("%s of %s at %s", pl.kind, pl.in.Op, pl.in.Pos.Line)
}
