package models

import "math"

// Traits is what the layers of a dense model have beyond Llama's, or otherwise. The zero value is Llama. Arch has the
// formulas.
type Traits struct {
	QKVBias bool // biases of the projections of q, k and v (Qwen2, GLM-4)
	OBias   bool // bias of attention's output projection (attention_bias of Llama)
	MLPBias bool // biases of gate, up and down

	QKNorm  QKNorm    // norms of q and k before the rotation
	PlusOne bool      // all norms multiply by 1 + gain (Gemma)
	Norms   NormPlace // where a layer's norms stand
	Act     Act       // of the MLP's gate

	EmbedScale    float64 // factor of the embedding; 0 for 1
	AttnScale     float64 // factor of scores; 0 for 1/sqrt(HeadDim)
	ResidualScale float64 // factor of what attention and MLP add; 0 for 1
	LogitScale    float64 // factor of logits; 0 for 1
	AttnSoftCap   float64 // of scores; 0 for none
	Grows         Growth  // of scores with the position of the query; zero for none
	LogitSoftCap  float64 // of logits; 0 for none

	// Kinds is what differs from layer to layer, Pattern the kinds of the layers, which repeats: layer l is of kind
	// Pattern[l mod len(Pattern)]. Both nil for layers that are all of the zero Kind.
	Kinds   []Kind
	Pattern []int
}

// Growth is a factor of scores of 1 + Beta·ln(1 + ⌊p/Every⌋) for the query at position p (Llama 4, Ministral 3).
type Growth struct {
	Beta  float64
	Every int // at least 1; 0 for no such factor
}

// At is the factor at a position.
func (g Growth) At(position int) float64 {
	if g.Every == 0 {
		return 1
	}
	return 1 + g.Beta*math.Log(float64(1+position/g.Every))
}

// Kind is what a layer has that others of its model do not.
type Kind struct {
	Window int   // positions that a token sees, itself included; 0 for all
	NoRope bool  // q and k are not rotated (NoPE)
	Rope   *Rope // another rotation than Config.Rope; nil for that
}

// QKNorm is how q and k are normalised.
type QKNorm uint8

// The norms of q and k.
const (
	NoQKNorm     QKNorm = iota
	QKNormByHead        // each head by itself, all with the same gain (Qwen3, Gemma 3)
	QKNormWide          // all heads at once (OLMo-2)
)

// NormPlace is where the norms of a layer stand.
type NormPlace uint8

// The places of norms.
const (
	NormsBefore NormPlace = iota // of the input of attention and of the MLP (Llama)
	NormsAround                  // of the input and of the output (Gemma 2 and 3, GLM-4)
	NormsAfter                   // of the output alone (OLMo-2)
)

func (t *Traits) kinds() []Kind {
	if len(t.Kinds) == 0 {
		return []Kind{{}}
	}
	return t.Kinds
}

// attnScale is the factor of scores, 1/sqrt(headDim) where none is stated.
func (t *Traits) attnScale(headDim int) float64 {
	if t.AttnScale == 0 {
		return PlainScale(headDim)
	}
	return t.AttnScale
}

// PlainScale is the factor of scores of most families: 1/sqrt(headDim).
func PlainScale(headDim int) float64 { return 1 / math.Sqrt(float64(headDim)) }

// over resolves Dims for heads of n elements.
func (r Rope) over(headDim int) Rope {
	if r.Dims == 0 {
		r.Dims = headDim
	}
	return r
}
