// Package enginecases holds what an engine must do on any device: each Case
// makes engines on devices that a Bench opens and checks what they generate. The
// tests of this package run the cases on the executor, tests/gpu/engine runs them
// on a GPU.
package enginecases
