// Package product holds the templates of products of weights with the vectors of one row or several: their inputs,
// the products, and what follows behind their sums. What prefill kernels multiply by is package prefill.
//
// # Files
//
// A product's input, and its formats:
//
//	vector.go stage.go vectorpackets.go           residual vectors, norms, what waits for LL packets, staged in shared memory
//	activations.go columnrows.go                  inputs of several rows, and whose rows they are
//	fixed.go format.go                            inputs for codes of 8 and 4 bits; formats of weights, and their operands
//	probe.go                                      a copy of an input, for checks
//
// Products of a row, of several rows, and what comes behind their sums:
//
//	gemv*.go held.go early.go across.go           one row a step; what is fetched before the input is there
//	gemm*.go column*.go                           several rows a step
//	int4*.go e4m3blocks.go                        weights of 4 bits, and of 8 with a scale a block
//	epilogue.go bias.go glu.go kept.go lmhead.go  residuals, biases, SwiGLU, the LM head's argmax
package product

import "github.com/mkgen/mkgen/dsl"

// Short names for the device types this package uses most.
type (
	f32  = dsl.Val[dsl.F32]
	u32  = dsl.Val[dsl.U32]
	pair = dsl.Val[dsl.BF16x2]
)
