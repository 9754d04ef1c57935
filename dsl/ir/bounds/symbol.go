package bounds

import (
	"encoding/binary"
	"slices"

	"github.com/mkgen/mkgen/dsl/ir"
)

// kind is how a symbol comes about.
type kind uint8

const (
	opaque    kind = iota
	wrapped        // x, modulo the width of its type
	quotient       // ⌊x/n⌋, x not negative
	remainder      // x mod n, x not negative
	ratio          // ⌊x/y⌋, x not negative, y positive
	residue        // x mod y
	smaller        // min(x, y)
	larger         // max(x, y)
	chosen         // cond ? x : y
	product        // x·y
	bitwise        // at most x + y: or, xor
	masked         // at most x: and
	index          // a loop's, from x to y − 1
	alias          // x, for short
	power          // n·2^x
	root           // ⌊n/2^x⌋
	field          // an element of a buffer of known content
)

// symbol is an integer that a thread computes or is given.
type symbol struct {
	id int
	interval
	kind     kind
	x, y     form
	n        int64
	cond     *cond
	mod, rem int64  // the symbol is rem modulo mod
	ups      []form // it is at most each of these
	downs    []form // and at least each of these
	facts    []*fact
	deps     []form // what an opaque symbol was made of
	wrap     *wrap
	guess    bool // its bounds are those before a loop, until it is seen what the loop does
	cell     *cell
	word     *Word // what the caller says of it
}

// wrap is where a value may have left its type's range.
type wrap struct {
	in    *ir.Instr
	exact interval // of what it would be without a bound
	t     ir.Type
}

func (w *wrap) same(x *wrap) bool { return w.in == x.in }

// fact is f ≤ 0.
type fact struct{ f form }

// cell is an element of a table: a word of a row.
type cell struct {
	table *Table
	row   form
	key   rowKey
	word  int
}

// rowKey is a row of a table as a map's key.
type rowKey struct {
	table *Table
	row   string
}

// scoped is one change that leaving a scope undoes.
type scoped struct {
	s      *symbol
	was    interval
	fact   bool
	choice bool
	key    string
	serial int
}

func (a *analysis) fresh(k kind, iv interval) *symbol {
	s := &symbol{id: a.next, interval: iv, kind: k, mod: 1}
	a.next++
	return s
}

// unknown is a value of a type of which nothing is known.
func (a *analysis) unknown(t ir.Type) val { return a.value(a.fresh(opaque, rangeOf(t))) }

func (a *analysis) value(s *symbol) val {
	if s.lo == s.hi {
		return val{f: constant(s.lo), iv: s.interval, known: true}
	}
	return val{f: of(s), iv: s.interval, known: true}
}

// shared is the symbol that make has made for the same key in this scope or one around it.
func (a *analysis) shared(k kind, x, y form, n int64, make func() *symbol) *symbol {
	key := consKey(k, x, y, n)
	if s, ok := a.cons[key]; ok {
		return s
	}
	s := make()
	if own, ok := a.cons[key]; ok { // what bounds it has made it, too
		return own
	}
	s.x, s.y, s.n = x, y, n
	a.cons[key] = s
	if s.cell != nil {
		a.live[s.cell.key] = append(a.live[s.cell.key], s)
	}
	a.note(scoped{key: key})
	return s
}

func consKey(k kind, x, y form, n int64) string {
	return string(binary.AppendVarint([]byte{byte(k)}, n)) + x.key() + "/" + y.key()
}

// note keeps what leaving the scope undoes.
func (a *analysis) note(c scoped) {
	a.serial++
	c.serial = a.serial
	a.trail = append(a.trail, c)
}

// knowledge is a number that what is known has here and nowhere else.
func (a *analysis) knowledge() int {
	if len(a.trail) == 0 {
		return 0
	}
	return a.trail[len(a.trail)-1].serial
}

// enter begins a scope; leave undoes what was learnt in it.
func (a *analysis) enter() (mark int, dead bool) { return len(a.trail), a.dead }

