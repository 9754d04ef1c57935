package models

import "slices"

// Family is a kind of models whose config.json and tensor names one function reads: Llama's mathematics with other
// Traits, and other names. docs/adding-a-family.md adds one.
type Family struct {
	Name  string // model_type in config.json
	Title string // in listings, such as "Qwen 3"
	Class string // the class of the causal language model in "architectures"
	Also  string // another class there, of the same mathematics; "" for none
	// Parts are model types of the text parts of multimodal models that compute the same from text alone, in which the
	// three positions of a rotary embedding in three dimensions (mrope) are one.
	Parts []string
	// Defaults is a JSON object with what transformers takes for absent fields, as far as published files leave them
	// out.
	Defaults string
	// PartDefaults are further ones for the text part of a multimodal model, of which transformers 4 wrote only what
	// differs from them; "" for none.
	PartDefaults string
	// Fields are the family's names of fields that all families share, such as "num_layers" for
	// "num_hidden_layers"; nil for none. A file may have either name, not both.
	Fields map[string]string
	// Read sets Traits and whatever else differs from Llama. Sizes, norm epsilon, tokens, dtype, rotary embedding are
	// read before it, and what it asks Fields for is accepted. Of an impossible value it adds a problem and goes on.
	Read func(f *Fields, c *Config)
	// PartialRotary says that partial_rotary_factor counts.
	PartialRotary bool
	// Names are the tensors that have other names than LlamaForCausalLM's; nil for none.
	Names TensorNames
	// ByKVHead says how q, k and v lie in the tensor whose name they share: of each KV head its query heads, its key, its
	// value, instead of all of q, all of k, all of v.
	ByKVHead bool
}

// Families lists the built-in families in the order in which they are shown.
func Families() []Family {
	return []Family{llama(), mllama(), mistral(), ministral(), ministral3(), qwen2(), qwen3(), phi3(), gemma(), gemma2(),
		gemma3(), olmo2(), olmo3(), granite(), granite4(), hyperCLOVAX(), glm(), glm4(), smolLM3(),
		internLM3(), ernie45(), seedOSS(), helium(), internLM2()}
}

// LayerKinds sets what differs from layer to layer.
func (c *Config) LayerKinds(of func(layer int) Kind) {
	c.Traits.Kinds, c.Traits.Pattern = nil, nil
	var pattern []int
	for l := range c.Layers {
		k := of(l)
		i := slices.IndexFunc(c.Traits.Kinds, k.equal)
		if i < 0 {
			i, c.Traits.Kinds = len(c.Traits.Kinds), append(c.Traits.Kinds, k)
		}
		pattern = append(pattern, i)
	}
	if len(c.Traits.Kinds) == 1 {
		if c.Traits.Kinds[0].equal(Kind{}) {
			c.Traits.Kinds = nil
			return
		}
		pattern = pattern[:1]
	}
	c.Traits.Pattern = pattern[:period(pattern)]
}

// equal reports whether two kinds are the same.
func (k Kind) equal(other Kind) bool {
	same := (k.Rope == nil) == (other.Rope == nil) && (k.Rope == nil || k.Rope.String() == other.Rope.String())
	return same && k.Window == other.Window && k.NoRope == other.NoRope
}

// period is the least length whose repetition gives the whole pattern.
func period(pattern []int) int {
	for n := 1; n < len(pattern); n++ {
		if !slices.ContainsFunc(indices(len(pattern)), func(i int) bool { return pattern[i] != pattern[i%n] }) {
			return n
		}
	}
	return len(pattern)
}

func indices(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// Window reads a sliding window: the positions that a token sees, itself included. It is 0 where the field is absent,
// or so large that no position is ever hidden.
func (f *Fields) Window(field string, c *Config) int {
	w := f.Optional(field, 1, MaxMaxPositions)
	if w >= c.MaxPositions {
		return 0
	}
	return w
}

// Sliding reads layer_types, a list of "sliding_attention" and "full_attention", one for each layer; where it is
// absent, otherwise says which layers have a window.
func (f *Fields) Sliding(c *Config, otherwise func(layer int) bool) func(layer int) bool {
	flags := f.flags("layer_types", c.Layers, `"sliding_attention" or "full_attention" each`,
		func(entry any) (bool, bool) {
			return entry == "sliding_attention", entry == "sliding_attention" || entry == "full_attention"
		})
	if flags == nil {
		return otherwise
	}
	return func(layer int) bool { return flags[layer] }
}

// Windows gives the layers that sliding names a window, and the others none.
func (c *Config) Windows(window int, sliding func(layer int) bool) {
	c.LayerKinds(func(l int) Kind {
		if sliding(l) {
			return Kind{Window: window}
		}
		return Kind{}
	})
}

// Biases reads a flag that gives biases to all four projections of attention.
func (f *Fields) Biases(c *Config, field string) {
	c.Traits.QKVBias = f.Bool(field)
	c.Traits.OBias = c.Traits.QKVBias
}
