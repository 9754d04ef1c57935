// A yardstick, not a piece of the product: cycles that a stage of 4-bit weights takes with wgmma, whose operand A are
// weights from registers, beside mma.sync; and what single products take. 8 and 16 tokens; memory costs nothing.
//
//   nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a wgmma.cu && ./a.out
//
// A stage of 16 KiB is 8 tiles of 512 columns: four blocks of columns, of which a warpgroup takes two. Warp w of a group
// has tiles 2w and 2w+1 as its 16 rows. The input is in shared memory, a chunk of 512 columns or more of which comes by a
// bulk copy each `reload` stages (0: never).
#include <cstdio>
#include <cstdint>
#include <cuda_runtime.h>
#include <algorithm>
constexpr int STAGES = 8, SB = 16896, RUN = 2112;
__device__ __forceinline__ uint32_t sm(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void wait(uint32_t b, uint32_t ph) {
  asm volatile("{\n.reg .pred P;\nL: mbarrier.try_wait.parity.shared.b64 P, [%0], %1;\n@P bra D;\nbra L;\nD:\n}" :: "r"(b), "r"(ph) : "memory");
}
__device__ __forceinline__ void arrive(uint32_t b) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(b) : "memory"); }
__device__ __forceinline__ uint4 lds4(uint32_t a) { uint4 v; asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(a)); return v; }
__device__ __forceinline__ uint32_t lds(uint32_t a) { uint32_t v; asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(a)); return v; }
__device__ __forceinline__ float2 ldf2(uint32_t a) { float2 v; asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(a)); return v; }
__device__ __forceinline__ float bf(uint32_t v, int hi) { return __uint_as_float(hi ? v & 0xffff0000u : v << 16); }
__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void waitg() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory"); }
template <int N> __device__ __forceinline__ void wg(float *d, const uint32_t *a, uint64_t b, int add);
template <> __device__ __forceinline__ void wg<8>(float *d, const uint32_t *a, uint64_t b, int add) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %9, 0;\nwgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, p, 1, 1, 0;\n}"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
template <> __device__ __forceinline__ void wg<16>(float *d, const uint32_t *a, uint64_t b, int add) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %13, 0;\nwgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11}, %12, p, 1, 1, 0;\n}"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
template <> __device__ __forceinline__ void wg<32>(float *d, const uint32_t *a, uint64_t b, int add) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\nwgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, p, 1, 1, 0;\n}"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
// N columns, K-major, no swizzle: [k8][set of 8 tokens][8 tokens][8 k]
template <int N> __device__ __forceinline__ uint64_t desc(uint32_t a) {
  return (uint64_t)(a >> 4 & 0x3fff) | (uint64_t)(N * 16 >> 4) << 16 | (uint64_t)(128 >> 4) << 32;
}
__device__ __forceinline__ void mma(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// single products: G warpgroups, chains of 16 in CH accumulators
template <int N, int CH> __global__ void rate(float *out, long long *cyc, int iters) {
  __shared__ __align__(1024) unsigned char b[16384];
  for (int i = threadIdx.x; i < 4096; i += blockDim.x) ((uint32_t *)b)[i] = 0x3c003c00;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); __syncthreads();
  float d[CH][N / 2] = {}; uint32_t a[4] = {threadIdx.x, 1, 2, 3};
  long long t0 = clock64();
#pragma unroll 1
  for (int i = 0; i < iters; i++) {
    fence();
#pragma unroll
    for (int j = 0; j < 16; j++) wg<N>(d[j % CH], a, desc<N>(sm(b) + j % 4 * N * 32), 1);
    commit(); waitg<0>();
  }
  __syncthreads(); long long t1 = clock64();
  float s = 0; for (int c = 0; c < CH; c++) for (int i = 0; i < N / 2; i++) s += d[c][i];
  out[blockIdx.x * 1024 + threadIdx.x] = s; if (threadIdx.x == 0) cyc[blockIdx.x] = t1 - t0;
}
template <int CH> __global__ void rates(float *out, long long *cyc, int iters) {
  float d[CH][4] = {}; __syncthreads();
  long long t0 = clock64();
#pragma unroll 1
  for (int i = 0; i < iters; i++)
#pragma unroll
    for (int j = 0; j < 16; j++) mma(d[j % CH], threadIdx.x, 1, 2, 3, 4, 5);
  __syncthreads(); long long t1 = clock64();
  float s = 0; for (int c = 0; c < CH; c++) for (int i = 0; i < 4; i++) s += d[c][i];
  out[blockIdx.x * 1024 + threadIdx.x] = s; if (threadIdx.x == 0) cyc[blockIdx.x] = t1 - t0;
}
// N tokens; U stages (of 64 rows each) that have accumulators of their own, for a chunk of 512 columns of input, which
// is new each time with RELOAD; DEEP: products of a block are waited for behind those of the next
template <int N, int U, int RELOAD, int DEEP> __global__ void __launch_bounds__(384, 1) k(const unsigned char *in, float *out, long long *cyc, int iters, uint32_t eights) {
  extern __shared__ __align__(1024) unsigned char ring[];
  constexpr int XB = 512 * N * 2;
  unsigned char *xs = ring + STAGES * SB; // two chunks of input, and their sums
  __shared__ __align__(16) float less[2][4][N];
  __shared__ __align__(8) uint64_t full[STAGES], empty[STAGES], xfull[2], xempty[2];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = threadIdx.x; i < STAGES * SB / 4; i += 384) ((uint32_t *)ring)[i] = (i % (RUN / 4) >= 512) ? 0x3c003c00u : i * 2654435761u;
  for (int i = threadIdx.x; i < 2 * XB / 4; i += 384) ((uint32_t *)xs)[i] = 0x11111111;
  for (int i = threadIdx.x; i < 8 * N; i += 384) (&less[0][0][0])[i] = 1;
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) {
      asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(sm(&full[i])));
      asm volatile("mbarrier.init.shared.b64 [%0], 8;" :: "r"(sm(&empty[i])));
    }
    for (int i = 0; i < 2; i++) {
      asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(sm(&xfull[i])));
      asm volatile("mbarrier.init.shared.b64 [%0], 8;" :: "r"(sm(&xempty[i])));
    }
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (warp >= 8) {
    if (warp == 8 && lane == 0)
      for (int it = 0, i = 0; it < iters; it++) {
        if (RELOAD) {
          if (it >= 2) wait(sm(&xempty[it % 2]), (it / 2 - 1) & 1);
          asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(sm(&xfull[it % 2])), "r"(XB) : "memory");
          asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" :: "r"(sm(xs + it % 2 * XB)), "l"(in + it % 8 * XB), "r"(XB), "r"(sm(&xfull[it % 2])) : "memory");
        }
        for (int u = 0; u < U; u++, i++) {
          if (i >= STAGES) wait(sm(&empty[i % STAGES]), (i / STAGES - 1) & 1);
          arrive(sm(&full[i % STAGES]));
        }
      }
    return;
  }
  int group = warp / 4, w4 = warp % 4;
  float acc[U][N / 2] = {};
  asm volatile("bar.sync 1, 256;");
  long long t0 = clock64();
  uint32_t st = 0, ph = 0;
