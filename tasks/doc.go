// Package tasks holds the task templates: Go code that emits device code for
// one op of a decode step. A template takes shapes, never model names, and
// works on what Env gives it: the kernel, the ring, the consumer warps.
//
// Templates come in two halves that run in different warps: Produce, in the
// producer warp, streams the op's weights or KV through the ring; Consume, in
// the consumer warps, does the arithmetic. Both must walk the same chunks in
// the same order.
package tasks
