package reference

import "github.com/mkgen/mkgen/models"

// ShapeOf is the shape of a model's configuration.
func ShapeOf(c models.Config) Shape {
	s := Shape{
		Layers: c.Layers, Hidden: c.Hidden, Intermediate: c.Intermediate, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim,
		Vocab: c.Vocab, NormEps: c.NormEps, TieEmbeddings: c.TieEmbeddings, InvFreq: models.RopeInvFreq(c),
	}
	return s
}
