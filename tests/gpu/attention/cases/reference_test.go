package cases

import (
	"math"
	"testing"

	"github.com/mkgen/mkgen/models/half"
	"github.com/stretchr/testify/require"
)

// wrong is what a test breaks in the reference on purpose.
type wrong struct {
	lost     bool // no row sees one key of 16
	swapped  bool // units of K and V are not permuted back
	rounding bool // weights and output are rounded to bf16, as a kernel does
}

// outputs is the case's mathematics in float64, straight from the definition, with
// every element of the cache found by attention.KVLayout.Index.
func outputs(t *testing.T, c *Case, layer int, w wrong) []float32 {
	t.Helper()
	kv := make([]byte, c.LayerBytes())
	require.NoError(t, c.KV(kv, layer, 0))
	q, err := c.Q()
	require.NoError(t, err)
	layout, mask := c.Layout(), c.Mask()
	layout.Layers = 1
	p := c.Variants[layer%len(c.Variants)].Params
	rows := c.Rows
	if rows == nil {
		rows = c.nextTokens()
	}
	out := make([]float32, len(q)/2)
	t0 := 0
	for s, seq := range c.Sequences {
		for i := range seq.New {
			for h := range c.Heads {
				kvHead := h / (c.Heads / c.KVHeads)
				pages := c.PagesOf(s)
				if c.PerHead {
					pages = c.PagesOf(s*c.KVHeads + kvHead)
				}
				element := func(token, v, d int) float64 {
					slot := token % c.Page
					at := layout.Index(c.Pages, 0, int(pages[token/c.Page]), kvHead, slot, v, d)
					if w.swapped {
						at = layout.Index(c.Pages, 0, int(pages[token/c.Page]), kvHead, 0, v, d) + slot*2*c.HeadDim
					}
					if c.ElementBytes() == 1 {
						return e4m3(kv[at]) * float64(c.Scales()[(layer*c.KVHeads+kvHead)*2+v])
					}
					return bf16(kv, at)
				}
				at := ((t0+i)*c.Heads + h) * c.HeadDim
				query := make([]float64, c.HeadDim)
				for d := range query {
					query[d] = bf16(q, at+d)
				}
				sees := func(key int) bool { return !(w.lost && key%16 == 3) && c.sees(p, seq, rows[t0+i], mask, key) }
				for d, x := range attend(c, p, query, h, places(seq, rows[t0:], i), sees, element, w.rounding) {
					out[at+d] = float32(x)
				}
			}
		}
		t0 += seq.New
	}
	return out
}

// sees says whether a row attends to a key of its sequence.
func (c *Case) sees(p Params, s Sequence, r Row, mask []uint32, key int) bool {
	switch {
	case key >= s.Cached && r.Tail>>(key-s.Cached)&1 == 0:
		return false
	case p.Mask:
		return mask[r.Mask+key/32]>>(key%32)&1 == 1
	}
	return true
}

// place is where a query row and its sequence's keys are.
type place struct {
	query, first int // first: of the sequence's first new token
	keys         []int
}

func places(s Sequence, rows []Row, i int) place {
	at := place{query: rows[i].Position, first: s.Cached}
	for key := range s.Cached {
		at.keys = append(at.keys, key)
	}
	for j := range s.New {
		at.keys = append(at.keys, rows[j].Position)
	}
	return at
}

// turn is the rotary embedding of a key, or of the query, at a position.
func turn(x []float64, p Params, at place, position int) {
	if p.Window > 0 && position >= p.Sinks {
		position -= max(0, at.first+1-p.Window-p.Sinks)
	}
	half := len(x) / 2
	for d, f := range p.Rope.InvFreq {
		sin, cos := math.Sincos(float64(position) * float64(f))
		x[d], x[d+half] = x[d]*cos-x[d+half]*sin, x[d+half]*cos+x[d]*sin
	}
}

func attend(c *Case, p Params, q []float64, head int, at place, sees func(int) bool,
	element func(token, v, d int) float64, rounding bool) []float64 {
	weights, sum, top := make([]float64, len(at.keys)), 0.0, math.Inf(-1)
	if p.Rope != nil {
		turn(q, p, at, at.query)
	}
	for key, position := range at.keys {
		k := make([]float64, len(q))
		for d := range k {
			k[d] = element(key, 0, d)
		}
		if p.Rope != nil {
			turn(k, p, at, position)
		}
		x := 0.0
		for d := range q {
			x += q[d] * k[d]
		}
		x *= c.ScoreScale
		if p.HeadScale != nil {
			x *= float64(p.HeadScale[head])
		}
		if p.SoftCap != 0 {
			x = p.SoftCap * math.Tanh(x/p.SoftCap)
		}
		if p.ALiBi != nil {
			x += float64(p.ALiBi[head]) * float64(position-at.query)
		}
		if !sees(key) || p.Window > 0 && position >= p.Sinks && position <= at.query-p.Window {
			x = math.Inf(-1)
		}
		weights[key], top = x, math.Max(top, x)
	}
	for i, x := range weights {
		if p.Sigmoid != nil {
			weights[i] = 1 / (1 + math.Exp(-x-p.Sigmoid.Bias))
		} else {
			weights[i] = math.Exp(x - top)
		}
		sum += weights[i]
	}
	if p.Sigmoid != nil {
		sum = 1
	}
	out := make([]float64, len(q))
	for key, w := range weights {
		if rounding {
			w = round(w)
		}
		for d := range out {
			out[d] += w * element(key, 1, d) / sum
		}
	}
	for d := range out {
		if rounding {
			out[d] = round(out[d])
		}
	}
	return out
}

// bf16 is element i of little-endian bf16.
func bf16(data []byte, i int) float64 {
	return float64(half.BF16At(data[2*i:]).Float32())
}

// e4m3 is a normal number of that format.
func e4m3(b byte) float64 {
	x := math.Ldexp(1+float64(b&7)/8, int(b>>3&15)-7)
	if b > 127 {
		return -x
	}
	return x
}

// round is to the nearest bf16.
func round(x float64) float64 {
	b := math.Float32bits(float32(x))
	return float64(math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff))
}
