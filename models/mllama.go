package models

import "slices"

// mllama is the text part of Llama 3.2 Vision: Llama 3.1 with layers of cross-attention between its own, which text
// passes by as long as there is no image, and an embedding of 8 more tokens than the LM head has (transformers:
// modeling_mllama.py).
func mllama() Family {
	return Family{
		Name: "mllama_text_model", Title: "Llama 3.2 Vision", Class: "MllamaForCausalLM",
		Defaults: `{"bos_token_id": 128000, "eos_token_id": 128001, "rope_theta": 500000, "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38]}`,
		Read: func(f *Fields, c *Config) {
			c.Traits.Act = f.Activation("hidden_act")
			f.Pass("dropout")
			c.Skipped = f.layerNumbers("cross_attention_layers", c.Layers)
			c.Layers -= len(c.Skipped)
			c.EmbedMore = 8
			if c.TieEmbeddings {
				f.Refuse("tie_word_embeddings", "false", "the embedding has more rows than the LM head")
			}
		},
	}
}

// layerNumbers reads a list of different numbers of layers, fewer than there are, and returns them in order.
func (r *Fields) layerNumbers(field string, layers int) (numbers []int) {
	value, ok := r.take(field)
	if !ok {
		return nil
	}
	entries, ok := value.(list)
	for _, e := range entries {
		x, isNumber := toFloat(e)
		n := int(x)
		ok = ok && isNumber && float64(n) == x && n >= 0 && n < layers && !slices.Contains(numbers, n)
		numbers = append(numbers, n)
	}
	if !ok || len(numbers) >= layers {
		r.refuse(field, value, "a list of different numbers of layers, not of all", "")
		return nil
	}
	slices.Sort(numbers)
	return numbers
}

// LayerNumber is the number in a model's own layers of layer n of its checkpoint; false where that layer is passed
// over.
func (c *Config) LayerNumber(n int) (int, bool) {
	at, skipped := slices.BinarySearch(c.Skipped, n)
	return n - at, !skipped
}
