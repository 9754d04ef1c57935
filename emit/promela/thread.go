package promela

import (
	"fmt"
	"maps"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
)

// thread writes the text of one thread: a sequence of steps, each of which begins with a synchronising operation and
// holds what follows it up to the next. Plain accesses are no steps of their own: a race is found by order, not by
// time.
type thread struct {
	x *exporter
	agent
	warp, lane int
	values     map[*ir.Value][]word
	vars       map[*ir.Var][]word
	met        map[*bar]int // barriers that it has been at
	shuffles   int
	regs       int
	nreg       int  // registers that it has asked for; 0: it has those of the launch
	open       bool // a step is open
	lines      []string
}

func (t *thread) name() string { return fmt.Sprintf("cta%d_warp%d_lane%d", t.cta, t.warp, t.lane) }

func (t *thread) tid() uint32 { return uint32(32*t.warp + t.lane) }

// step ends the open step and begins one, which waits for the guard ("" if it waits for nothing).
func (t *thread) step(in *ir.Instr, guard string) {
	t.close()
	what := strings.Map(func(r rune) rune {
		if r == '*' {
			return -1
		}
		return r
	}, in.Op.String()+" "+in.Pos.Line)
	t.lines = append(t.lines, "atomic { /* "+what+" */")
	t.open = true
	if guard != "" {
		t.line("%s ->", guard)
	}
}

func (t *thread) close() {
	if t.open {
		t.lines = append(t.lines, "}")
		t.open = false
	}
}

// line adds a statement to the open step, or begins one.
func (t *thread) line(format string, args ...any) {
	if !t.open {
		t.lines = append(t.lines, "atomic {")
		t.open = true
	}
	t.lines = append(t.lines, fmt.Sprintf(format, args...))
}

// reg is a new variable of the thread; names are given to several of them later (registers).
func (t *thread) reg() word {
	t.regs++
	return word{s: fmt.Sprintf("r#%d#", t.regs)}
}

// assign puts a word into a new variable where it is none yet.
func (t *thread) assign(w word) word {
	if w.known || isReg(w.s) {
		return w
	}
	r := t.reg()
	t.line("%s = %s;", r, w)
	return r
}

// item is a statement that the thread has still to go through, or something to do between statements.
type item struct {
	stmt ir.Stmt
	do   func()
}

func items(b *ir.Block, rest []item) []item {
	if b == nil {
		return rest
	}
	var list []item
	for _, s := range b.Stmts {
		list = append(list, item{stmt: s})
	}
	return append(list, rest...)
}

// walk goes through all that is to do. Behind a branch that is decided when it runs there may be two ways on, which do
// not come together again: then the text of the rest is in both of them.
func (t *thread) walk(todo []item) {
	for len(todo) > 0 {
		next := todo[0]
		todo = todo[1:]
		if next.do != nil {
			next.do()
			continue
		}
		switch s := next.stmt.(type) {
		case *ir.Note:
		case *ir.Region:
			todo = items(s.Body, todo)
		case *ir.Roles:
			for _, r := range s.Roles {
				if t.warp >= r.First && t.warp < r.End {
					todo = items(r.Body, todo)
				}
			}
		case *ir.For:
			todo = t.unroll(s, todo)
		case *ir.If:
			c := t.val(s.Cond)
			switch {
			case !c.known:
				if t.branch(s, c, todo) {
					return
				}
			case c.n != 0:
				todo = items(s.Then, todo)
			default:
				todo = items(s.Else, todo)
			}
		case *ir.Instr:
			t.instr(s)
		default:
			panic(fmt.Sprintf("BUG: promela: statement %T", s))
		}
	}
}

func (t *thread) unroll(s *ir.For, rest []item) []item {
	lo, hi, step := t.val(s.Lo), t.val(s.Hi), t.val(s.Step)
	if !lo.known || !hi.known || !step.known {
		no("the loop at %s has bounds that are only known when it runs", s.Pos)
	}
	var list []item
	for i := lo.n; i < hi.n; i += step.n {
		list = append(list, item{do: func() { t.values[s.I] = []word{number(i)} }})
		list = append(list, items(s.Body, nil)...)
	}
	return append(list, rest...)
}

// way is one side of a branch: its text, and how the thread leaves it.
type way struct {
	lines []string
	vars  map[*ir.Var][]word
	met   map[*bar]int
	open  bool
}

// side writes one side of a branch, and what is behind it, from the state that the thread has.
func (t *thread) side(b *ir.Block, rest []item) way {
	before := *t
	t.lines, t.vars, t.met, t.values = nil, maps.Clone(t.vars), maps.Clone(t.met), maps.Clone(t.values)
	t.walk(items(b, rest))
	w := way{t.lines, t.vars, t.met, t.open}
	regs := t.regs
	*t = before
	t.regs = regs
	return w
}

