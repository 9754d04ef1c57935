// A cuda.h that comes before the real one on CGO_CFLAGS, so that gorgonia.org/cu v0.9.6 compiles with the headers of CUDA 12 and
// of CUDA 13, and so that a program that links it runs on a machine without a GPU until it asks for one.
//
// scripts/build-cuda puts this folder first. The package comment of engine/runtime/cuda says more.
#ifndef MKGEN_SHIM_CUDA_H
#define MKGEN_SHIM_CUDA_H

#include_next <cuda.h>

#if CUDA_VERSION >= 13000
// CUDA 13's header gives these five names new signatures by macro. The driver still exports the older functions, and cu is written
// against them.
#undef cuCtxCreate
#undef cuMemAdvise
#undef cuMemPrefetchAsync
#undef cuGraphAddDependencies
#undef cuGraphGetEdges
#ifdef __cplusplus
extern "C" {
#endif
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev);
CUresult CUDAAPI cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device);
CUresult CUDAAPI cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream);
CUresult CUDAAPI cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to, size_t numDependencies);
CUresult CUDAAPI cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges);
#ifdef __cplusplus
}
#endif
#define cuCtxCreate cuCtxCreate_v2
#endif

// cu calls cuInit in a package initialiser and ends the process when that fails. Here that call does nothing; Open makes the real one
// and returns its error.
static inline CUresult mkgen_cuInit_later(unsigned int flags) {
  (void)flags;
  return CUDA_SUCCESS;
}
#define cuInit mkgen_cuInit_later

#endif
