package reference

import "github.com/mkgen/mkgen/models/synth"

// Synthetic returns all weights of a shape from the generator, for shapes that fit into memory.
func Synthetic(s Shape, seed uint64) Weights {
	w := Weights{}
	for _, t := range synth.Llama(s.Dims()) {
		w[t.Name] = make([]uint16, t.Elems())
		if err := synth.Fill(w[t.Name], seed, t, 0); err != nil {
			panic("BUG: " + err.Error())
		}
	}
	return w
}

// Dims returns the sizes that the generator's recipes depend on.
func (s Shape) Dims() synth.Dims {
	return synth.Dims{
		Layers: s.Layers, Hidden: s.Hidden, Intermediate: s.Intermediate, Heads: s.Heads, KVHeads: s.KVHeads,
		HeadDim: s.HeadDim, Vocab: s.Vocab, TieEmbeddings: s.TieEmbeddings,
	}
}
