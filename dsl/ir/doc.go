// Package ir is a kernel as data: types, values, buffers, instructions and
// structured control flow, in three-address form.
//
// Builders append to it (package dsl), backends read it (package emit prints
// CUDA C++, package interp executes it); they meet only here. The op table
// (optable.go) is the single list of what a device can do: for every op its types,
// its effect on memory and the scope of threads that must take part.
//
//	node     printed form
//	Instr    v7:f32 = fma v4, v5, v6
//	For      for v2.i:u32 in 0..8 step 1 unroll 2 { … }
//	If       if v3 { … } else { … }
//	Roles    roles { producer warps 8..9 { … } consumer warps 0..8 { … } }
//	Region   region "layer 0: qkv" { … }
//
// A Value is defined once and is visible in the rest of its block and in the
// blocks nested there; a Region is no block of its own. What changes over time
// lives in a Var, read by the op get and written by the op set.
//
// Print gives the text form. A value's name for readers stands where it is
// defined (v7.row:u32); an instruction reads results = op operands suffixes,
// where order, scope and type follow the op's name as in PTX and the rest is
// key=value:
//
//	kernel gemv warps=4 grid=16 shared=1024/232448
//	param epoch:u32  // counts launches
//	global @w:bf16[32768] align=16 readonly  // weights
//	shared @x:f32[256] offset=0 align=16
//	view @w:b128[4096] of @w offset=0
//	{
//	  v1.t:u32, v2:u32 = ld.acquire.gpu.u32 @flags[v0] lanes=2 hint=evict_first
//	  %acc0:f32 = var 0
//	  bar.sync id=1 n=256
//	  v3:pred = wait.mbar @full[v1], v2 abort=@stop[0] sleep=32
//	}
//
// Verify checks a kernel, Analyze says which values are uniform over how many
// threads, Stats counts.
package ir
