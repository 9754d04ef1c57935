// A yardstick, not a piece of the product: cycles that an mma.sync takes one of an SM's four schedulers, alone and beside
// lop3 and fma. An mma reads what lop3 before it have written, and later lop3 write it anew; fma are apart from it. It
// answers whether masks of weights and products overlap.
//
//   nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a issue.cu && ./a.out
//
// chains: sums that take turns, each waiting for its own last product. Instructions beside the products come in 8 chains.
#include <cstdio>
#include <cstdint>
#include <algorithm>
#include <cuda_runtime.h>
#define MMA(shape, types, out, in) asm volatile("mma.sync.aligned." shape ".row.col." types " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
  : out(d[0]), out(d[1]), out(d[2]), out(d[3]) : in(a[0]), in(a[1]), in(a[2]), in(a[3]), in(b0), in(b1))
enum { F32, S32, F16, NONE };
template <int T> __device__ __forceinline__ void mma(float (&f)[4], const uint32_t *a, uint32_t b0, uint32_t b1) {
  if constexpr (T == F32) { float(&d)[4] = f; MMA("m16n8k16", "f32.f16.f16.f32", "+f", "r"); }
  if constexpr (T == S32) { int(&d)[4] = reinterpret_cast<int(&)[4]>(f); MMA("m16n8k32", "s32.s8.s8.s32", "+r", "r"); }
  if constexpr (T == F16) {
    uint32_t(&d)[4] = reinterpret_cast<uint32_t(&)[4]>(f);
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
        : "+r"(d[0]), "+r"(d[1]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}
template <int T, int CH, int LOP, int FMA> __global__ void k(float *out, long long *cyc, int iters, uint32_t m) {
  float d[CH][4] = {}; uint32_t r[8]; float f[8];
  for (int i = 0; i < 8; i++) r[i] = threadIdx.x * 77 + i, f[i] = i;
  uint32_t b0 = threadIdx.x, b1 = threadIdx.x * 3;
  __syncthreads(); long long t0 = clock64();
#pragma unroll 1
  for (int it = 0; it < iters; it++) {
#pragma unroll
    for (int u = 0; u < 32; u++) {
#pragma unroll
      for (int i = 0; i < LOP; i++) asm volatile("lop3.b32 %0, %0, %1, %2, 0x28;" : "+r"(r[(u * LOP + i) % 8]) : "r"(m), "r"(b0));
#pragma unroll
      for (int i = 0; i < FMA; i++) asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(f[(u * FMA + i) % 8]) : "f"(f[7]), "f"(f[6]));
      mma<T>(d[u % CH], r + (LOP ? (u * 4 + 4) % 8 : 0), b0, b1);
    }
  }
  __syncthreads(); long long t1 = clock64();
  float s = 0;
  for (int i = 0; i < CH; i++) s += d[i][0] + d[i][1] + d[i][2] + d[i][3];
  for (int i = 0; i < 8; i++) s += r[i] + f[i];
  out[blockIdx.x * 1024 + threadIdx.x] = s;
  if (threadIdx.x == 0) cyc[blockIdx.x] = t1 - t0;
}
float *out; long long *cyc;
template <int T, int CH, int LOP, int FMA> void go() {
  const char *n[] = {"f16 to f32", "s8 to s32", "f16 to f16", "no mma"};
  printf("%-10s %d chains, %d lop3 and %d fma each:", n[T], CH, LOP, FMA);
  for (int w : {4, 8, 16}) {
    long long c[132]; int iters = 200;
    for (int r = 0; r < 2; r++) k<T, CH, LOP, FMA><<<132, w * 32>>>(out, cyc, iters, 0xffff0fffu);
    cudaMemcpy(c, cyc, sizeof c, cudaMemcpyDeviceToHost); std::sort(c, c + 132);
    printf("  %2d warps %5.2f", w, double(c[66]) / iters / 32 / (w / 4));
  }
  printf(" cycles of a scheduler\n");
}
int main() {
  cudaMalloc(&out, 132 * 4096); cudaMalloc(&cyc, 132 * 8);
  go<F32, 1, 0, 0>(); go<F32, 2, 0, 0>(); go<F32, 4, 0, 0>(); go<F32, 8, 0, 0>(); go<S32, 2, 0, 0>(); go<S32, 4, 0, 0>(); go<S32, 8, 0, 0>();
  go<F16, 4, 0, 0>(); go<F16, 8, 0, 0>(); go<NONE, 4, 4, 0>(); go<NONE, 4, 8, 0>(); go<NONE, 4, 0, 4>();
  go<F32, 4, 2, 0>(); go<F32, 4, 4, 0>(); go<F32, 4, 6, 0>(); go<F32, 8, 2, 0>(); go<F32, 8, 4, 0>(); go<F32, 8, 6, 0>(); go<S32, 8, 2, 0>(); go<S32, 8, 4, 0>();
  go<F32, 8, 0, 2>(); go<F32, 8, 0, 4>(); go<F32, 8, 2, 2>(); go<F32, 8, 4, 4>(); go<S32, 8, 2, 2>();
  printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
