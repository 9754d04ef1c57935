// Package quant reads quantised Hugging Face checkpoints as they are into one neutral form.
//
// Open finds out from config.json how the weights are quantised (GPTQ, AWQ, compressed-tensors, fp8, ModelOpt),
// checks every tensor against it, and gives each weight as a Matrix: its Format, its codes, scales and zero
// points row by row, and the rows as numbers, bit for bit as the format's own package dequantises them. Nothing
// is converted or copied until a row is asked for. What is not supported is refused by field or tensor, with
// what would work.
//
// The package knows no architecture: names and shapes are those of the files. docs/quantised-checkpoints.md has
// the table of what is read and what is refused.
package quant
