package bounds

import (
	"reflect"
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
			a.tabulated(s, &cell{table: c.Table, row: row, key: row.key(), word: w})
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
	atMod, atRem := congruence(at)
	for _, p := range c.copies {
		if !p.meets(iv, atMod, atRem) {
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
			mod, rem := congruence(at)
			a.copies(c, &copied{in, src.buf, d, interval{iv.lo, iv.hi + size - 1}, mod, rem, size})
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
		if q.in == p.in && q.delta.equal(p.delta) && q.from == p.from && q.mod == p.mod && q.rem == p.rem {
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
