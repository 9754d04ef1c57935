//go:build amd64 || arm64

package dsl

// callers fills pcs with the return addresses of the calling function and its callers, as their frame pointers say, and
// leaves what lies behind the last. It knows nothing of inlined functions, but does in nanoseconds what runtime.Callers
// does in microseconds. It is in assembly because the stack must not move meanwhile.
//
//go:noescape
func callers(pcs *[nearFrames]uintptr)
