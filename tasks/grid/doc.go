// Package grid holds what every task template stands on: a kernel's thread coordinates, the barrier of a CTA's
// consumer warps, and how the CTAs of the grid wait for each other.
//
// # Files
//
//	env.go                                        thread coordinates, barriers of the consumers
//	barrier.go                                    Barrier, the sync of all SMs
//	ll.go                                         LL packets: a flag beside the data, waited for where the data is read
package grid

import "github.com/mkgen/mkgen/dsl"

// Short names for the device types this package uses most.
type (
	f32 = dsl.Val[dsl.F32]
	u32 = dsl.Val[dsl.U32]
)
