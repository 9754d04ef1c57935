package tasks

import "github.com/mkgen/mkgen/dsl"

// Short names for the device types this package uses most.
type (
	f32  = dsl.Val[dsl.F32]
	u32  = dsl.Val[dsl.U32]
	pair = dsl.Val[dsl.BF16x2]
)
