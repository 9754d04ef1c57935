// Package emit turns a kernel (package ir) into what a CUDA toolchain and a Go
// host program need: one self-contained .cu, a Go host package and a
// machine-readable layout.
//
//	function   writes
//	Print      the .cu, with the Go position of every line
//	CUDA       the .cu
//	NewLayout  what a launcher must know, as data (layout.json)
//	Host       a Go package: params block, constants, tables, embedded .cu, launch
//
// The .cu has exactly one kernel, includes nothing, is accepted by nvcc and
// NVRTC, and is the same bytes for the same kernel. Every op has one row in
// ops.go that says how it is spelled; small functions around inline PTX are
// printed only when the kernel calls them.
//
// What is printed is the kernel, not an optimisation of it, but for three
// things that change no result: values that nothing needs are left out (with
// assertions, which only the executor checks), a value used once is printed
// where it is used, and index registers get one name.
package emit
