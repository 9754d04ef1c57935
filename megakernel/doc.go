// Package megakernel turns a model's configuration into one kernel that runs a
// whole decode step: ops grouped into phases, a sync after each phase, all
// weights and KV streamed through one ring that never waits for a phase.
package megakernel
