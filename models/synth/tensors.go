package synth

import (
	"fmt"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
)

// Weights delivers the tensors of one seed row by row, by name, so that a model
// never has to be in memory as a whole. Safe for concurrent use.
type Weights struct {
	seed    uint64
	tensors map[string]Tensor
}

// NewWeights is the random weights of a model.
func NewWeights(seed uint64, c models.Config) *Weights {
	w := &Weights{seed: seed, tensors: map[string]Tensor{}}
	for _, t := range Tensors(c) {
		w.tensors[t.Name] = t
	}
	return w
}

// Row fills dst with one row of a tensor (all of a vector), bf16 bit patterns.
func (w *Weights) Row(name string, row int, dst []half.BF16) error {
	t, ok := w.tensors[name]
	if !ok {
		return fmt.Errorf("there is no tensor %q", name)
	}
	if n := t.Shape[len(t.Shape)-1]; len(dst) != n {
		return fmt.Errorf("tensor %s has rows of %d, asked for %d", name, n, len(dst))
	}
	return Fill(dst, w.seed, t, int64(row)*int64(len(dst)))
}
