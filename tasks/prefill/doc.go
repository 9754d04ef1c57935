// Package prefill holds the templates of products for prompts: hundreds of tokens a step, multiplied by wgmma.
//
// # Files
//
//	gemm.go gemmparts.go span.go                  the product by tiles of a step's tokens, also in parts of its columns
//	part.go rows.go                               what comes behind its sums
//	coded.go                                      inputs in e4m3 beside weights of e4m3
//	codes.go dequantize.go                        weights of 8 and 4 bits, made bf16 before the product
//	head.go choice.go                             the LM head, and the token that follows
package prefill

import "github.com/mkgen/mkgen/dsl"

// Short names for the device types this package uses most.
type (
	f32  = dsl.Val[dsl.F32]
	u32  = dsl.Val[dsl.U32]
	pair = dsl.Val[dsl.BF16x2]
)
