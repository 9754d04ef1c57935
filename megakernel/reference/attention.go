package reference

import (
	"math"

	"github.com/mkgen/mkgen/models"
)

// State is attention over some of the keys, for one head: Out the softmax-weighted mean of the values, LSE the natural
// logarithm of the sum of exponentials of the scaled scores. No keys: Out is zero and LSE is -inf.
type State struct {
	Out []float64
	LSE float64
}

// Attention returns one State per query head of a single query token. q holds heads*headDim elements; each of keys and
// values holds kvHeads*headDim elements of one token; query head h reads KV head h / (heads/kvHeads). Scores are scaled
// by 1/sqrt(headDim). Any ratio of heads is allowed as long as it is whole: else it panics. Scores of -inf carry no
// weight, and all of them -inf is as no keys; a NaN makes its head NaN.
func Attention(q []float64, keys, values [][]float64, heads, kvHeads int) []State {
	mustEqual("Attention's query modulo heads", len(q)%heads, 0)
	dim := len(q) / heads
	return AttentionOf(&models.Attn{Heads: heads, KVHeads: kvHeads, HeadDim: dim, Scale: models.PlainScale(dim)}, q, keys,
		values)
}

// AttentionOf is Attention with a model's own scale, soft cap and window: keys and values are of all tokens up to the
// query's.
func AttentionOf(a *models.Attn, q []float64, keys, values [][]float64) []State {
	mustEqual("Attention's heads modulo KV heads", a.Heads%a.KVHeads, 0)
	mustEqual("Attention's query", len(q), a.Heads*a.HeadDim)
	mustEqual("Attention's values", len(values), len(keys))
	if hidden := len(keys) - a.Window; a.Window > 0 && hidden > 0 {
		keys, values = keys[hidden:], values[hidden:]
	}
	states := make([]State, a.Heads)
	for h := range states {
		at := h / (a.Heads / a.KVHeads) * a.HeadDim
		states[h] = attendHead(a, q[h*a.HeadDim:(h+1)*a.HeadDim], keys, values, at)
	}
	return states
}

// attendHead attends with one query head to the KV head that starts at element at of every token.
func attendHead(a *models.Attn, q []float64, keys, values [][]float64, at int) State {
	scores := make([]float64, len(keys))
	dots(scores, q, keys, at)
	for t := range scores {
		scores[t] *= a.Scale
	}
	scores = SoftCap(scores, a.SoftCap)
	top := math.Inf(-1)
	for _, score := range scores {
		top = math.Max(top, score)
	}
	s := State{make([]float64, len(q)), math.Inf(-1)}
	if math.IsInf(top, -1) {
		return s
	}
	sum := 0.0
	for t, score := range scores {
		w := math.Exp(score - top)
		sum += w
		for i, v := range values[t][at:][:len(s.Out)] {
			s.Out[i] += w * v
		}
	}
	for i := range s.Out {
		s.Out[i] /= sum
	}
	s.LSE = top + math.Log(sum)
	return s
}

// dots sets scores to the products of q with every key from element at on, four keys at a time, as MatVec's rows.
func dots(scores, q []float64, keys [][]float64, at int) {
	t, n := 0, len(q)
	for ; t+4 <= len(keys); t += 4 {
		k0, k1, k2, k3 := keys[t][at:][:n], keys[t+1][at:][:n], keys[t+2][at:][:n], keys[t+3][at:][:n]
		s0, s1, s2, s3 := 0.0, 0.0, 0.0, 0.0
		for i, x := range q {
			s0 += x * k0[i]
			s1 += x * k1[i]
			s2 += x * k2[i]
			s3 += x * k3[i]
		}
		scores[t], scores[t+1], scores[t+2], scores[t+3] = s0, s1, s2, s3
	}
	for ; t < len(keys); t++ {
		for i, x := range q {
			scores[t] += x * keys[t][at+i]
		}
	}
}

// MergeStates returns the State over the union of disjoint sets of keys: the operator ⊕ of FlashInfer (Ye et al., 2025,
// section 2.2), which is commutative and associative. A state with LSE = -inf is empty and its Out is not read,
// whatever it holds; no states, or only empty ones, give the empty state of dim elements. A NaN, or an LSE of +inf,
// makes the result NaN.
func MergeStates(dim int, states ...State) State {
	top := math.Inf(-1)
	for _, s := range states {
		top = math.Max(top, s.LSE)
	}
	out := State{make([]float64, dim), math.Inf(-1)}
	if math.IsInf(top, -1) {
		return out
	}
	sum := 0.0
	for _, s := range states {
		if math.IsInf(s.LSE, -1) {
			continue
		}
		mustEqual("MergeStates' elements", len(s.Out), dim)
		w := math.Exp(s.LSE - top)
		sum += w
		for i, x := range s.Out {
			out.Out[i] += w * x
		}
	}
	for i := range out.Out {
		out.Out[i] /= sum
	}
	out.LSE = top + math.Log(sum)
	return out
}

// Concat returns the outputs of all heads one after the other.
func Concat(states []State) []float64 {
	var out []float64
	for _, s := range states {
		out = append(out, s.Out...)
	}
	return out
}
