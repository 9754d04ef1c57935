// Package runtime runs a generated kernel: it loads weights onto a Device,
// keeps the KV cache's page table, and steps. A Device is the executor (sim,
// always there) or a GPU (package cuda, behind the build tag cuda); the same
// session drives both.
//
// # Files
//
//	device.go gpu.go sim*.go                      a Device, on a GPU and on the executor
//	bundle.go runner.go session.go sequence.go    kernels over the same buffers, and who steps with which
//	launch.go follow.go stream.go elapsed.go      a launch: its parameters, tokens as they come, its end
//	ahead_gpu.go once_gpu.go graph_gpu.go         other ways to launch, and copies ahead of one
//	hang.go                                       a launch that makes no step is given up
//	prefill.go                                    prompts through their kernels
//	load.go weights.go finite.go random.go        weights onto the device
//	image.go room_*.go staging.go stage_gpu.go    the image kept on disk, and its way to the device
//	maps_gpu.go mirror.go                         tensor maps; words that host and device both have
//	draws.go masks.go scores.go                   what a row's draw needs, and what comes of it
package runtime
