package models

// Config describes one dense decoder as its config.json does: sizes, which all layers share, and traits. Arch derives
// the mathematics, layer by layer, and has its formulas. Use Validate before relying on any derived figure.
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
	// Rope is the rotary embedding of q and k, in all layers but those whose kind
	// has another.
	Rope Rope

	// Family is the name of the family ("model_type"); "" for llama.
	Family string
	// Names are the tensors of a checkpoint that are not called as in LlamaForCausalLM; nil for none. Not to be
	// changed.
	Names TensorNames
	// ByKVHead says that q, k and v, which have one name, are packed head by head: of each KV head its query heads, its
	// key, its value.
	ByKVHead bool
	// TextPart says that the file describes a multimodal model, of which this is the text part: other tensors are
	// passed over.
	TextPart bool
	// Skipped are the numbers of a checkpoint's layers that are passed over, in order, and that Layers does not count:
	// those of cross-attention, through which text does not go. EmbedMore is how many rows the embedding has beyond
	// Vocab.
	Skipped   []int
	EmbedMore int
	// Traits is what the mathematics has beyond the above or otherwise: zero for Llama.
	Traits Traits

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

// Rope is a rotary position embedding: element i of the first Dims of a head is rotated with element i+Dims/2, or with
// its neighbour where Interleaved says so, by position·InvFreq[i] radians.
type Rope struct {
	// Theta is the base of the geometric series of frequencies ("rope_theta").
	Theta float64
	// Dims is how many of a head's elements are rotated, an even number; 0 for all ("partial_rotary_factor").
	Dims int
	// Interleaved pairs elements 2i and 2i+1 (GLM-4).
	Interleaved bool
	// Scaling changes the frequencies for contexts beyond those of the first training; nil for none.
	Scaling *Scaling
}

// ScalingType names a rule for rotary frequencies as config.json's rope_type does.
type ScalingType string

// The rules that scale rotary frequencies.
const (
	ScalingLlama3   ScalingType = "llama3"   // low frequencies divided, those between two bands blended (Llama 3.1)
	ScalingLinear   ScalingType = "linear"   // all divided by Factor (position interpolation; Chen et al., 2023)
	ScalingDynamic  ScalingType = "dynamic"  // a base that grows with the context (dynamic NTK)
	ScalingYaRN     ScalingType = "yarn"     // ramp between dims by number of turns (Peng et al., 2023)
	ScalingLongRoPE ScalingType = "longrope" // a factor for every frequency (Ding et al., 2024; Phi-3)
)

// Scaling holds the parameters of one rule; those of other rules are zero. Of llama3, frequencies whose wavelength
// exceeds OriginalPositions/LowFreqFactor are divided by Factor, those below OriginalPositions/HighFreqFactor stay,
// those between are interpolated.
type Scaling struct {
	Type              ScalingType
	Factor            float64 // 1 to 10000 ("factor")
	OriginalPositions int     // context of the first training ("original_max_position_embeddings")

	LowFreqFactor  float64 // of llama3: positive ("low_freq_factor")
	HighFreqFactor float64 // of llama3: at least 1.1 times LowFreqFactor ("high_freq_factor")

	// of yarn: turns within OriginalPositions where its ramp begins and ends ("beta_fast", "beta_slow")
	BetaFast, BetaSlow float64
	Truncate           bool // of yarn: the ramp's ends are rounded outwards to whole dimensions ("truncate")

	ShortFactors, LongFactors []float64 // of longrope: divisors of the frequencies up to and beyond OriginalPositions

	// AttentionFactor multiplies sines and cosines of yarn and longrope, so scores by its square; 0 and 1 for no
	// change.
	AttentionFactor float64
}
