package reference

import (
	"slices"

	"github.com/mkgen/mkgen/models"
)

// Layer is one layer of a model alone. It computes the layer's parts each from an input of the caller's,
// such as a kernel's own. Not safe for concurrent use.
type Layer struct {
	m     *Model
	layer int
}

// NewLayer checks that every tensor of the layer is there.
func NewLayer(c models.Config, layer int, w Weights, h Hooks) (*Layer, error) {
	m, err := newModel(c, h)
	if err != nil {
		return nil, err
	}
	for _, t := range c.Tensors() {
		if t.Layer != layer {
			continue
		}
		if err := m.take(&t, w); err != nil {
			return nil, err
		}
	}
	return &Layer{m, layer}, nil
}

// Project returns the rotated query, the rotated key and the value of a token at pos whose
// residual vector before the layer is x.
func (l *Layer) Project(x []float64, pos int) (q, k, v []float64) {
	return l.m.project(l.layer, l.m.at(l.layer, Embedded, slices.Clone(x)), pos)
}

// AfterAttention returns the residual vector behind attention, for the residual vector x before the layer and
// attention's output out, the input of the output projection.
func (l *Layer) AfterAttention(x, out []float64) []float64 {
	return l.m.afterAttention(l.layer, x, out)
}

// AfterMLP returns the residual vector behind the MLP for the one behind attention.
func (l *Layer) AfterMLP(x []float64) []float64 {
	return l.m.mlp(l.layer, l.m.at(l.layer, AttnResidual, slices.Clone(x)))
}
