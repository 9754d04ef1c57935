package bounds

import (
	"slices"

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
	in    *ir.Instr
	from  *ir.Buf
	delta form
	span  interval
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
	if mod%stride != 0 {
		if stride == 1 {
			rem = 0
		} else {
			return a.unknown(ir.U32)
		}
	}
	w := int(rem % stride)
	row := form{}
	for _, t := range f.terms {
		if t.c%stride != 0 { // the symbol is a multiple itself
			return a.value(a.anyWord(b, c, f, w))
		}
		row.terms = append(row.terms, term{t.s, t.c / stride})
	}
	row.k = (f.k - int64(w)) / stride
	s := a.field(b, c, f, row, w)
	for len(a.pending) > 0 {
		f := a.pending[0]
		a.pending = a.pending[1:]
		a.assumeAtMost(f)
	}
	return a.value(s)
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

// anyWord is word w of some row.
func (a *analysis) anyWord(b *ir.Buf, c *Content, f form, w int) *symbol {
	return a.once(b, f, func() *symbol {
		s := a.fresh(field, rangeOf(ir.U32))
		s.kind = field
		a.describe(b, c, s, f.plus(-int64(w)), w)
		return s
	})
}

func (a *analysis) field(b *ir.Buf, c *Content, f, row form, w int) *symbol {
	return a.once(b, f, func() *symbol {
		s := a.fresh(field, rangeOf(ir.U32))
		if c.Table == nil {
			a.describe(b, c, s, f.plus(-int64(w)), w)
			return s
		}
		s.cell = &cell{table: c.Table, row: row, key: row.key(), word: w}
		rows := a.both(row).meet(interval{0, int64(c.Table.rows() - 1)})
		s.interval = interval{inf, -inf}
		for r := rows.lo; r <= rows.hi; r++ {
			v := c.Table.at(r, w)
			s.interval = s.interval.hull(interval{v, v})
		}
		if s.interval.empty() {
			s.interval = rangeOf(ir.U32)
		}
		return s
	})
}

// describe says what the caller knows of word w of the row that begins at first.
func (a *analysis) describe(b *ir.Buf, c *Content, s *symbol, first form, w int) {
	known, ok := c.Words[w]
	if !ok {
		return
	}
	lo, hi := a.linear(known.Lo), a.linear(known.Hi)
	s.interval = s.interval.meet(interval{a.lo(lo), a.hi(hi)})
	if !lo.isConst() {
		s.downs = append(s.downs, lo)
	}
	if !hi.isConst() {
		s.ups = append(s.ups, hi)
	}
	for _, r := range c.Relations {
		if !r.newest(w) {
			continue
		}
		f := a.linear(r.Plus)
		for _, i := range sortedKeys(r.Words) {
			o := of(s)
			if i != w {
				o = a.word(b, c, first.plus(int64(i))).f
			}
			f, _ = sum(1, f, r.Words[i], o)
		}
		a.pending = append(a.pending, f)
	}
}

// newest reports whether w is the last of the relation's words.
func (r *Relation) newest(w int) bool {
	_, ok := r.Words[w]
	for i := range r.Words {
		ok = ok && i <= w
	}
	return ok
}

// stored is word f, at byte at, of a buffer in shared memory.
func (a *analysis) stored(b *ir.Buf, f, at form) val {
	c := a.contents[b]
	if c == nil { // nothing has been stored yet: if something is, all is done again
		return val{f: constant(0), known: true}
	}
	mod, rem := congruence(f)
	iv := a.both(at)
	var out *stored
	for i, w := range c.words {
		if w != nil && int64(i)%gcd(mod, cells) == rem%gcd(mod, cells) {
			out = out.with(w.interval, w.ups, w.wraps, a)
		}
	}
	var vals []val
	for _, p := range c.copies {
		if p.span.lo > iv.hi || p.span.hi < iv.lo {
			continue
		}
		src, ok := sum(1, at, 1, p.delta)
		if !ok || !multiple(src, 4) {
			return a.unknown(ir.U32)
		}
		for i := range src.terms {
			src.terms[i].c /= 4
		}
		src.k /= 4
		vals = append(vals, a.word(p.from, a.facts.Content[p.from.Name], src))
	}
	if out == nil && len(vals) == 1 {
		return vals[0]
	}
	for _, v := range vals {
		out = out.with(a.both(v.f).meet(v.iv), nil, nil, a)
	}
	if out == nil {
		return val{f: constant(0), known: true}
	}
	s := a.fresh(opaque, out.interval)
	s.ups = out.ups
	for _, w := range out.wraps {
		t := a.fresh(wrapped, rangeOf(w.t))
		t.wrap = w
		s.deps = append(s.deps, of(t))
	}
	return a.value(s)
}

// with is what either holds.
func (s *stored) with(iv interval, ups []form, wraps []*wrap, a *analysis) *stored {
	if s == nil {
		return &stored{interval: iv, ups: ups, wraps: wraps}
	}
	out := &stored{interval: s.hull(iv), wraps: s.wraps}
	for _, g := range s.ups {
		if slices.ContainsFunc(ups, g.equal) || iv.hi <= a.lo(g) {
			out.ups = append(out.ups, g)
		}
	}
	for _, g := range ups {
		if !slices.ContainsFunc(out.ups, g.equal) && s.hi <= a.lo(g) {
			out.ups = append(out.ups, g)
		}
	}
	for _, w := range wraps {
		if !slices.ContainsFunc(out.wraps, w.same) {
			out.wraps = append(out.wraps, w)
		}
	}
	return out
}

// store notes what is stored into shared memory.
func (a *analysis) store(in *ir.Instr) {
	m := in.Mem[0]
	b := m.Buf.Base()
	if b.Space != ir.Shared || !a.slice.bufs[b] {
		return
	}
	c := a.contents[b]
	if c == nil {
		c = &content{}
		a.contents[b] = c
	}
	f := a.index(m)
	for i, v := range in.Args {
		a.storeOne(in, c, f.plus(int64(i)), int64(m.Buf.Elem.Size()), a.get(v))
	}
	if in.Op == ir.OpBulkG2S || in.Op != ir.OpSt {
		a.storeAll(c)
	}
}

func (a *analysis) storeAll(c *content) {
	for i := range c.words {
		a.grow(c, i, rangeOf(ir.U32), nil, nil)
	}
}

func (a *analysis) storeOne(in *ir.Instr, c *content, f form, size int64, v val) {
	at, ok := sum(size, f, 0, form{})
	if !ok {
		a.storeAll(c)
		return
	}
	src := v.src
	if src != nil {
		if d := src.at.minus(at); a.lasting(d) {
			iv := a.both(at)
			a.copies(c, &copied{in, src.buf, d, interval{iv.lo, iv.hi + size - 1}})
			return
		}
	}
	if size != 4 || !v.known {
		a.storeAll(c)
		return
	}
	mod, rem := congruence(f)
	ups, wraps := a.lastingBounds(v.f), a.origins(v.f)
	for i := range c.words {
		if g := gcd(mod, cells); int64(i)%g == rem%g {
			a.grow(c, i, a.both(v.f).meet(v.iv), ups, wraps)
		}
	}
}

// lasting reports whether the form is the same all through a launch, in all threads of a CTA.
func (a *analysis) lasting(f form) bool {
	for _, t := range f.terms {
		if t.s.id >= a.lasts {
			return false
		}
	}
	return f.k < inf
}

// lastingBounds are the symbol's bounds that last.
func (a *analysis) lastingBounds(f form) (out []form) {
	if s, ok := f.single(); ok {
		for _, g := range s.ups {
			if a.lasting(g) {
				out = append(out, g)
			}
		}
	}
	return out
}

func (a *analysis) copies(c *content, p *copied) {
	for _, q := range c.copies {
		if q.in == p.in && q.delta.equal(p.delta) && q.from == p.from {
			if h := q.span.hull(p.span); h != q.span {
				q.span, a.grew = h, true
			}
			return
		}
	}
	c.copies = append(c.copies, p)
	a.grew = true
}

// grow adds to what words hold.
func (a *analysis) grow(c *content, i int, iv interval, ups []form, wraps []*wrap) {
	was := c.words[i]
	now := was.with(iv, ups, wraps, a)
	if was != nil && now.interval == was.interval && len(now.ups) == len(was.ups) && len(now.wraps) == len(was.wraps) {
		return
	}
	if a.round > 3 {
		now.interval, now.ups = rangeOf(ir.U32), nil
	}
	c.words[i], a.grew = now, true
}
