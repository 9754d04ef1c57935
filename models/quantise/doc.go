// Package quantise writes a checkpoint's weights in 4 or 8 bits: a Hugging Face checkpoint in bf16, f16 or f32 becomes
// one that compressed-tensors and everything that reads its formats opens, models/quant too.
//
// Scales of integers are chosen by least squares, those of e4m3 are powers of two; round.go says how. One tensor is in
// memory at a time, the output appears whole or not at all, and the same input gives the same bytes on every machine.
package quantise
