package reference

import (
	"fmt"
	"slices"
)

// LayerTensor is a matrix of a layer, or a norm's gain, which is one row.
type LayerTensor struct {
	Name          string
	Rows, Columns int
}

// LayerTensors lists what a layer's weights are, in the order in which they are used.
func (s Shape) LayerTensors(layer int) []LayerTensor {
	q, kv := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	list := []LayerTensor{
		{"input_layernorm", 1, s.Hidden},
		{"self_attn.q_proj", q, s.Hidden}, {"self_attn.k_proj", kv, s.Hidden}, {"self_attn.v_proj", kv, s.Hidden},
		{"self_attn.o_proj", s.Hidden, q},
		{"post_attention_layernorm", 1, s.Hidden},
		{"mlp.gate_proj", s.Intermediate, s.Hidden}, {"mlp.up_proj", s.Intermediate, s.Hidden},
		{"mlp.down_proj", s.Hidden, s.Intermediate},
	}
	for i := range list {
		list[i].Name = layerTensor(layer, list[i].Name)
	}
	return list
}

// Layer is one layer alone. It computes the layer's parts each from an input of the caller's,
// such as a kernel's own. Not safe for concurrent use.
type Layer struct{ m *Model }

// NewLayer checks that every tensor of the layer is there. The hooks hear of layer 0, and w
// has its tensors under that number.
func NewLayer(s Shape, w Weights, h Hooks) (*Layer, error) {
	s.Layers = 1
	for _, t := range s.LayerTensors(0) {
		if got := len(w[t.Name]); got != t.Rows*t.Columns {
			return nil, fmt.Errorf("reference: %s has %d elements, want %d", t.Name, got, t.Rows*t.Columns)
		}
	}
	return &Layer{&Model{shape: s, weights: w, hooks: h}}, nil
}

// Project returns the rotated query, the rotated key and the value of a token at pos whose
// residual vector before the layer is x.
func (l *Layer) Project(x []float64, pos int) (q, k, v []float64) {
	return l.m.project(0, l.m.at(0, Embedded, slices.Clone(x)), pos)
}

// AfterAttention returns x + Wo·out, for the residual vector x before the layer and attention's
// output out.
func (l *Layer) AfterAttention(x, out []float64) []float64 { return l.m.afterAttention(0, x, out) }

// AfterMLP returns the residual vector behind the MLP for the one behind attention.
func (l *Layer) AfterMLP(x []float64) []float64 {
	return l.m.mlp(0, l.m.at(0, AttnResidual, slices.Clone(x)))
}
