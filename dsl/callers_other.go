//go:build !amd64 && !arm64

package dsl

// callers finds nothing here: every stack is then unwound by the runtime.
func callers(*[nearFrames]uintptr) {}
