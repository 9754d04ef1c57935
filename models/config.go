package models

// Config describes one Llama-family decoder. All matrices are stored
// [outputs, inputs] as in the checkpoint: y = W·x.
//
// A layer computes, for hidden vector x of length Hidden,
//
//	q, k, v = Wq·n, Wk·n, Wv·n     n = rmsnorm(x)·gain; q and k rotated (Rope)
//	x += Wo·attention(q, K, V)     scores scaled by 1/sqrt(HeadDim)
//	x += Wdown·(silu(Wgate·m) * Wup·m)     m = rmsnorm(x)·gain
//
// and the step ends with logits = Whead·(rmsnorm(x)·gain). No projection has a
// bias. Use Validate before relying on any derived figure.
type Config struct {
	// Name identifies the model in file names and messages: 1 to 64 of
	// a-z 0-9 . _ - and no leading punctuation. Parse sets it to "custom".
	Name string

	Layers       int // decoder layers ("num_hidden_layers")
	Hidden       int // length of the residual vector ("hidden_size")
	Intermediate int // rows of the gate and of the up matrix ("intermediate_size")
	Heads        int // query heads ("num_attention_heads")
	KVHeads      int // key and value heads, a divisor of Heads ("num_key_value_heads")
	HeadDim      int // length of one head, even; Heads*HeadDim need not equal Hidden ("head_dim")
	Vocab        int // rows of the embedding and of the LM head ("vocab_size")
	MaxPositions int // positions the model was made for, 0 to MaxPositions-1 ("max_position_embeddings")

	// NormEps is added to the mean square in every RMSNorm ("rms_norm_eps").
	NormEps float64
	// TieEmbeddings says that the LM head is the embedding matrix.
	TieEmbeddings bool
	// Rope is the rotary embedding of q and k, in the half-split layout: element
	// i is rotated with element i+HeadDim/2.
	Rope Rope

	// BOS is the token that starts a sequence, or NoToken.
	BOS int
	// EOS lists the tokens that end a sequence; nil when there is none.
	EOS []int

	// DType is the type in which the kernel reads the weights: BF16.
	DType DType
	// CheckpointDType is what the configuration file said about the weights on
	// disk (torch_dtype or dtype); DTypeUnstated where it said nothing. A loader
	// that finds another type than DType converts, or refuses.
	CheckpointDType DType
}

// NoToken is Config.BOS of a model without such a token.
const NoToken = -1

// Rope is a rotary position embedding over the whole head: RopeInvFreq turns it
// into angles per position.
type Rope struct {
	// Theta is the base of the geometric series of frequencies ("rope_theta").
	Theta float64
	// Scaling changes the low frequencies as Llama 3.1 does; nil for none.
	Scaling *Llama3Scaling
}

// Llama3Scaling holds the parameters of rope_type "llama3": frequencies whose
// wavelength exceeds OriginalPositions/LowFreqFactor are divided by Factor, those
// below OriginalPositions/HighFreqFactor stay, those between are interpolated.
type Llama3Scaling struct {
	Factor            float64 // 1 to 10000 ("factor")
	LowFreqFactor     float64 // positive ("low_freq_factor")
	HighFreqFactor    float64 // at least 1.1 times LowFreqFactor ("high_freq_factor")
	OriginalPositions int     // context of the first training ("original_max_position_embeddings")
}
