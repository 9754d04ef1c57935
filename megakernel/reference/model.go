package reference

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
)

// Weights maps Hugging Face names (model.embed_tokens.weight, model.layers.0.self_attn.q_proj.weight, …) to bf16 bit
// patterns, row-major, [outputs, inputs].
type Weights map[string][]half.BF16

// place is a tensor of the mathematics: its role, and its layer or -1.
type place struct {
	role  models.Role
	layer int
}

// Model is one sequence being decoded: weights and a KV cache that grows by one token per Step. Not safe for concurrent
// use.
type Model struct {
	config       models.Config
	arch         models.Arch
	weights      map[place][]half.BF16
	freqs        [][]float32 // inverse frequencies of each kind of layer
	hooks        Hooks
	keys, values [][][]float64 // [layer][token][kvHeads*headDim]
}

// NewModel checks that every tensor of the model is there with its number of elements, and returns a Model with an
// empty cache. Where embeddings are tied, a tensor lm_head.weight is the LM head in place of the embedding: of a kernel
// that rounds the head alone. Rotary frequencies are those of a context of c.MaxPositions. The error names the tensor,
// what it has and what is wanted.
func NewModel(c models.Config, w Weights, h Hooks) (*Model, error) {
	m, err := newModel(c, h)
	if err != nil {
		return nil, err
	}
	for _, t := range c.Tensors() {
		if err := m.take(&t, w); err != nil {
			return nil, err
		}
	}
	if name := c.TensorName(models.RoleHead); c.TieEmbeddings && w[name] != nil {
		head := models.Tensor{Name: name, Role: models.RoleHead, Layer: -1, Rows: c.Vocab, Cols: c.Hidden,
			Stored: c.Vocab}
		if err := m.take(&head, w); err != nil {
			return nil, err
		}
	}
	m.Reset()
	return m, nil
}

func newModel(c models.Config, h Hooks) (*Model, error) {
	if min(c.Layers, c.Hidden, c.Intermediate, c.Heads, c.KVHeads, c.HeadDim, c.Vocab) <= 0 || c.Heads%c.KVHeads != 0 {
		return nil, fmt.Errorf("reference: model %+v, want positive sizes and heads a multiple of KV heads", c)
	}
	m := &Model{config: c, arch: c.Arch(), weights: map[place][]half.BF16{}, hooks: h}
	for i := range m.arch.Kinds {
		m.freqs = append(m.freqs, m.arch.Kinds[i].Attn.Rope.InvFreq(c.MaxPositions))
	}
	return m, nil
}

// take takes over the rows of w that are tensor t.
func (m *Model) take(t *models.Tensor, w Weights) error {
	stored := w[t.Name]
	if got, want := len(stored), t.Stored*t.Cols; got != want {
		return fmt.Errorf("reference: %s has %d elements, want %d", t.Name, got, want)
	}
	rows := stored[t.First*t.Cols:]
	if t.Run != 0 {
		rows = nil
		for r := range t.Rows {
			at := t.StoredRow(r) * t.Cols
			rows = append(rows, stored[at:at+t.Cols]...)
		}
	}
	m.weights[place{t.Role, t.Layer}] = rows[:t.Rows*t.Cols]
	return nil
}

// Reset empties the KV cache: the next Step is at position 0.
func (m *Model) Reset() {
	m.keys, m.values = make([][][]float64, m.arch.Layers()), make([][][]float64, m.arch.Layers())
}

// Clone returns a Model of the first n tokens of the cache, at most Len, which goes its own way from there. The two
// share the hooks: those that keep something between points want their Steps one after another.
func (m *Model) Clone(n int) *Model {
	c := *m
	c.keys, c.values = nil, nil
	for l := range m.keys {
		c.keys, c.values = append(c.keys, slices.Clone(m.keys[l][:n])), append(c.values, slices.Clone(m.values[l][:n]))
	}
	return &c
}

// Len returns the number of tokens in the cache, which is the position of the next Step.
func (m *Model) Len() int { return len(m.keys[0]) }

// Append puts a token's rotated key and its value into the cache of one layer without a step; every layer must get as
// many. The slices become the model's own.
func (m *Model) Append(layer int, key, value []float64) {
	mustEqual("Append's key", len(key), m.config.KVRows())
	mustEqual("Append's value", len(value), m.config.KVRows())
	m.keys[layer], m.values[layer] = append(m.keys[layer], key), append(m.values[layer], value)
}

// Cache returns the rotated keys and the values of a layer, [token][kvHeads*headDim]; they are the model's own.
func (m *Model) Cache(layer int) (keys, values [][]float64) { return m.keys[layer], m.values[layer] }
