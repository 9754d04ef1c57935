// Package cases makes the inputs of the attention benchmark and of the checks of
// attention variants: which sequences there are, in which pages of the cache their
// keys and values lie, and what is in them. tests/gpu/attention.py reads the same
// from what Write leaves, and makes the contents itself: they come from the
// generator of package models/synth, so that no cache is moved.
//
//	layer l of the cache   tensor "kv.<l>", Normal(KVStd), in the order of attention.KVLayout's elements
//	queries                tensor "q", Normal(QStd), [row][head][dimension]
//	custom mask            tensor "mask", see Mask
package cases
