// Package cuda is the driver of one NVIDIA GPU: memory, streams, events, modules, and the cooperative launch of a
// kernel that takes one pointer to its params block.
//
// Everything that calls the driver lies behind the build tag `cuda`; without it the package holds only [Facts], [Needs]
// and the checks on them, so that `go build ./...` works on a machine without CUDA. With the tag,
//
//	scripts/build-cuda build -o out/ ./tests/gpu/smoke
//
// runs `go build -tags cuda` with the headers of CUDA 13 from wheels (or those under $CUDA_HOME: 12 and 13 work) and a
// libcuda.a that opens the driver's libcuda.so.1 when the first GPU is opened. The binary needs glibc and, to open a
// GPU, the driver; nothing else of CUDA. Without a driver or a GPU it starts all the same, and Open says what is
// missing.
//
// It stands on gorgonia.org/cu; driver.go adds in cgo what cu does not bind, and the folder shim holds a cuda.h that
// lets cu compile with CUDA 13's header.
//
// A Device and all that comes from it may be used by several goroutines at once. Closing and freeing twice is harmless;
// any other use after closing is an error that wraps [ErrClosed].
package cuda
