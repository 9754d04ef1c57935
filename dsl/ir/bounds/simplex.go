package bounds

import "math"

// simplex is the bounded dual simplex method on a dense tableau, in floating point: it
// begins with every symbol at the bound that makes the form largest, and moves those that
// break a row until none does. What it finds are the rows' multiples (bound), which are
// then rounded to fractions and summed up exactly: its rounding errors can lose a proof,
// but not make a wrong one.
type simplex struct {
	rows, cols int
	t          [][]float64 // basic variable i is β_i − Σ t[i][j]·(nonbasic j)
	lo, hi     []float64   // of all variables: symbols, then slacks
	basic      []int
	non        []int
	upper      []bool // whether nonbasic j is at its upper bound
	d          []float64
	beta       []float64 // values of the basic variables
}

const (
	tiny      = 1e-9
	looser    = 1e-6
	maxPivots = 200
)

func newSimplex(p *problem) *simplex {
	n, m := len(p.symbols), len(p.rows)
	s := &simplex{rows: m, cols: n, lo: make([]float64, n+m), hi: make([]float64, n+m), basic: make([]int, m),
		non: make([]int, n), upper: make([]bool, n), d: make([]float64, n), beta: make([]float64, m), t: make([][]float64, m)}
	for j, x := range p.symbols {
		s.lo[j], s.hi[j], s.non[j] = float64(x.lo), float64(x.hi), j
		if x.cell == nil { // so that of equal bounds that is taken which says more
			slack := looser * (1 + s.hi[j] - s.lo[j])
			s.lo[j], s.hi[j] = s.lo[j]-slack, s.hi[j]+slack
		}
	}
	for _, t := range p.f.terms {
		if j, ok := p.place[t.s]; ok {
			s.d[j] = float64(t.c)
		}
	}
	for j := range n {
		s.upper[j] = s.d[j] > 0
	}
	cells := make([]float64, m*n)
	for i, r := range p.rows {
		s.basic[i], s.hi[n+i] = n+i, math.Inf(1)
		s.t[i] = cells[i*n : (i+1)*n]
		s.beta[i] = -float64(r.k)
		for _, t := range r.terms {
			j := p.place[t.s]
			s.t[i][j] = float64(t.c)
			s.beta[i] -= float64(t.c) * s.at(j)
		}
	}
	return s
}

// at is the value of nonbasic j.
func (s *simplex) at(j int) float64 {
	if s.upper[j] {
		return s.hi[s.non[j]]
	}
	return s.lo[s.non[j]]
}

// worst is the row whose variable breaks its bounds the most, and by how much; −1 for none.
func (s *simplex) worst() (r int, below bool) {
	r, most := -1, 0.0
	for i, b := range s.basic {
		scale := 1 + math.Abs(s.beta[i])
		if v := (s.lo[b] - s.beta[i]) / scale; v > tiny && v > most {
			r, most, below = i, v, true
		}
		if v := (s.beta[i] - s.hi[b]) / scale; v > tiny && v > most {
			r, most, below = i, v, false
		}
	}
	return r, below
}

// entering is the nonbasic variable that moves row r's to its bound at the least cost; −1
// for none.
func (s *simplex) entering(r int, below bool) int {
	best, ratio := -1, math.Inf(1)
	for j, a := range s.t[r] {
		if !below {
			a = -a
		}
		if math.Abs(a) < tiny || s.lo[s.non[j]] == s.hi[s.non[j]] {
			continue
		}
		if s.upper[j] == (a > 0) { // basic grows when this one moves off its bound
			if q := math.Abs(s.d[j] / a); q < ratio-tiny || q <= ratio && best >= 0 && math.Abs(a) > math.Abs(s.t[r][best]) {
				best, ratio = j, q
			}
		}
	}
	return best
}

