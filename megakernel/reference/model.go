package reference

import (
	"fmt"
	"slices"
)

// Shape is a Llama-family configuration as far as the mathematics needs it.
type Shape struct {
	Layers, Hidden, Intermediate, Heads, KVHeads, HeadDim, Vocab int
	NormEps                                                      float64
	TieEmbeddings                                                bool
	// InvFreq are the HeadDim/2 inverse frequencies of the rotary embedding, scaling included; see InvFreq.
	InvFreq []float32
}

// Weights maps Hugging Face names (model.embed_tokens.weight, model.layers.0.self_attn.q_proj.weight, …) to bf16 bit patterns,
// row-major, [outputs, inputs].
type Weights map[string][]uint16

// Model is one sequence being decoded: weights and a KV cache that grows by one token per Step. Not safe for concurrent use.
type Model struct {
	shape        Shape
	weights      Weights
	hooks        Hooks
	keys, values [][][]float64 // [layer][token][kvHeads*headDim]
}

// NewModel checks that every tensor of the shape is there with its number of elements, and returns a Model with an empty cache.
// The error names the tensor, what it has and what is wanted.
func NewModel(s Shape, w Weights, h Hooks) (*Model, error) {
	if min(s.Layers, s.Hidden, s.Intermediate, s.Heads, s.KVHeads, s.HeadDim, s.Vocab) <= 0 || s.Heads%s.KVHeads != 0 {
		return nil, fmt.Errorf("reference: shape %+v, want positive sizes and heads a multiple of KV heads", s)
	}
	if 2*len(s.InvFreq) != s.HeadDim {
		return nil, fmt.Errorf("reference: %d inverse frequencies, want half the head dimension %d", len(s.InvFreq), s.HeadDim)
	}
	check := func(name string, want int) error {
		if got := len(w[name]); got != want {
			return fmt.Errorf("reference: %s has %d elements, want %d", name, got, want)
		}
		return nil
	}
	for l := range s.Layers {
		for _, t := range s.LayerTensors(l) {
			if err := check(t.Name, t.Rows*t.Columns); err != nil {
				return nil, err
			}
		}
	}
	for _, name := range []string{"model.embed_tokens.weight", s.headTensor()} {
		if err := check(name, s.Vocab*s.Hidden); err != nil {
			return nil, err
		}
	}
	m := &Model{shape: s, weights: w, hooks: h}
	m.Reset()
	return m, check("model.norm.weight", s.Hidden)
}

func layerTensor(layer int, name string) string {
	return fmt.Sprintf("model.layers.%d.%s.weight", layer, name)
}

func (s Shape) headTensor() string {
	if s.TieEmbeddings {
		return "model.embed_tokens.weight"
	}
	return "lm_head.weight"
}

// Reset empties the KV cache: the next Step is at position 0.
func (m *Model) Reset() {
	m.keys, m.values = make([][][]float64, m.shape.Layers), make([][][]float64, m.shape.Layers)
}

// Clone returns a Model of the first n tokens of the cache, at most Len, which goes its own way from there. The two share the
// hooks: those that keep something between points want their Steps one after another.
func (m *Model) Clone(n int) *Model {
	c := &Model{shape: m.shape, weights: m.weights, hooks: m.hooks}
	for l := range m.keys {
		c.keys, c.values = append(c.keys, slices.Clone(m.keys[l][:n])), append(c.values, slices.Clone(m.values[l][:n]))
	}
	return c
}

// Len returns the number of tokens in the cache, which is the position of the next Step.
func (m *Model) Len() int { return len(m.keys[0]) }

// Append puts a token's rotated key and its value into the cache of one layer without a step; every layer must get as many. The
// slices become the model's own.
func (m *Model) Append(layer int, key, value []float64) {
	mustEqual("Append's key", len(key), m.shape.KVHeads*m.shape.HeadDim)
	mustEqual("Append's value", len(value), m.shape.KVHeads*m.shape.HeadDim)
	m.keys[layer], m.values[layer] = append(m.keys[layer], key), append(m.values[layer], value)
}

// Cache returns the rotated keys and the values of a layer, [token][kvHeads*headDim]; they are the model's own.
func (m *Model) Cache(layer int) (keys, values [][]float64) { return m.keys[layer], m.values[layer] }
