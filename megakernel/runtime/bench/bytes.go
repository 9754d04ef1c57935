package bench

import "github.com/mkgen/mkgen/models"

// BytesPerToken is what a step must read at the least, averaged over tokens
// (at least 1) steps of which the first finds context (0 or more) tokens in the
// KV cache and every other one more than the one before: all matrices and gains
// and one row of embeddings once, and the keys and values of the cached tokens
// once. The token that a step appends itself is not read.
func BytesPerToken(c models.Config, context, tokens int) float64 {
	cached := float64(context) + float64(tokens-1)/2
	return float64(c.WeightBytes()) + cached*float64(c.KVBytesPerToken())
}
