// Package reference is the one float64 reference of a decode step, over models.Arch: plain Go, no code shared with what
// it judges but that description and the rotary frequencies. Its own judge is Hugging Face transformers, through the
// committed logits in testdata and, for every family, in tests/families/testdata.
//
// All activations are float64; weights are bf16 bit patterns, row-major, [outputs, inputs], under their Hugging Face
// names.
package reference