#pragma unroll 1
  for (int it = 0; it < iters; it++) {
    if (RELOAD) wait(sm(&xfull[it % 2]), it / 2 & 1);
    uint32_t xb = sm(xs) + it % 2 * XB;
    float2 ls[2][N / 8];
#pragma unroll
    for (int b = 0; b < 2; b++)
#pragma unroll
      for (int t = 0; t < N / 8; t++) ls[b][t] = ldf2(sm(&less[it % 2][2 * group + b][8 * t + lane % 4 * 2]));
    float lo[2][N / 2], hi[2][N / 2]; float sc[2][2];
    auto finish = [&](int b, float *a) {
#pragma unroll
      for (int i = 0; i < N / 2; i++) {
        float s = sc[b][i / 2 % 2];
        a[i] = fmaf(lo[b][i], s, a[i]); a[i] = fmaf(i % 2 ? ls[b][i / 4].y : ls[b][i / 4].x, s, a[i]); a[i] = fmaf(hi[b][i], s * 0.0625f, a[i]);
      }
    };
#pragma unroll
    for (int u = 0; u < U; u++) {
      wait(sm(&full[st]), ph);
      uint32_t base = sm(ring) + st * SB + 2 * w4 * RUN, s0 = lds(base + 2048 + lane / 4 * 8 + group * 4), s1 = lds(base + RUN + 2048 + lane / 4 * 8 + group * 4);
      uint4 w[2][2];
#pragma unroll
      for (int b = 0; b < 2; b++)
#pragma unroll
        for (int t = 0; t < 2; t++) w[b][t] = lds4(base + t * RUN + (2 * group + b) * 512 + lane * 16);
      uint32_t a[2][8][4];
#pragma unroll
      for (int b = 0; b < 2; b++) {
        uint32_t v0[4] = {w[b][0].x, w[b][0].y, w[b][0].z, w[b][0].w}, v1[4] = {w[b][1].x, w[b][1].y, w[b][1].z, w[b][1].w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
          uint32_t x = v0[j] ^ eights, y = v1[j] ^ eights, xs8 = x >> 8, ys8 = y >> 8;
          a[b][j][0] = x & 0xf000f; a[b][j][1] = y & 0xf000f; a[b][j][2] = xs8 & 0xf000f; a[b][j][3] = ys8 & 0xf000f;
          a[b][4 + j][0] = x & 0xf000f0; a[b][4 + j][1] = y & 0xf000f0; a[b][4 + j][2] = xs8 & 0xf000f0; a[b][4 + j][3] = ys8 & 0xf000f0;
        }
        fence();
#pragma unroll
        for (int j = 0; j < 4; j++) {
          wg<N>(lo[b], a[b][j], desc<N>(xb + ((2 * group + b) * 8 + j) * N * 32), j > 0);
          wg<N>(hi[b], a[b][4 + j], desc<N>(xb + ((2 * group + b) * 8 + 4 + j) * N * 32), j > 0);
        }
        commit();
        if (DEEP) {
          if (b == 0 && u > 0) { waitg<1>(); finish(1, acc[u - 1]); }
          if (b == 0) { sc[0][0] = bf(s0, 0); sc[0][1] = bf(s1, 0); }
          if (b == 1) { waitg<1>(); finish(0, acc[u]); sc[1][0] = bf(s0, 1); sc[1][1] = bf(s1, 1); }
        } else {
          sc[b][0] = bf(s0, b); sc[b][1] = bf(s1, b);
          if (b == 1) { waitg<0>(); finish(0, acc[u]); finish(1, acc[u]); }
        }
      }
      __syncwarp(); if (lane == 0) arrive(sm(&empty[st]));
      if (++st == STAGES) { st = 0; ph ^= 1; }
    }
    waitg<0>();
    if (DEEP) finish(1, acc[U - 1]);
    if (RELOAD) { __syncwarp(); if (lane == 0) arrive(sm(&xempty[it % 2])); }
  }
  asm volatile("bar.sync 1, 256;");
  long long t1 = clock64();
  float s = 0;
  for (int u = 0; u < U; u++) for (int i = 0; i < N / 2; i++) s += acc[u][i];
  out[blockIdx.x * 256 + threadIdx.x] = s;
  if (threadIdx.x == 0) cyc[blockIdx.x] = t1 - t0;
}
unsigned char *in; float *out; long long *cyc;
double median() { long long c[132]; cudaMemcpy(c, cyc, sizeof c, cudaMemcpyDeviceToHost); std::sort(c, c + 132); return c[66]; }
template <int N, int U, int RELOAD, int DEEP> void go() {
  auto f = k<N, U, RELOAD, DEEP>; int bytes = STAGES * SB + 2 * 512 * N * 2 + 1024, iters = 2000 / U;
  cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  cudaFuncAttributes at; cudaFuncGetAttributes(&at, f);
  for (int r = 0; r < 2; r++) f<<<132, 384, bytes>>>(in, out, cyc, iters, 0x88888888u);
  double c = median();
  printf("wgmma, %2d tokens, %d stages a chunk, reload %d, deep %d: %7.1f cycles a stage of 16 KiB; %d registers, %zu local %s\n", N, U, RELOAD, DEEP, c / iters / U, at.numRegs, at.localSizeBytes, cudaGetErrorString(cudaGetLastError()));
  fflush(stdout);
}
template <int N, int CH> void one() {
  for (int t : {128, 256}) {
    for (int r = 0; r < 2; r++) rate<N, CH><<<132, t>>>(out, cyc, 1000);
    printf("wgmma m64n%dk16 from registers, %d chains, %d warps: %.1f cycles each of a warpgroup %s\n", N, CH, t / 32, median() / 16000, cudaGetErrorString(cudaGetLastError()));
  }
}
template <int CH> void sync() {
  for (int t : {128, 256, 512}) {
    for (int r = 0; r < 2; r++) rates<CH><<<132, t>>>(out, cyc, 1000);
    printf("mma.sync m16n8k16, %d chains, %d warps: %.1f cycles each of a warp\n", CH, t / 32, median() / 16000);
  }
}
int main() {
  cudaMalloc(&in, 64 << 20); cudaMemset(in, 0x11, 64 << 20); cudaMalloc(&out, 132 * 1024 * 4); cudaMalloc(&cyc, 132 * 8);
  one<8, 1>(); one<8, 2>(); one<16, 1>(); one<16, 2>(); one<32, 1>(); one<32, 2>();
  sync<1>(); sync<2>(); sync<4>(); sync<8>();
  go<8, 1, 0, 0>(); go<8, 1, 0, 1>(); go<8, 3, 0, 1>(); go<8, 3, 1, 0>(); go<8, 3, 1, 1>(); go<8, 1, 1, 1>();
  go<16, 1, 0, 0>(); go<16, 1, 0, 1>(); go<16, 3, 0, 0>(); go<16, 3, 0, 1>(); go<16, 3, 1, 0>(); go<16, 3, 1, 1>(); go<16, 1, 1, 1>();
  printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