// branch writes a branch whose condition is known only when it runs. It reports whether the rest is in it, too.
func (t *thread) branch(s *ir.If, c word, rest []item) bool {
	steps := synchronises(s.Then) || s.Else != nil && synchronises(s.Else)
	if steps {
		t.close()
	}
	copies := t.x.copies
	then, other := t.side(s.Then, nil), t.side(s.Else, nil)
	apart := !maps.Equal(then.met, other.met)
	for v, first := range t.vars {
		for w := range first {
			a, b := then.vars[v][w], other.vars[v][w]
			apart = apart || a.known && b.known && a != b
		}
	}
	if apart {
		t.x.copies = copies
		t.close()
		t.branches(c, t.side(s.Then, rest), t.side(s.Else, rest), true)
		return true
	}
	t.vars = maps.Clone(t.vars)
	for _, v := range t.x.k.Vars {
		if _, ok := t.vars[v]; ok {
			t.vars[v] = t.joined(v, &then, &other)
		}
	}
	t.branches(c, then, other, steps)
	return false
}

// joined is what a variable is behind a branch, whatever it was on the two sides.
func (t *thread) joined(v *ir.Var, then, other *way) (list []word) {
	for w, a := range then.vars[v] {
		b := other.vars[v][w]
		if a != b {
			r := t.reg()
			then.set(r, a)
			other.set(r, b)
			a = r
		}
		list = append(list, a)
	}
	return list
}

func (w *way) set(r, value word) {
	if !w.open {
		w.lines, w.open = append(w.lines, "atomic {"), true
	}
	w.lines = append(w.lines, fmt.Sprintf("%s = %s;", r, value))
}

// branches writes a branch with both sides, each of which has steps of its own or is a part of the open step.
func (t *thread) branches(c word, then, other way, steps bool) {
	t.lines = append(t.lines, "if")
	for i, w := range []way{then, other} {
		t.lines = append(t.lines, []string{fmt.Sprintf(":: %s ->", c), ":: else ->"}[i])
		if len(w.lines) == 0 {
			w.lines = []string{"skip;"}
		}
		t.lines = append(t.lines, w.lines...)
		if steps && w.open {
			t.lines = append(t.lines, "}")
		}
	}
	t.lines = append(t.lines, "fi;")
}

// synchronises reports whether a block has an operation that begins a step.
func synchronises(b *ir.Block) bool {
	found := false
	ir.Walk(b, func(s ir.Stmt) bool {
		if in, ok := s.(*ir.Instr); ok {
			found = found || in.Op.Info().Effect == ir.Synchro || in.Attr.Order != ir.Weak || in.Op == ir.OpShflXor
		}
		return !found
	})
	return found
}

func (t *thread) vals(v *ir.Value) []word {
	if v.Const {
		return []word{number(uint32(v.Bits))}
	}
	w, ok := t.values[v]
	if !ok {
		no("%s has no form", v)
	}
	return w
}

func (t *thread) val(v *ir.Value) word { return t.vals(v)[0] }

// instr writes an operation, or computes it.
func (t *thread) instr(in *ir.Instr) {
	set := func(w ...word) { t.values[in.Res[0]] = w }
	arg := func(i int) word { return t.val(in.Args[i]) }
	switch in.Op {
	case ir.OpLane:
		set(number(uint32(t.lane)))
	case ir.OpWarp:
		set(number(uint32(t.warp)))
	case ir.OpTid:
		set(number(t.tid()))
	case ir.OpCTA:
		set(number(uint32(t.cta)))
	case ir.OpGrid:
		set(number(uint32(t.x.k.Grid)))
	case ir.OpUniform, ir.OpOpaque:
		set(t.vals(in.Args[0])...)
	case ir.OpAssert:
	case ir.OpVar, ir.OpSet:
		var ws []word
		for _, w := range t.vals(in.Args[0]) {
			ws = append(ws, t.assign(w))
		}
		t.vars[in.Attr.Var] = ws
	case ir.OpGet:
		set(append([]word(nil), t.vars[in.Attr.Var]...)...)
	case ir.OpSplit:
		for i, w := range t.vals(in.Args[0]) {
			t.values[in.Res[i]] = []word{w}
		}
	case ir.OpJoin:
		set(arg(0), arg(1), arg(2), arg(3))
	case ir.OpNot:
		if in.Args[0].Type != ir.Pred {
			no("%s at %s is of %s", in.Op, in.Pos, in.Args[0].Type)
		}
		set(binary[ir.OpEq].of(arg(0), number(0)))
	case ir.OpSelect:
		set(choice(arg(0), arg(1), arg(2)))
	case ir.OpShflXor:
		set(t.shuffle(in))
	default:
		if f, ok := binary[in.Op]; ok && in.T != ir.F32 {
			set(f.of(arg(0), arg(1)))
			return
		}
		t.memory(in)
	}
}

// shuffle is shfl.xor: what the last lane of the model has, since it stands for all lanes but those before it, and they
// do the same. It orders no memory.
func (t *thread) shuffle(in *ir.Instr) word {
	w := t.val(in.Args[0])
	if t.x.o.Lanes == 1 {
		return w
	}
	i := t.shuffles
	t.shuffles++
	slot := fmt.Sprintf("shuffled[%d]", t.x.lay.shuffle(t.cta, t.warp, i))
	count := fmt.Sprintf("shuffles[%d]", t.cta*t.x.k.Warps+t.warp)
	if t.lane == t.x.o.Lanes-1 {
		w = t.assign(w)
		t.step(in, "")
		t.line("%s = %s; %s++;", slot, w, count)
		return w
	}
	t.step(in, fmt.Sprintf("(%s > %d)", count, i))
	r := t.reg()
	t.line("%s = %s; %s = 0;", r, slot, slot)
	return r
}
