// Package reference is the float64 reference of a Llama decode step: plain Go, no code shared with what it judges. Its own judge is
// Hugging Face transformers, through the committed logits in testdata.
//
// All activations are float64; weights are bf16 bit patterns, row-major, [outputs, inputs], under their Hugging Face names.
package reference