// pivot exchanges basic r, which goes to its bound, and nonbasic j.
func (s *simplex) pivot(r, j int, below bool) {
	leaving, entering := s.basic[r], s.non[j]
	bound := s.hi[leaving]
	if below {
		bound = s.lo[leaving]
	}
	row := s.t[r]
	a := row[j]
	step := (s.beta[r] - bound) / a // of the entering variable
	value := s.at(j) + step
	for i := range s.t {
		if i != r {
			s.beta[i] -= s.t[i][j] * step
		}
	}
	for k := range row {
		if k != j {
			row[k] /= a
		}
	}
	row[j] = 1 / a
	for i, other := range s.t {
		f := other[j]
		if i == r || f == 0 {
			continue
		}
		for k := range other {
			if k != j {
				other[k] -= f * row[k]
			}
		}
		other[j] = -f / a
	}
	f := s.d[j]
	for k := range s.d {
		if k != j {
			s.d[k] -= f * row[k]
		}
	}
	s.d[j] = -f / a
	s.basic[r], s.non[j], s.upper[j], s.beta[r] = entering, leaving, !below, value
}

// multiples are the rows' weights in the bound found; with contradiction they are those of
// rows that cannot hold together.
func (s *simplex) multiples() (y []float64, contradiction bool) {
	y = make([]float64, s.rows)
	for range maxPivots {
		r, below := s.worst()
		if r < 0 {
			break
		}
		j := s.entering(r, below)
		if j < 0 {
			sign := 1.0
			if !below {
				sign = -1
			}
			for k, v := range s.non {
				if v >= s.cols {
					y[v-s.cols] = max(0, sign*s.t[r][k])
				}
			}
			if b := s.basic[r]; b >= s.cols {
				y[b-s.cols] = 1
			}
			return y, true
		}
		s.pivot(r, j, below)
	}
	for k, v := range s.non {
		if v >= s.cols {
			y[v-s.cols] = max(0, -s.d[k])
		}
	}
	return y, false
}

// bound is the least upper bound of the form that was found, and what is left of the form
// beside the rows. What is known may be contradictory: then it is −inf.
func (p *problem) bound(goal int64) (int64, form) {
	best := p.a.hi(p.f)
	if len(p.rows) == 0 || best <= goal {
		return best, p.f
	}
	y, contradiction := newSimplex(p).multiples()
	if contradiction {
		for _, most := range denominators {
			if g, _, ok := p.combined(form{}, y, most); ok && p.a.hi(g) < 0 {
				return -inf, form{}
			}
		}
		return best, p.f
	}
	left := p.f
	for _, most := range denominators {
		g, scale, ok := p.combined(p.f, y, most)
		if !ok {
			continue
		}
		if b := floorDiv(p.a.hi(g), scale); b < best || b == best && most == denominators[0] {
			best, left = b, g
		}
	}
	return best, left
}

// denominators are the largest of the fractions that multiples are rounded to, in turn:
// what is a whole number may come out a little off.
var denominators = []int64{1 << 20, 64, 1}

// combined is scale·f less the rows times y, whose fractions it makes exact: at least
// scale·f, whatever the symbols are.
func (p *problem) combined(f form, y []float64, most int64) (g form, scale int64, ok bool) {
	scale = 1
	num, den := make([]int64, len(y)), make([]int64, len(y))
	for i, v := range y {
		if v < tiny {
			continue
		}
		num[i], den[i] = fraction(v, most)
		l := scale / gcd(scale, den[i])
		scale = mul(l, den[i])
		if scale >= 1<<40 {
			return form{}, 0, false
		}
	}
	g, ok = sum(scale, f, 0, form{})
	for i, r := range p.rows {
		if num[i] != 0 && ok {
			g, ok = sum(1, g, -num[i]*(scale/den[i]), r)
		}
	}
	return g, scale, ok
}

// fraction is the last of v's continued fraction's convergents of a denominator up to most, or
// the first that is v but for rounding errors.
func fraction(v float64, most int64) (num, den int64) {
	x := v
	p0, q0, p1, q1 := int64(0), int64(1), int64(1), int64(0)
	for range 24 {
		w := math.Floor(x + tiny)
		if w > 1<<40 || int64(w)*q1+q0 > most {
			break
		}
		p0, q0, p1, q1 = p1, q1, int64(w)*p1+p0, int64(w)*q1+q0
		if math.Abs(float64(p1)/float64(q1)-v) <= 1e-10*(1+v) {
			break
		}
		x = 1 / (x - w)
	}
	if q1 == 0 {
		return 0, 1
	}
	return p1, q1
}
