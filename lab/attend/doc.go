// Package attend builds kernels of nothing but attention: the attention and merge
// phases of a ragged megakernel, for all layers one after another. Queries and a
// block-sparse KV cache go in, outputs come out; planned by package kv, streamed
// and computed by the same templates as in the whole model. It is the yardstick of
// these phases, and what their variants are checked with.
package attend
