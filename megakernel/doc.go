// Package megakernel turns a model's configuration into one kernel that runs a
// whole decode step: ops grouped into phases, a sync after each phase, all
// weights and KV streamed through one ring that never waits for a phase.
//
// # Files
//
//	megakernel.go option*.go                      Build, and the options: a row of a table each
//	supports.go features.go
//	single*.go ragged*.go phases.go               a layer's phases (layerPhases), of one row a step and of several
//	mlp*.go
//	vectors.go syncs.go edges.go                  which sync stands behind a phase, and what each way costs on a machine
//	assemble.go produce.go held.go copies.go      the kernel around the phases: roles, steps, draws
//	kept.go drawing.go registers.go idle.go
//	attentionspec.go variants.go unsplit.go       kinds of attention, by layer; contexts at which no KV head is split
//	buffers.go layout.go contents.go              buffers of the params block, and what a host has to know of them
//	weights.go weightformats.go pack.go blocks.go tensors into the packed image
//	prefill*.go                                   the kernel of prompts
//	chained.go graph*.go                          a step as a graph of kernels
//	predict.go stepmodel.go draintimes.go         what a step takes, by a model
//	summary.go explain.go format.go files.go      what mkgen prints and writes
//	write.go
//	fault.go localfault.go probe.go tracing.go    faults, probes and traces, for checks and measurements
package megakernel
