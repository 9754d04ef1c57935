package reference

import (
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/synth"
)

// Synthetic returns all weights of a model from the generator, for models that fit into memory.
func Synthetic(c models.Config, seed uint64) Weights {
	w := Weights{}
	for _, t := range synth.Tensors(c) {
		w[t.Name] = make([]half.BF16, t.Elems())
		if err := synth.Fill(w[t.Name], seed, t, 0); err != nil {
			panic("BUG: " + err.Error())
		}
	}
	return w
}
