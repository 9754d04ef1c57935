package bounds

import (
	"reflect"

	"github.com/mkgen/mkgen/dsl/ir"
)

// cells is how many residues of a word's index a buffer's content is told apart by.
const cells = 8

// content is what the kernel has been seen to store into a buffer, whenever it was.
type content struct {
	words  [cells]*stored
	copies []*copied
}

// stored is what words of a residue hold.
type stored struct {
	interval
	ups   []form // each bounds them, over what does not change in a launch
	wraps []*wrap
}

// copied is a store of what was loaded from a buffer of known content: byte at of the one
// is byte at + delta of the other, for those in span.
type copied struct {
	in       *ir.Instr
	from     *ir.Buf
	delta    form
	span     interval
	mod, rem int64 // the first byte is rem modulo mod
	size     int64 // bytes of an element
}

// meets reports whether byte at, that is rem modulo mod, may have been copied.
func (p *copied) meets(iv interval, mod, rem int64) bool {
	if p.span.lo > iv.hi || p.span.hi < iv.lo {
		return false
	}
	g := gcd(p.mod, mod)
	if g == 0 {
		return true
	}
	d := (((rem - p.rem) % g) + g) % g
	return d < p.size
}

// load is a value read from memory: the i-th of an instruction.
func (a *analysis) load(in *ir.Instr, i int) val {
	m, t := in.Mem[0], in.T
	b, f := m.Buf.Base(), a.index(m).plus(int64(i))
	size := int64(m.Buf.Elem.Size())
	at, fits := sum(size, f, 0, form{})
	if c := a.facts.Content[b.Name]; c != nil && b.Space == ir.Global && fits {
		v := val{}
		if t == ir.U32 {
			v = a.word(b, c, f)
		}
		v.src = &source{b, at}
		return v
	}
	if !t.IsInt() {
		return val{}
	}
	if b.Space == ir.Global || t != ir.U32 || !fits {
		return a.unknown(t)
	}
	return a.stored(b, f, at)
}

// word is word f of a buffer of known content.
func (a *analysis) word(b *ir.Buf, c *Content, f form) val {
	stride := int64(c.Stride)
	if c.Table != nil {
		stride = int64(c.Table.Stride)
	}
	mod, rem := congruence(f)
	if stride > 1 && mod%stride != 0 {
		return a.someWord(c, f)
	}
	w, words, ok := int(rem%stride), c.Words, true
	if mod == 0 {
		w = int(((f.k % stride) + stride) % stride)
	}
	if c.Period > 0 {
		if words, ok = a.periodic(c, f); !ok {
			return a.unknown(ir.U32)
		}
	}
	s := a.once(b, f, func() *symbol {
		s := a.fresh(field, rangeOf(ir.U32))
		row, even := divided(f.plus(-int64(w)), stride)
		if c.Table != nil && even {
			a.tabulated(s, &cell{table: c.Table, row: row, key: rowKey{c.Table, row.key()}, word: w})
		} else if c.Table == nil {
			a.describe(b, c, s, f.plus(-int64(w)), words, w)
		}
		return s
	})
	for len(a.pending) > 0 {
		p := a.pending[0]
		a.pending = a.pending[1:]
		a.assume(p, true)
	}
	return a.value(s)
}

// someWord is one of several words of a row: what holds of them all.
func (a *analysis) someWord(c *Content, f form) val {
	if c.Table != nil {
		return a.unknown(ir.U32)
	}
	stride := int64(c.Stride)
	_, rest := f.split(func(s *symbol) bool { return f.coef(s)*s.mod%stride == 0 && s.rem == 0 })
	iv := a.span(rest)
	first := floorDiv(iv.lo, stride) * stride
	if iv.lo <= -inf || iv.hi-first >= stride {
		return a.unknown(ir.U32)
	}
	words := c.Words
	if c.Period > 0 {
		var ok bool
		if words, ok = a.periodic(c, f); !ok {
			return a.unknown(ir.U32)
		}
	}
	one, ok := words[int(iv.lo-first)]
	for w := iv.lo - first; w <= iv.hi-first; w++ {
		ok = ok && reflect.DeepEqual(words[int(w)], one)
	}
	if !ok {
		return a.unknown(ir.U32)
	}
	s := a.fresh(field, rangeOf(ir.U32))
	s.kind, s.word = opaque, &one
	if one.Hi.K != 0 && len(one.Hi.Terms) == 0 {
		s.interval = interval{one.Lo.K, one.Hi.K}
	}
	return a.value(s)
}

