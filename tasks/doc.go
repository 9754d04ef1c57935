// Package tasks is where the task templates stand: Go code that emits device code for one op of a decode step. A
// template takes shapes, never model names, and works on what grid.Env gives it: the kernel, the ring, the consumer
// warps.
//
// Templates come in two halves that run in different warps: Produce, in the producer warp, streams the op's weights or
// KV through the ring; Consume, in the consumer warps, does the arithmetic. Both must walk the same chunks in the same
// order.
//
// # Rooms
//
// From below upwards, a package may use those above it in this list:
//
//	grid       thread coordinates, barriers of the consumers, the grid barrier, LL packets
//	product    products of one row and of several, with weights of 16, 8 and 4 bits; what is before and behind them
//	prefill    products of hundreds of rows, on wgmma
//	attention  q, k and v, the KV cache, attention and its variants, merges of partial states; also of prompts
//	sample     the choice of a token: temperature, top-k, top-p, penalties, masks
//	draw       what sample computes, in plain Go; needs none of the others
//
// Each has a map of its files in its own comment.
package tasks