func (a *analysis) leave(mark int, dead bool) {
	for len(a.trail) > mark {
		c := a.trail[len(a.trail)-1]
		a.trail = a.trail[:len(a.trail)-1]
		switch {
		case c.key != "":
			if s := a.cons[c.key]; s.cell != nil {
				a.live[s.cell.key] = slices.DeleteFunc(a.live[s.cell.key], func(t *symbol) bool { return t == s })
			}
			delete(a.cons, c.key)
		case c.choice:
			a.choices = a.choices[:len(a.choices)-1]
		case c.fact:
			c.s.facts = c.s.facts[:len(c.s.facts)-1]
		default:
			c.s.interval = c.was
		}
	}
	a.dead = dead
}

// hi and lo bound a form by the bounds of its symbols; words of one row of a table are
// looked at together, row by row.
func (a *analysis) hi(f form) int64 {
	total, tables := f.k, false
	for _, t := range f.terms {
		if t.s.cell != nil {
			tables = true
			continue
		}
		total = addHi(total, t.upper())
	}
	if tables {
		total = a.tables(f, total)
	}
	return total
}

func (a *analysis) lo(f form) int64 {
	total := f.k
	for _, t := range f.terms {
		if t.s.cell != nil {
			return -a.hi(f.negated())
		}
		total = add(total, t.lower())
	}
	return total
}

func (a *analysis) both(f form) interval { return interval{a.lo(f), a.hi(f)} }

// upper is the most that the term can be.
func (t term) upper() int64 {
	if t.c > 0 {
		return mul(t.c, t.s.hi)
	}
	return mul(t.c, t.s.lo)
}

// lower is the least that the term can be.
func (t term) lower() int64 {
	if t.c > 0 {
		return mul(t.c, t.s.lo)
	}
	return mul(t.c, t.s.hi)
}

// tables adds to total, the bound of all other terms, those of words of tables.
func (a *analysis) tables(f form, total int64) int64 {
	for i, t := range f.terms {
		c := t.s.cell
		if c == nil || seenRow(f.terms[:i], c) {
			continue
		}
		best := -inf
		rows := a.both(c.row).meet(interval{0, int64(c.table.rows() - 1)})
		own, isRow := c.row.single()
		var rowCoef int64
		if isRow {
			rowCoef = f.coef(own)
		}
		known, words := a.live[c.key], make([]term, 0, 8)
		for _, t := range f.terms[i:] {
			if c.beside(t.s) {
				words = append(words, t)
			}
		}
		for r := rows.lo; r <= rows.hi; r++ {
			if c.excludes(r, known) {
				continue
			}
			v := mul(rowCoef, r)
			for _, t := range words {
				v = add(v, mul(t.c, c.table.at(r, t.s.cell.word)))
			}
			best = max(best, v)
		}
		if rowCoef != 0 {
			total = add(total, -term{own, rowCoef}.upper())
		}
		total = addHi(total, best)
	}
	return total
}

func seenRow(before []term, c *cell) bool {
	return slices.ContainsFunc(before, func(t term) bool { return c.beside(t.s) })
}

// beside reports whether a symbol is a word of the same row as c.
func (c *cell) beside(s *symbol) bool {
	return s.cell != nil && s.cell.key == c.key
}

// excludes reports whether row r of c's table is not c's, since one of the words known of c's row
// is another.
func (c *cell) excludes(r int64, known []*symbol) bool {
	for _, s := range known {
		if w := c.table.at(r, s.cell.word); w < s.lo || w > s.hi {
			return true
		}
	}
	return false
}

// congruence is what the form is modulo what; modulo 0 it is a number.
func congruence(f form) (mod, rem int64) {
	rem = f.k
	for _, t := range f.terms {
		mod = gcd(mod, mul(t.c, t.s.mod))
		rem = add(rem, mul(t.c, t.s.rem))
	}
	if mod > 0 {
		rem = ((rem % mod) + mod) % mod
	}
	return mod, rem
}

// multiple reports whether the form is a multiple of n.
func multiple(f form, n int64) bool {
	mod, rem := congruence(f)
	return mod%n == 0 && rem%n == 0
}
