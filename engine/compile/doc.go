// Package compile turns an emitted kernel into a cubin, with nvcc when it is there and else with NVRTC, and keeps the
// cubin.
//
//	src, err := compile.SourceOf(mk, "sm_90a")                  // mk is a *megakernel.Kernel
//	res, err := compile.Kernel(ctx, src, compile.Options{})     // res.Cubin, res.Registers, res.SpillBytes, …
//
// The cache is a folder `cubin` under mkgen's cache directory ($MKGEN_CACHE, else mkgen under [os.UserCacheDir]). An
// entry is found by a hash of everything that decides the cubin: kernel text, architecture, compiler with its version,
// flags. It is two files, the cubin and beside it a .json with the figures and a hash over both; an entry that does not
// have its hash is compiled anew and replaced, never used. Files come to be by renaming, and processes that want the
// same kernel at the same time wait for the one that compiles it. The folder may be deleted at any time; nothing else
// ever shrinks it.
//
// nvcc is looked for by internal/nvcc: $NVCC, $CUDA_HOME/bin, PATH, what .ci/cuda-toolchain installed,
// /usr/local/cuda/bin. NVRTC is there only in programs built with the tag cuda (scripts/build-cuda); it is opened when
// it is needed, as libnvrtc.so.13 or .12 by the dynamic linker's own search (LD_LIBRARY_PATH), then in $CUDA_HOME/lib64
// and /usr/local/cuda/lib64. Both must be of CUDA 12 or newer.
package compile
