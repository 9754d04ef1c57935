package attention

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/kv"
)

// SlidingWindow sees the last window keys, the query's own among them, and the
// first sinks keys of the sequence (attention sinks, Xiao et al. 2024). Chunks
// that no row sees are not read. window is at least 1.
func SlidingWindow(window, sinks int) *Variant {
	return &Variant{Name: "sliding window", Window: window, Sinks: sinks,
		Mask: func(q *Query, k *Key) dsl.Pred {
			near := k.Position.AddC(window).Gt(q.Position)
			if sinks > 0 {
				near = near.Or(k.Position.LtC(sinks))
			}
			return near
		},
		Means: Meaning{Mask: func(q, k Place) bool { return k.Position+window > q.Position || k.Position < sinks }}}
}

// LayerWindows is SlidingWindow without sinks whose window depends on the step's layer: of(s) keys, most at most. It
// has no meaning in float64, which each layer's own SlidingWindow has.
func LayerWindows(of func(s Step) dsl.Val[dsl.U32], most int) *Variant {
	return &Variant{Name: "sliding windows by layer", Window: most, Windows: of,
		Mask: func(q *Query, k *Key) dsl.Pred { return k.Position.Add(of(q.Step)).Gt(q.Position) }}
}

// SoftCap squeezes logits into ±limit: limit·tanh(logit/limit) (Gemma 2). tanh is
// 1 − 2/(1 + e^2x), whose absolute error, which is what counts in a logit, is
// some 1e-7, where the GPU's own is 5e-4. A logit's is limit times as large: 5e-6 for
// the 50 of Gemma 2, but 0.1 for a million. Up to half of the limit, and up to all of it,
// tanh is also a polynomial without special functions, see nearTanh.
func SoftCap(limit float64) *Variant {
	most := limit * math.Log2E
	v := &Variant{Name: "soft cap", Bound: most,
		Logits: func(q *Query, _ *Key, score f32) f32 {
			k := q.Env.K
			e := dsl.Exp2(score.Mul(k.F32(2 / limit))) // e^(2·logit/limit): the score is in base 2 already
			return dsl.FMA(dsl.Rcp(e.Add(k.F32(1))), k.F32(-2*most), k.F32(most))
		},
		Means: Meaning{Logits: func(_, _ Place, x float64) float64 { return limit * math.Tanh(x/limit) }}}
	for _, near := range nearTanh {
		v.Near = append(v.Near, Near{To: near.to * most,
			Logit: func(k *dsl.Kernel, score f32) f32 { return near.scaled(k, score, most) }})
	}
	return v
}

// tanhPolynomial is an odd polynomial, by the coefficients of x, x³, …, for tanh of up to to in magnitude.
type tanhPolynomial struct {
	to float64
	of []float64
}

// nearTanh are those of least absolute error, by Remez' algorithm: 5.3e-6 up to ½, and 2.8e-6 up to 1. Of a limit of 50
// that is 2⁻¹¹·⁹ and 2⁻¹²·⁸ of a weight, which bf16 rounds by 2⁻⁹.
var nearTanh = []tanhPolynomial{
	{0.5, []float64{0.9999248302854449, -0.33085505128789056, 0.11254137661984684}},
	{1, []float64{0.9999684695869613, -0.3326582335902001, 0.1292206743361253, -0.043299871742106685,
		0.008365890267183998}},
}

// scaled is most·tanh(x/most).
func (t *tanhPolynomial) scaled(k *dsl.Kernel, x f32, most float64) f32 {
	of := func(i int) f32 { return k.F32(t.of[i] / math.Pow(most, float64(2*i))) }
	last := len(t.of) - 1
	p, square := of(last), x.Mul(x)
	for i := last - 1; i >= 0; i-- {
		p = dsl.FMA(p, square, of(i))
	}
	return x.Mul(p)
}

// ALiBi adds slope·(key position − query position) to the logits of a head (Press
// et al. 2022). slopes holds the values, one a query head.
func ALiBi(slopes dsl.Buf[dsl.F32], values []float32) *Variant {
	return &Variant{Name: "ALiBi",
		Prepare: func(q *Query) []f32 { return []f32{slopes.Load(q.Head).Mul(q.Env.K.F32(math.Log2E))} },
		Logits: func(q *Query, k *Key, score f32) f32 {
			return dsl.FMA(k.Ahead(q), q.Prepared[0], score)
		},
		Slope: func(q *Query) f32 { return q.Prepared[0] },
		Means: Meaning{Logits: func(q, k Place, x float64) float64 {
			return x + float64(values[q.Head])*float64(k.Position-q.Position)
		}}}
}

// ALiBiSlopes are the slopes of a number of heads, as the paper's authors choose
// them: 2^(−8i/n) for a power of two n, else those of the next smaller power and
// every other one of the next larger.
func ALiBiSlopes(heads int) []float32 {
	n := 1
	for 2*n <= heads {
		n *= 2
	}
	var out []float32
	for i := range heads {
		if i < n {
			out = append(out, float32(math.Exp2(-8*float64(i+1)/float64(n))))
		} else {
			out = append(out, float32(math.Exp2(-4*float64(2*(i-n)+1)/float64(n))))
		}
	}
	return out
}

