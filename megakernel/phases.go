package megakernel

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/product"
)

const gridBarrier = "grid barrier"

// matrix is the i-th matrix of the plan table: the layer's, then the LM head.
func (mk *Kernel) matrix(i int) *pipeline.MatrixPlan {
	if i == layerMatrices {
		return &mk.Plan.Final[0]
	}
	return &mk.Plan.Layer[i]
}

// embedding is the matrix of token embeddings: one of its own, or the LM head's where that is bf16, too,
// whose tiles, as it is alone in the final phase, follow one another there.
func (b *builder) embedding() interface {
	Row(e *grid.Env, token dsl.Val[dsl.U32]) product.Vector
} {
	c, p, scale := &b.mk.Config, b.mk.Plan, b.mk.arch.Embed.Scale
	if !c.TieEmbeddings || b.mk.OwnHead() {
		return embeddings{&product.Embedding{N: c.Hidden, Table: b.bufs.embed, Vocab: c.Vocab}, scale}
	}
	return embeddings{&product.PackedEmbedding{M: &p.Final[0], Weights: b.bufs.weights,
		Start: p.Image(pipeline.FinalLayer) + p.Final[0].Start}, scale}
}
