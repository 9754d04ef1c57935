package reference

// Step feeds one token at position Len and returns the vocab logits of the token after it; the cache grows by one. A token
// outside the vocabulary panics.
func (m *Model) Step(token int) []float64 {
	s := m.shape
	x := m.at(0, Embedded, Embedding(m.weights["model.embed_tokens.weight"], s.Hidden, token))
	for l := range s.Layers {
		x = m.attention(l, x)
		x = m.mlp(l, x)
	}
	n := m.at(s.Layers, FinalNorm, m.norm(s.Layers, "model.norm.weight", x))
	return m.at(s.Layers, Logits, m.product(m.weights[s.headTensor()], n))
}

// attention returns x + Wo·attention(…) and appends to the cache.
func (m *Model) attention(l int, x []float64) []float64 {
	q, k, v := m.project(l, x, len(m.keys[l]))
	m.keys[l], m.values[l] = append(m.keys[l], k), append(m.values[l], v)

	attend := m.hooks.Attend
	if attend == nil {
		attend = func(_ int, q []float64, keys, values [][]float64) []float64 {
			return Concat(Attention(q, keys, values, m.shape.Heads, m.shape.KVHeads))
		}
	}
	return m.afterAttention(l, x, m.at(l, AttnOut, attend(l, q, m.keys[l], m.values[l])))
}

// project returns the query, the key and the value of a token at pos.
func (m *Model) project(l int, x []float64, pos int) (q, k, v []float64) {
	n := m.at(l, AttnNorm, m.norm(l, layerTensor(l, "input_layernorm"), x))
	q = m.at(l, Query, m.rotate(l, m.matVec(l, "self_attn.q_proj", n), pos))
	k = m.at(l, Key, m.rotate(l, m.matVec(l, "self_attn.k_proj", n), pos))
	return q, k, m.at(l, Value, m.matVec(l, "self_attn.v_proj", n))
}

// afterAttention returns x + Wo·out.
func (m *Model) afterAttention(l int, x, out []float64) []float64 {
	return m.at(l, AttnResidual, add(x, m.at(l, AttnProj, m.matVec(l, "self_attn.o_proj", out))))
}

// mlp returns x + Wdown·SwiGLU(Wgate·n, Wup·n).
func (m *Model) mlp(l int, x []float64) []float64 {
	n := m.at(l, MLPNorm, m.norm(l, layerTensor(l, "post_attention_layernorm"), x))
	gate := m.at(l, Gate, m.matVec(l, "mlp.gate_proj", n))
	up := m.at(l, Up, m.matVec(l, "mlp.up_proj", n))
	act := m.at(l, Activated, Multiply(m.at(l, SiLUOut, SiLU(gate)), up))
	return m.at(l, MLPResidual, add(x, m.at(l, MLPProj, m.matVec(l, "mlp.down_proj", act))))
}

func (m *Model) rotate(l int, x []float64, pos int) []float64 {
	if m.hooks.Unrotated != nil && m.hooks.Unrotated(l) {
		return x
	}
	if m.hooks.Rotate != nil {
		return m.hooks.Rotate(x, pos)
	}
	return Rope(x, pos, m.shape.InvFreq)
}

func (m *Model) norm(l int, name string, x []float64) []float64 {
	return Multiply(m.at(l, Normalised, Normalise(x, m.shape.NormEps)), FromBF16s(m.weights[name]))
}

func (m *Model) matVec(l int, name string, x []float64) []float64 {
	return m.product(m.weights[layerTensor(l, name)], x)
}

func (m *Model) product(w []uint16, x []float64) []float64 {
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