// CustomMask sees what a table of bits says: a query row those keys i for which
// bit i mod 32 of word kv.RowMask + i/32 is 1, where i is the key's place in the
// sequence. Without a plan the bits begin at word 0. visible is the same on the
// host, for a query's Row and a key's Index.
func CustomMask(bits dsl.Buf[dsl.U32], visible func(row, index int) bool) *Variant {
	return &Variant{Name: "custom mask",
		Prepare: func(q *Query) []f32 { return []f32{dsl.Bits[dsl.F32](q.Word(kv.RowMask))} },
		Mask: func(q *Query, k *Key) dsl.Pred {
			word := bits.Load(dsl.Bits[dsl.U32](q.Prepared[0]).Add(k.Index.DivC(32)), dsl.CacheHint(dsl.NonCoherent))
			return word.Shr(k.Index.RemC(32)).AndC(1).NeC(0)
		},
		Means: Meaning{Mask: func(q, k Place) bool { return visible(q.Row, k.Index) }}}
}

// Sigmoid is attention without softmax: a key's weight is sigmoid(logit + bias),
// whatever the others' are (Ramapuram et al. 2024).
func Sigmoid(bias float64) *Variant {
	return &Variant{Name: "sigmoid", Sum: true,
		Logits: func(q *Query, _ *Key, score f32) f32 {
			k := q.Env.K
			e := dsl.Exp2(score.Add(k.F32(bias * math.Log2E)).Neg())
			return dsl.Rcp(e.Add(k.F32(1)))
		},
		Means: Meaning{Logits: func(_, _ Place, x float64) float64 { return 1 / (1 + math.Exp(-x-bias)) }}}
}

// HeadScale multiplies every query by its head's scale, once as it is loaded.
// scale holds the values, one a query head.
func HeadScale(scale dsl.Buf[dsl.F32], values []float32) *Variant {
	return &Variant{Name: "head scale",
		Prepare: func(q *Query) []f32 { return []f32{scale.Load(q.Head)} },
		Query: func(q *Query, _ u32, lo, hi f32) (f32, f32) {
			return lo.Mul(q.Prepared[0]), hi.Mul(q.Prepared[0])
		},
		Means: Meaning{Query: func(q Place, x []float64) {
			for i := range x {
				x[i] *= float64(values[q.Head])
			}
		}}}
}

// StreamingRoPE is a sliding window with sinks whose keys are cached without
// rotation, and rotated as they are read by their place among the keys that the
// window leaves (StreamingLLM, Xiao et al. 2024): a sink by its position, any
// other key, and the query, by theirs less what the window has left out when the
// step begins, max(0, first + 1 − window − sinks) for a sequence whose first new
// token is at position first. Items may not mix sequences: a class of layers with
// this variant shares no prefixes. Queries come unrotated. window 0 is no window:
// the rotary embedding, applied at read. invFreq [D/2] holds the values, radians
// a position.
func StreamingRoPE(window, sinks int, invFreq dsl.Buf[dsl.F32], values []float32) *Variant {
	v := &Variant{}
	if window > 0 {
		v = SlidingWindow(window, sinks)
	}
	v.Name = "streaming RoPE"
	rope := &QKV{InvFreq: invFreq}
	// place is position p's among the keys left; hidden keys, too, need a sound one.
	place := func(p u32, first func() u32) u32 {
		if window == 0 {
			return p
		}
		gone := first().AddC(1).MaxC(window + sinks).SubC(window + sinks)
		return p.Max(gone).Sub(gone)
	}
	v.Prepare = func(q *Query) []f32 { return []f32{dsl.Bits[dsl.F32](place(q.Position, q.First))} }
	v.Query = func(q *Query, dim u32, lo, hi f32) (f32, f32) {
		return rope.rotate(q.Env, dsl.Bits[dsl.U32](q.Prepared[0]), dim, lo, hi)
	}
	v.Key = func(k *Key, dim u32, lo, hi f32) (f32, f32) {
		at := place(k.Position, func() u32 { return k.First })
		if sinks > 0 {
			at = dsl.Select(k.Position.LtC(sinks), k.Position, at)
		}
		return rope.rotate(k.Env, at, dim, lo, hi)
	}
	turn := func(x []float64, at int) {
		for i, f := range values {
			s, c := math.Sincos(float64(float32(at) * f))
			lo, hi := x[i], x[i+len(values)]
			x[i], x[i+len(values)] = lo*c-hi*s, hi*c+lo*s
		}
	}
	less := func(p Place) int {
		if window == 0 {
			return 0
		}
		return max(0, p.First+1-window-sinks)
	}
	v.Means.Query = func(q Place, x []float64) { turn(x, q.Position-less(q)) }
	v.Means.Key = func(q, k Place, x []float64) {
		if k.Position < sinks {
			turn(x, k.Position)
		} else {
			turn(x, k.Position-less(q))
		}
	}
	return v
}
