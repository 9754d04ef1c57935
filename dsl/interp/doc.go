// Package interp executes an *ir.Kernel on the CPU: its values, and its memory
// model.
//
// Load flattens a kernel once into a linear program; Program.Run executes it
// over a grid of CTAs × warps × 32 lanes. Each warp is suspended and resumed on
// its own, a seeded scheduler chooses who runs next and when asynchronous copies
// complete; the same seed gives the same run, bit for bit. One instruction is
// one step, executed for all active lanes of a warp.
//
// Beside the values the executor keeps vector clocks, and stops with a *Fault at
// the first data race, deadlock, misuse of a barrier or access out of place.
// docs/memory-model.md states the rules it applies.
//
//	program.go  the flattened program; made by load.go, regalloc.go, layout.go
//	optable.go  one row per ir.Op: the function that executes it
//	run.go      machine, CTA and warp state; sched.go chooses who runs
//	control.go  loops, branches and roles over divergence masks
//	alu.go      arithmetic; float.go, convert.go, warpops.go, bytes.go, ldmatrix.go
//	memory.go   host-side buffers; access.go loads and stores, atomic.go
//	clock.go    vector clocks; race.go shadow memory; fence.go
//	strong.go   strong accesses and what weak memory lets them see
//	mbar.go     mbarriers; copy.go bulk copies; barrier.go; wait.go
//	watch.go    what a caller hears of accesses
//	fault.go    what is reported; report.go how it reads; uniform.go
package interp
