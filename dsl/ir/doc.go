// Package ir is a kernel as data: types, values, buffers, instructions and
// structured control flow, in three-address form.
//
// Builders append to it (package dsl), backends read it (package emit prints
// CUDA C++, package interp executes it); they meet only here. The op table
// (op.go) is the single list of what a device can do: for every op its types,
// its effect on memory and the scope of threads that must take part.
//
//	node     printed form
//	Instr    v7:f32 = fma v4, v5, v6
//	For      for v2:u32 in 0..8 step 1 { … }
//	If       if v3 { … } else { … }
//	Roles    roles { producer warps 8..9 { … } consumer warps 0..8 { … } }
//	Region   region "layer 0: qkv" { … }
//
// A Value is defined once and is visible in the rest of its block and in the
// blocks nested there. What changes over time lives in a Var, read by the op
// get and written by the op set.
package ir
