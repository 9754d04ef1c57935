package reference

import (
	"math"
	"slices"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
)

// Step feeds one token at position Len and returns the vocab logits of the token after it; the cache grows by one. A
// token outside the vocabulary panics. Formulas: models.Arch.
func (m *Model) Step(token int) []float64 {
	last := m.arch.Layers()
	x := scale(Embedding(m.weights[place{models.RoleEmbed, -1}], m.arch.Hidden, token), m.arch.Embed.Scale)
	x = m.at(0, Embedded, x)
	for l := range last {
		x = m.attention(l, x)
		x = m.mlp(l, x)
	}
	head, ok := m.weights[place{models.RoleHead, -1}]
	if !ok { // tied
		head = m.weights[place{models.RoleEmbed, -1}]
	}
	n := m.at(last, FinalNorm, m.norm(last, place{models.RoleFinal, -1}, m.arch.Final, x))
	logits := scale(m.product(head, n), m.arch.Head.Scale)
	return m.at(last, Logits, SoftCap(logits, m.arch.Head.SoftCap))
}

// attention returns the residual vector behind attention, and appends to the cache.
func (m *Model) attention(l int, x []float64) []float64 {
	q, k, v := m.project(l, x, len(m.keys[l]))
	m.keys[l], m.values[l] = append(m.keys[l], k), append(m.values[l], v)

	attend := m.hooks.Attend
	if attend == nil {
		attend = func(l int, q []float64, keys, values [][]float64) []float64 {
			return Concat(AttentionOf(&m.arch.Layer(l).Attn, q, keys, values))
		}
	}
	return m.afterAttention(l, x, m.at(l, AttnOut, attend(l, q, m.keys[l], m.values[l])))
}

// project returns the query, the key and the value of a token at pos.
func (m *Model) project(l int, x []float64, pos int) (q, k, v []float64) {
	n := m.at(l, AttnNorm, m.norm(l, place{models.RolePreAttn, l}, m.arch.Layer(l).PreAttn, x))
	q = m.biased(l, models.RoleQ, models.RoleQBias, n)
	k = m.biased(l, models.RoleK, models.RoleKBias, n)
	if m.arch.Layer(l).Attn.QKNorm.Kind != models.NoNorm {
		q = m.at(l, QueryNorm, m.heads(l, models.RoleQNorm, m.at(l, QueryProj, q)))
		k = m.at(l, KeyNorm, m.heads(l, models.RoleKNorm, m.at(l, KeyProj, k)))
	}
	q = m.at(l, Query, scale(m.rotate(l, q, pos), m.arch.Layer(l).Attn.Grows.At(pos)))
	k = m.at(l, Key, m.rotate(l, k, pos))
	return q, k, m.at(l, Value, m.biased(l, models.RoleV, models.RoleVBias, n))
}

// heads normalises each head of x, or all at once.
func (m *Model) heads(l int, r models.Role, x []float64) []float64 {
	a := &m.arch.Layer(l).Attn
	if a.QKNormWide {
		return m.norm(l, place{r, l}, a.QKNorm, x)
	}
	var out []float64
	for head := range slices.Chunk(x, a.HeadDim) {
		out = append(out, m.norm(l, place{r, l}, a.QKNorm, head)...)
	}
	return out
}

// afterAttention returns x plus what attention adds for its output out.
func (m *Model) afterAttention(l int, x, out []float64) []float64 {
	y := m.at(l, AttnProj, m.biased(l, models.RoleO, models.RoleOBias, out))
	return m.at(l, AttnResidual, m.branch(l, x, y, models.RolePostAttn, m.arch.Layer(l).PostAttn, AttnBranch))
}

// mlp returns x plus what the MLP adds.
func (m *Model) mlp(l int, x []float64) []float64 {
	n := m.at(l, MLPNorm, m.norm(l, place{models.RolePreMLP, l}, m.arch.Layer(l).PreMLP, x))
	gate := m.at(l, Gate, m.biased(l, models.RoleGate, models.RoleGateBias, n))
	up := m.at(l, Up, m.biased(l, models.RoleUp, models.RoleUpBias, n))
	act := m.at(l, Activated, Multiply(m.at(l, SiLUOut, Activate(m.arch.Layer(l).MLP.Act, gate)), up))
	y := m.at(l, MLPProj, m.biased(l, models.RoleDown, models.RoleDownBias, act))
	return m.at(l, MLPResidual, m.branch(l, x, y, models.RolePostMLP, m.arch.Layer(l).PostMLP, MLPBranch))
}

// branch returns x + Residual · norm(y).
func (m *Model) branch(l int, x, y []float64, r models.Role, n models.Norm, p Point) []float64 {
	if n.Kind != models.NoNorm {
		y = m.at(l, p, m.norm(l, place{r, l}, n, y))
	}
	return add(x, scale(y, m.arch.Layer(l).Residual))
}

func (m *Model) rotate(l int, x []float64, pos int) []float64 {
	if m.hooks.Unrotated != nil && m.hooks.Unrotated(l) {
		return x
	}
	if m.hooks.Rotate != nil {
		return m.hooks.Rotate(l, x, pos)
	}
	return RotateHeads(x, pos, m.arch.Layer(l).Attn.HeadDim, m.arch.Layer(l).Attn.Rope, m.freqs[m.arch.Pattern[l]])
}

// norm normalises x with the gain at a place; no norm returns x as it is.
func (m *Model) norm(l int, at place, n models.Norm, x []float64) []float64 {
	if n.Kind == models.NoNorm {
		return x
	}
	gain := FromBF16s(m.weights[at])
	if n.PlusOne {
		for i := range gain {
			gain[i]++
		}
	}
	return Multiply(m.at(l, Normalised, Normalise(x, n.Eps)), gain)
}

// biased returns W·x + b, or W·x where the model has no bias of the role.
func (m *Model) biased(l int, w, b models.Role, x []float64) []float64 {
	y := m.product(m.weights[place{w, l}], x)
	if bias, ok := m.weights[place{b, l}]; ok {
		y = add(y, FromBF16s(bias))
	}
	return y
}

func (m *Model) product(w []half.BF16, x []float64) []float64 {
	if m.hooks.Product != nil {
		return m.hooks.Product(w, x)
	}
	return MatVec(w, x)
}

func (m *Model) at(l int, p Point, v []float64) []float64 {
	if m.hooks.At != nil {
		m.hooks.At(l, p, v)
	}
	return v
}

func add(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] + b[i]
	}
	return out
}

// scale returns v times a factor, v itself for 1.
func scale(v []float64, factor float64) []float64 {
	if factor == 1 {
		return v
	}
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = factor * x
	}
	return out
}

// SoftCap returns bound·tanh(v/bound), element by element, and v itself for a bound of 0.
func SoftCap(v []float64, bound float64) []float64 {
	if bound == 0 {
		return v
	}
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = bound * math.Tanh(x/bound)
	}
	return out
}