// divided is f/n, where all its numbers are multiples.
func divided(f form, n int64) (out form, ok bool) {
	for _, t := range f.terms {
		if t.c%n != 0 {
			return f, false
		}
		out.terms = append(out.terms, term{t.s, t.c / n})
	}
	out.k = f.k / n
	return out, f.k%n == 0
}

// periodic is what the words of f's row are, the first of a period or another; not ok where
// that is not known.
func (a *analysis) periodic(c *Content, f form) (map[int]Word, bool) {
	period := int64(c.Period)
	_, rest := f.split(func(s *symbol) bool { return f.coef(s)%period == 0 })
	iv := a.span(rest)
	lo, hi := iv.lo-floorDiv(iv.lo, period)*period, iv.hi-floorDiv(iv.lo, period)*period
	switch {
	case hi < int64(c.Stride):
		return c.Head, true
	case lo >= int64(c.Stride) && hi < period:
		return c.Words, true
	}
	return nil, false
}

// once is shared for words that no thread writes, and what make makes for others.
func (a *analysis) once(b *ir.Buf, f form, make func() *symbol) *symbol {
	if !b.ReadOnly {
		s := make()
		s.kind, s.x, s.y = field, f, constant(int64(b.ID))
		return s
	}
	return a.shared(field, f, constant(int64(b.ID)), 0, make)
}

// tabulated is what a word of a table can be.
func (a *analysis) tabulated(s *symbol, c *cell) {
	s.cell = c
	rows := a.both(c.row).meet(interval{0, int64(c.table.rows() - 1)})
	s.interval = interval{inf, -inf}
	for r := rows.lo; r <= rows.hi; r++ {
		v := c.table.at(r, c.word)
		s.interval = s.interval.hull(interval{v, v})
	}
	if s.interval.empty() {
		s.interval = rangeOf(ir.U32)
	}
}

// describe says what the caller knows of word w of the row that begins at first.
func (a *analysis) describe(b *ir.Buf, c *Content, s *symbol, first form, words map[int]Word, w int) {
	known, ok := words[w]
	if !ok {
		return
	}
	s.word = &known
	lo, hi := a.linear(known.Lo), a.linear(known.Hi)
	if known.Hi.K == 0 && len(known.Hi.Terms) == 0 {
		hi = constant(1<<32 - 1)
	}
	s.interval = s.interval.meet(interval{a.lo(lo), a.hi(hi)})
	if !lo.isConst() {
		s.downs = append(s.downs, lo)
	}
	if !hi.isConst() {
		s.ups = append(s.ups, hi)
	}
	if c.Period > 0 && !sameWords(words, c.Words) {
		return
	}
	for _, r := range c.Relations {
		if !r.newest(w) {
			continue
		}
		a.pending = append(a.pending, a.relation(b, c, &r, s, first, w))
	}
}

func sameWords(x, y map[int]Word) bool {
	return reflect.ValueOf(x).Pointer() == reflect.ValueOf(y).Pointer()
}

// relation is what a relation says of a row, of which s is word w.
func (a *analysis) relation(b *ir.Buf, c *Content, r *Relation, s *symbol, first form, w int) *cond {
	word := func(i int) form {
		if i == w {
			return of(s)
		}
		return a.word(b, c, first.plus(int64(i))).f
	}
	f := a.linear(r.Plus)
	for _, i := range sortedKeys(r.Words) {
		f, _ = sum(1, f, r.Words[i], word(i))
	}
	for _, i := range sortedKeys(r.Scaled) {
		if g, ok := a.multiplied(a.linear(r.Scaled[i]), word(i)); ok {
			f, _ = sum(1, f, 1, g)
		}
	}
	out := &cond{op: atMostZero, f: f}
	if r.Unless < 0 {
		return out
	}
	return &cond{op: eitherOf, l: &cond{op: isZero, f: word(r.Unless)}, r: out}
}

// newest reports whether w is the last of the relation's words.
func (r *Relation) newest(w int) bool {
	last := r.Unless
	for i := range r.Words {
		last = max(last, i)
	}
	for i := range r.Scaled {
		last = max(last, i)
	}
	return w == last
}
