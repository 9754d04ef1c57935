package bounds

import (
	"encoding/binary"
	"slices"
)

// form is k + Σ c·s: an integer as a sum of multiples of symbols, sorted by symbol.
// Forms are never changed once made.
type form struct {
	terms []term
	k     int64
}

type term struct {
	s *symbol
	c int64
}

func constant(k int64) form { return form{k: k} }

func of(s *symbol) form { return form{terms: []term{{s, 1}}} }

// single is the symbol that the form is, where it is just that.
func (f form) single() (*symbol, bool) {
	if len(f.terms) == 1 && f.terms[0].c == 1 && f.k == 0 {
		return f.terms[0].s, true
	}
	return nil, false
}

// isConst reports whether the form is a number.
func (f form) isConst() bool { return len(f.terms) == 0 }

func (f form) equal(g form) bool { return f.k == g.k && slices.Equal(f.terms, g.terms) }

// coef is the symbol's coefficient.
func (f form) coef(s *symbol) int64 {
	for _, t := range f.terms {
		if t.s == s {
			return t.c
		}
	}
	return 0
}

// sum is a·f + b·g; ok is false where a number leaves ±2^62.
func sum(a int64, f form, b int64, g form) (out form, ok bool) {
	return sumInto(make([]term, 0, len(f.terms)+len(g.terms)), a, f, b, g)
}

// sumInto is sum with its terms behind those of to, an empty slice.
func sumInto(to []term, a int64, f form, b int64, g form) (out form, ok bool) {
	ok = true
	times := func(x, y int64) int64 {
		p := mul(x, y)
		ok = ok && -inf < p && p < inf
		return p
	}
	plus := func(x, y int64) int64 {
		p := x + y
		ok = ok && -inf < p && p < inf
		return p
	}
	out.k = plus(times(a, f.k), times(b, g.k))
	out.terms = to
	i, j := 0, 0
	for i < len(f.terms) || j < len(g.terms) {
		switch {
		case j == len(g.terms) || i < len(f.terms) && f.terms[i].s.id < g.terms[j].s.id:
			out.terms = append(out.terms, term{f.terms[i].s, times(a, f.terms[i].c)})
			i++
		case i == len(f.terms) || g.terms[j].s.id < f.terms[i].s.id:
			out.terms = append(out.terms, term{g.terms[j].s, times(b, g.terms[j].c)})
			j++
		default:
			if c := plus(times(a, f.terms[i].c), times(b, g.terms[j].c)); c != 0 {
				out.terms = append(out.terms, term{f.terms[i].s, c})
			}
			i, j = i+1, j+1
		}
	}
	if a == 0 || b == 0 {
		out.terms = slices.DeleteFunc(out.terms, func(t term) bool { return t.c == 0 })
	}
	return out, ok
}

func (f form) plus(k int64) form { return form{terms: f.terms, k: clamp(f.k + k)} }

func (f form) minus(g form) form {
	d, ok := sum(1, f, -1, g)
	if !ok {
		return form{k: inf}
	}
	return d
}

func (f form) negated() form { d, _ := sum(-1, f, 0, form{}); return d }

// passing is sum for a form that is looked at before the next one is made: they share their terms.
func (a *analysis) passing(c int64, f form, d int64, g form) (form, bool) {
	out, ok := sumInto(a.spare[:0], c, f, d, g)
	a.spare = out.terms
	return out, ok
}

// kept is the form with terms of its own.
func (f form) kept() form { return form{terms: slices.Clone(f.terms), k: f.k} }

// key is the form as a map's key.
func (f form) key() string {
	b := binary.AppendVarint(nil, f.k)
	for _, t := range f.terms {
		b = binary.AppendVarint(binary.AppendVarint(b, int64(t.s.id)), t.c)
	}
	return string(b)
}

// split parts the form's terms into those that keep accepts, and the rest with the number.
func (f form) split(keep func(*symbol) bool) (kept, rest form) {
	rest.k = f.k
	for _, t := range f.terms {
		if keep(t.s) {
			kept.terms = append(kept.terms, t)
		} else {
			rest.terms = append(rest.terms, t)
		}
	}
	return kept, rest
}
