// Package skeleton runs a real kernel's plan on the CPU without data, and holds what it
// copies, stores and waits for against a computation of its own.
//
// The kernel is the one that ships, for all its SMs, but for the number of layers, which the
// run cuts to a few. ir.Skeleton takes the arithmetic on data out of it. Plan table, page
// table, positions and step state are the real ones. Weights have no contents: their buffer
// is never written, and takes no memory.
//
//	check.go    what is asked for, and the launches
//	device.go   buffers and the session
//	watch.go    what a launch's accesses are checked by
//	weights.go  every byte of every matrix once a step, by the SM that owns it
//	ring.go     stages are filled in turn
//	cache.go    cached tokens once a step from their pages, new ones to theirs
//	packets.go  flags of LL packets ascend, and waits end with the latest
//	report.go   what was run and found
//
// What it does not see: values; arithmetic; kernels of several rows a step, and of a graph.
// Without Request.Races it does not see data races either.
package skeleton
