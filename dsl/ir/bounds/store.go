package bounds

import (
	"slices"

	"github.com/mkgen/mkgen/dsl/ir"
)

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
	if in.Op != ir.OpSt {
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
		for _, x := range s.facts { // here, of what the symbol stands for from here on
			if g := of(s).minus(x.f); x.f.coef(s) == 1 && a.lasting(g) {
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
