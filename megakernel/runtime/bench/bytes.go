package bench

import "github.com/mkgen/mkgen/models"

// BytesPerToken is what a step must read at the least, averaged over tokens
// (at least 1) steps of which the first finds context (0 or more) tokens in the
// KV cache and every other one more than the one before: all matrices and gains
// and one row of embeddings once, and the keys and values of the cached tokens
// once. The token that a step appends itself is not read.
//
// kvBytes is the size of a cached token over all layers, megakernel.Kernel.KVBytes
// of 1; 0 is that of a cache in the type of the weights.
func BytesPerToken(c models.Config, kvBytes int64, context, tokens int) float64 {
	if kvBytes == 0 {
		kvBytes = c.KVBytesPerToken()
	}
	cached := float64(context) + float64(tokens-1)/2
	return float64(c.WeightBytes()) + cached*float64(kvBytes)
}
