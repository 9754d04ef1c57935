// Package sample holds the templates that draw a token from logits: temperature, top-k, top-p, min-p, penalties and
// masks, for up to 16 rows a step. Package draw says what they compute.
//
// # Files
//
//	sample.go change.go score.go                  the phase; logits that penalties, biases and masks change, and their scores
//	search.go highest.go list.go                  the thresholds of top-k and top-p, the highest logits, short lists of them
//	pass.go philox.go                             the draw itself, and its random numbers
package sample

import "github.com/mkgen/mkgen/dsl"

// Short names for the device types this package uses most.
type (
	f32 = dsl.Val[dsl.F32]
	u32 = dsl.Val[dsl.U32]
)
