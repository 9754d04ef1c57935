package synth

import (
	"fmt"
	"math"
	"math/bits"
)

// Dims are the sizes of a Llama-family model, as in its config.json.
type Dims struct {
	Layers, Hidden, Intermediate, Heads, KVHeads, HeadDim, Vocab int
	// TieEmbeddings makes the LM head share the embedding's tensor; lm_head.weight is then absent.
	TieEmbeddings bool
}

// The targets that the recipes of Llama aim at; tests and tests/gpu/reference.py --stats measure what comes out. The residual
// stream grows little, since every doubling of it multiplies the rounding errors of bf16 in a random network, and a gate that
// compares with a noisy reference lets small faults through.
const (
	gainMeanSquare = 13.0 / 12 // of U(0.5, 1.5): a normalised, gained vector has this mean square
	queryKeySD     = 1.85      // of every element of q and of k: scores have about its square
	gateSD         = 1.5       // of the gate's argument of SiLU
	swigluRMS      = 0.88      // of SiLU(gate) * up for gate ~ N(0, 1.5), up ~ N(0, 1)
	attentionRMS   = 0.75      // of attention's output for v ~ N(0, 1), scores of that spread
	firstSquare    = 4.0       // mean square of the residual stream where the growth starts
	growthSquare   = 5.0       // what is added to it by the last layer, whatever the number of layers
)

// Llama lists the tensors of a Llama-family model in the order embedding, layers (input norm, q, k, v, o, post-attention norm,
// gate, up, down), final norm, LM head (absent when tied), with recipes that let a fault show: gains from U(0.5, 1.5),
// attention scores with a standard deviation of 3 or more, a residual stream whose size stays bounded over any number of
// layers, and logits whose standard deviation is sqrt(1.25 * bitlen(vocab)), where the top-1 probability of that many normal
// logits is neither flat nor certain. Sizes must be positive: else it panics.
func Llama(d Dims) []Tensor {
	if min(d.Layers, d.Hidden, d.Intermediate, d.Heads, d.KVHeads, d.HeadDim, d.Vocab) <= 0 {
		panic(fmt.Sprintf("BUG: synth.Llama of %+v, want positive sizes", d))
	}
	fanIn := math.Sqrt(float64(d.Hidden) * gainMeanSquare)
	head := Normal(d.LogitSD() / fanIn)
	embed := Normal(math.Sqrt(firstSquare))
	if d.TieEmbeddings {
		embed = head
	}
	matrix := func(name string, rows, cols int, r Recipe) Tensor { return Tensor{name, []int{rows, cols}, r} }
	gain := func(name string) Tensor { return Tensor{name, []int{d.Hidden}, Gain()} }

	ts := []Tensor{matrix("model.embed_tokens.weight", d.Vocab, d.Hidden, embed)}
	for l := range d.Layers {
		p := fmt.Sprintf("model.layers.%d.", l)
		q, kv := d.Heads*d.HeadDim, d.KVHeads*d.HeadDim
		branch := d.branchRMS(l)
		ts = append(ts,
			gain(p+"input_layernorm.weight"),
			matrix(p+"self_attn.q_proj.weight", q, d.Hidden, Normal(queryKeySD/fanIn)),
			matrix(p+"self_attn.k_proj.weight", kv, d.Hidden, Normal(queryKeySD/fanIn)),
			matrix(p+"self_attn.v_proj.weight", kv, d.Hidden, Normal(1/fanIn)),
			matrix(p+"self_attn.o_proj.weight", d.Hidden, q, Normal(branch/attentionRMS/math.Sqrt(float64(q)))),
			gain(p+"post_attention_layernorm.weight"),
			matrix(p+"mlp.gate_proj.weight", d.Intermediate, d.Hidden, Normal(gateSD/fanIn)),
			matrix(p+"mlp.up_proj.weight", d.Intermediate, d.Hidden, Normal(1/fanIn)),
			matrix(p+"mlp.down_proj.weight", d.Hidden, d.Intermediate, Normal(branch/swigluRMS/math.Sqrt(float64(d.Intermediate)))),
		)
	}
	ts = append(ts, gain("model.norm.weight"))
	if !d.TieEmbeddings {
		ts = append(ts, matrix("lm_head.weight", d.Vocab, d.Hidden, head))
	}
	return ts
}

// branchRMS is the size of what attention adds to the residual stream in a layer, and of what the MLP adds. An untied embedding
// starts at firstSquare and all layers share the growth. A tied one is as small as the LM head's rows, and a token's own logit
// would tower over the others if it remained most of the stream: layer 0 brings the stream to firstSquare, the others share.
func (d Dims) branchRMS(layer int) float64 {
	switch {
	case !d.TieEmbeddings:
		return math.Sqrt(growthSquare / float64(2*d.Layers))
	case d.Layers == 1:
		return math.Sqrt((firstSquare + growthSquare) / 2)
	case layer == 0:
		return math.Sqrt(firstSquare / 2)
	}
	return math.Sqrt(growthSquare / float64(2*(d.Layers-1)))
}

// LogitSD is the standard deviation that the LM head's rows are scaled to give the logits, whatever the vocabulary's size; the
// logits of a tied head stray from it, and so does the root mean square of a few.
func (d Dims) LogitSD() float64 { return math.Sqrt(1.25 * float64(bits.Len(uint(d.Vocab)))) }
