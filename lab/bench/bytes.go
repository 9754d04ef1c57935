package bench

import (
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
)

// BytesPerToken is what a step must read at the least, averaged over tokens
// (at least 1) steps of which the first finds context (0 or more) tokens in the
// KV cache and every other one more than the one before: all matrices and gains
// and one row of embeddings once, and the keys and values of the cached tokens
// once. The token that a step appends itself is not read. A layer of the model's with a window reads the tokens that it
// sees; a window of --attention counts as if all were read.
//
// weights is what a step reads of weights, megakernel.Kernel.WeightBytes; 0 is that of bf16.
// kvBytes is the size of a cached token over all layers, megakernel.Kernel.KVTokenBytes; 0 is that of a cache in the
// type of the weights.
func BytesPerToken(c models.Config, weights, kvBytes int64, context, tokens int) float64 {
	if kvBytes == 0 {
		kvBytes = c.KVBytesPerToken()
	}
	if weights == 0 {
		weights = c.WeightBytes()
	}
	cached := float64(context) + float64(tokens-1)/2
	read, arch := cached*float64(kvBytes), c.Arch()
	for layer := range c.Layers {
		if window := arch.Layer(layer).Attn.Window; window > 0 {
			read -= float64(kvBytes) / float64(c.Layers) * hidden(window, context, tokens)
		}
	}
	return float64(weights) + read
}

// hidden is how many cached tokens a window hides from a step, in the mean of steps behind context and more tokens.
func hidden(window, context, tokens int) float64 {
	sum := 0
	for i := range tokens {
		sum += max(0, context+i-(window-1))
	}
	return float64(sum) / float64(tokens)
}

// dtypeOf names what weights are: the format of the layers' matrices, or the model's type, and the LM head's where that
// is not the model's type.
func dtypeOf(c models.Config, layers, head pipeline.Format) string {
	plain := func(f pipeline.Format) bool { return f == "" || f == pipeline.FormatBF16 }
	name := DTypeName(c.DType)
	if !plain(layers) {
		name = string(layers)
	}
	if !plain(head) {
		name += ", head " + string(head)
	}
	return name
}
