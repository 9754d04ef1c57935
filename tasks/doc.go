// Package tasks holds the task templates: Go code that emits device code for
// one op of a decode step. A template takes shapes, never model names, and
// works on what Env gives it: the kernel, the ring, the consumer warps.
//
// Templates come in two halves that run in different warps: Produce, in the
// producer warp, streams the op's weights or KV through the ring; Consume, in
// the consumer warps, does the arithmetic. Both must walk the same chunks in
// the same order.
//
// # Files
//
// What all templates stand on:
//
//	env.go                                        thread coordinates, barriers of the consumers; GridBarrier, the sync of all SMs
//	ll.go vectorpackets.go qkvpackets.go          LL packets: a flag beside the data, waited for where the data is read
//	vector.go stage.go fixed.go operands.go       a product's input, and the formats of it
//	format.go activations.go
//	rows.go work.go turns.go                      which rows, items and classes of attention a CTA has
//	planted.go probe.go meaning.go                faults, probes and float64 meanings, for checks
//	rule.go types.go                              what a template refuses; short names of device types
//
// Products of a row, of several rows, and what comes behind their sums:
//
//	gemv*.go held.go early.go across.go           one row a step; what is fetched before the input is there
//	gemm*.go column*.go normcolumns.go            several rows a step
//	int4*.go e4m3blocks.go dequantize.go          weights of 8 and 4 bits
//	epilogue.go bias.go glu.go kept.go lmhead.go  residuals, biases, SwiGLU, the LM head's argmax
//
// Attention, in the order of a step:
//
//	qkv.go headnorm.go                            q, k and v: norms, RoPE, where the new token's key and value go into the cache
//	kv.go                                         the cache's layout: a page's address, units and elements in it
//	attention.go state.go fragments.go tail.go    items of KV through the ring, running softmax
//	hooks.go combine*.go
//	statepackets.go merge*.go attentionmerge.go   partial states, merged within the phase or behind it
//	output.go                                     where the output goes
//	variant*.go                                   windows, soft caps, masks, ALiBi and what else is not plain attention
//
// Kernels for prompts, and the choice of a token:
//
//	prefill*.go                                   hundreds of tokens a step, on wgmma
//	sample*.go philox.go                          temperature, top-k, top-p, penalties, masks; package draw says what they compute
package tasks
