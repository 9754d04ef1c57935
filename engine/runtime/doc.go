// Package runtime runs a generated kernel: it loads weights onto a Device,
// keeps the KV cache's page table, and steps. A Device is the executor (sim,
// always there) or a GPU (package cuda, behind the build tag cuda); the same
// session drives both.
package runtime
