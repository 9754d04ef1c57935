// A yardstick, not a piece of the product: cycles that a stage of 4-bit weights takes with wgmma of bytes, as integers or
// as e4m3, whose operand A are weights from registers; and what single products take. 8 and 16 tokens; memory costs nothing.
//
//   nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a bytes.cu && ./a.out
//
// A stage of 16 KiB is as in wgmma.cu. A token of the input has two columns, the high and the low bytes of 16-bit fixed
// point (s8), or an e4m3 and what it leaves, in e4m3, too (e4m3). With reload 1 the consumers make a chunk of 512 columns
// of f16 that they have read ahead, once all of its stages are multiplied: fixed point of each token's 128 columns, in
// the arithmetic of f16, to shared memory (of 64 columns with 8 tokens, where two warps would have to meet). e4m3 takes
// the same conversion, which is not its own. deep 1: products of a block are waited for behind those of the next.
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
template <int N> __device__ __forceinline__ void wg(uint32_t *d, const uint32_t *a, uint64_t b, int add);
template <int N> __device__ __forceinline__ void wg(float *d, const uint32_t *a, uint64_t b, int add);
template <> __device__ __forceinline__ void wg<16>(uint32_t *d, const uint32_t *a, uint64_t b, int add) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %13, 0;\nwgmma.mma_async.sync.aligned.m64n16k32.s32.s8.s8 {%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11}, %12, p;\n}"
    : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
template <> __device__ __forceinline__ void wg<16>(float *d, const uint32_t *a, uint64_t b, int add) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %13, 0;\nwgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 {%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11}, %12, p, 1, 1;\n}"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
template <> __device__ __forceinline__ void wg<32>(uint32_t *d, const uint32_t *a, uint64_t b, int add) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\nwgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, p;\n}"
    : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]), "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
template <> __device__ __forceinline__ void wg<32>(float *d, const uint32_t *a, uint64_t b, int add) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\nwgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e4m3 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, p, 1, 1;\n}"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
template <> __device__ __forceinline__ void wg<64>(uint32_t *d, const uint32_t *a, uint64_t b, int add) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\nwgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, p;\n}"
    : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]), "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15]), "+r"(d[16]), "+r"(d[17]), "+r"(d[18]), "+r"(d[19]), "+r"(d[20]), "+r"(d[21]), "+r"(d[22]), "+r"(d[23]), "+r"(d[24]), "+r"(d[25]), "+r"(d[26]), "+r"(d[27]), "+r"(d[28]), "+r"(d[29]), "+r"(d[30]), "+r"(d[31]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
template <> __device__ __forceinline__ void wg<64>(float *d, const uint32_t *a, uint64_t b, int add) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\nwgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, p, 1, 1;\n}"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
#define H2(name, op) __device__ __forceinline__ uint32_t name(uint32_t a, uint32_t b) { uint32_t d; asm(op " %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b)); return d; }
H2(hmul2, "mul.f16x2") H2(hadd2, "add.f16x2") H2(hsub2, "sub.f16x2") H2(hmax2, "max.f16x2")
__device__ __forceinline__ uint32_t hfma2(uint32_t a, uint32_t b, uint32_t c) { uint32_t d; asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d; }
// N columns of bytes, K-major, no swizzle: [k16][set of 8 columns][8 columns][16 k]
template <int N> __device__ __forceinline__ uint64_t desc(uint32_t a) {
  return (uint64_t)(a >> 4 & 0x3fff) | (uint64_t)(N * 16 >> 4) << 16 | (uint64_t)(128 >> 4) << 32;
}
template <typename T, int N, int CH> __global__ void rate(float *out, long long *cyc, int iters) {
  __shared__ __align__(1024) unsigned char b[16384];
  for (int i = threadIdx.x; i < 4096; i += blockDim.x) ((uint32_t *)b)[i] = 0x3c003c00;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); __syncthreads();
  T d[CH][N / 2] = {}; uint32_t a[4] = {threadIdx.x, 1, 2, 3};
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
// latency of a chain of L products and its wait, one group
template <typename T, int N, int L> __global__ void chain(float *out, long long *cyc, int iters) {
  __shared__ __align__(1024) unsigned char b[16384];
  for (int i = threadIdx.x; i < 4096; i += blockDim.x) ((uint32_t *)b)[i] = 0x3c003c00;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); __syncthreads();
  T d[N / 2] = {}; uint32_t a[4] = {threadIdx.x, 1, 2, 3};
  long long t0 = clock64();
#pragma unroll 1
  for (int i = 0; i < iters; i++) {
    fence();
#pragma unroll
    for (int j = 0; j < L; j++) wg<N>(d, a, desc<N>(sm(b) + j % 4 * N * 32), 1);
    commit(); waitg<0>();
  }
  long long t1 = clock64();
  float s = 0; for (int i = 0; i < N / 2; i++) s += d[i];
  out[blockIdx.x * 1024 + threadIdx.x] = s; if (threadIdx.x == 0) cyc[blockIdx.x] = t1 - t0;
}
// T tokens, columns 2T; U stages of 64 rows a chunk of 512 columns; RELOAD 0: input stays, 1: converted by consumers
template <typename E, int T, int U, int RELOAD, int DEEP> __global__ void __launch_bounds__(384, 1) k(const uint4 *in, float *out, long long *cyc, int iters, uint32_t eights) {
  extern __shared__ __align__(1024) unsigned char ring[];
  constexpr int N = 2 * T, XB = 512 * N, O = N / 4; // O: outputs of a lane and 64 rows
  constexpr bool INT = sizeof(E) == 4 && E(0.5f) == E(0);
  unsigned char *xs = ring + STAGES * SB; // two chunks of input
  __shared__ __align__(16) float unit[2][4][T];
  __shared__ __align__(8) uint64_t full[STAGES], empty[STAGES];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = threadIdx.x; i < STAGES * SB / 4; i += 384) ((uint32_t *)ring)[i] = (i % (RUN / 4) >= 512) ? 0x3c003c00u : i * 2654435761u;
  for (int i = threadIdx.x; i < 2 * XB / 4; i += 384) ((uint32_t *)xs)[i] = 0x11111111;
  for (int i = threadIdx.x; i < 8 * T; i += 384) (&unit[0][0][0])[i] = 1;
  if (threadIdx.x == 0)
    for (int i = 0; i < STAGES; i++) {
      asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(sm(&full[i])));
      asm volatile("mbarrier.init.shared.b64 [%0], 8;" :: "r"(sm(&empty[i])));
    }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (warp >= 8) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
    if (warp == 8 && lane == 0)
      for (int i = 0; i < iters * U; i++) {
        if (i >= STAGES) wait(sm(&empty[i % STAGES]), (i / STAGES - 1) & 1);
        arrive(sm(&full[i % STAGES]));
      }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
  int group = warp / 4, w4 = warp % 4;
  float acc[U][O] = {};
  // conversion: T/8 sets x 4 blocks of (8 tokens x 128 columns); a warp has T/16 of them (8 tokens: half a block, two warps)
  constexpr int Q = T == 8 ? 2 : 4; // uint4 a lane
  uint4 nx[Q];
  auto fetch = [&](int c) {
#pragma unroll
    for (int q = 0; q < Q; q++) nx[q] = in[((c * 8 + warp) * Q + q) * 32 + lane];
  };
  // T 16: warp has block warp%4, tokens 8*(warp/4)+lane%8, columns lane/8*32; T 8: block warp/2, token lane%8, columns 64*(warp%2)+lane/8*16
  auto set = [&](int buf) {
    uint32_t m = 0, v[Q * 4];
#pragma unroll
    for (int q = 0; q < Q; q++) { v[4 * q] = nx[q].x; v[4 * q + 1] = nx[q].y; v[4 * q + 2] = nx[q].z; v[4 * q + 3] = nx[q].w; }
#pragma unroll
    for (int i = 0; i < Q * 4; i++) m = hmax2(m, v[i] & 0x7fff7fff);
    uint32_t mm = max(m & 0xffff, m >> 16);
    mm = max(mm, __shfl_xor_sync(~0u, mm, 8)); mm = max(mm, __shfl_xor_sync(~0u, mm, 16));
    uint32_t e = mm >> 10; // exponent: largest < 2^(e-14)
    int sh = 29 - (int)e; // y = x * 2^sh in +-32767
    uint32_t up = (uint32_t)max(1, min(30, sh + 15)) << 10; up |= up << 16;
    uint32_t dn = 0x1c001c00, m256 = 0xdc00dc00, mg = 0x66006600;
    uint32_t hi[Q * 2], lo[Q * 2];
#pragma unroll
    for (int i = 0; i < Q * 2; i++) {
      uint32_t h2[2], l2[2];
#pragma unroll
      for (int j = 0; j < 2; j++) {
        uint32_t y = hmul2(v[2 * i + j], up), h = hfma2(y, dn, mg), hf = hsub2(h, mg), r = hfma2(hf, m256, y);
        h2[j] = h; l2[j] = hadd2(r, mg);
      }
      hi[i] = __byte_perm(h2[0], h2[1], 0x6420); lo[i] = __byte_perm(l2[0], l2[1], 0x6420);
    }
    int block = T == 8 ? warp / 2 : warp % 4, token = lane % 8 + (T == 8 ? 0 : warp / 4 * 8), k16 = T == 8 ? warp % 2 * 4 + lane / 8 : lane / 8 * 2;
    uint32_t at = sm(xs) + buf * XB + (block * 8 + k16) * N * 16 + token * 32;
    uint32_t s = token & 1 ? 16 : 0;
#pragma unroll
    for (int q = 0; q < Q / 2; q++) {
      uint4 a = make_uint4(hi[4 * q], hi[4 * q + 1], hi[4 * q + 2], hi[4 * q + 3]), b = make_uint4(lo[4 * q], lo[4 * q + 1], lo[4 * q + 2], lo[4 * q + 3]);
      uint4 f = s ? b : a, g = s ? a : b;
      asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" :: "r"(at + q * N * 16 + s), "r"(f.x), "r"(f.y), "r"(f.z), "r"(f.w) : "memory");
      asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" :: "r"(at + q * N * 16 + (s ^ 16)), "r"(g.x), "r"(g.y), "r"(g.z), "r"(g.w) : "memory");
    }
    if (lane < 8) unit[buf][block][token] = __uint_as_float((127 - sh) << 23);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  };
  fetch(0);
  asm volatile("bar.sync 1, 256;");
  long long t0 = clock64();
  uint32_t st = 0, ph = 0;
  if (RELOAD) { set(0); fetch(1); }
#pragma unroll 1
  for (int it = 0; it < iters; it++) {
    if (RELOAD) { asm volatile("bar.sync 1, 256;"); }
    uint32_t xb = sm(xs) + it % 2 * XB;
    float un[2][T / 4];
#pragma unroll
    for (int b = 0; b < 2; b++)
#pragma unroll
      for (int t = 0; t < T / 4; t++) un[b][t] = unit[it % 2][2 * group + b][4 * t + lane % 4];
    E d[2][N / 2]; float sc[2][2];
    auto finish = [&](int b, float *a) {
#pragma unroll
      for (int i = 0; i < O; i++) { // i: row i%2, token i/2
        E h = d[b][i / 2 * 4 + i % 2 * 2], l = d[b][i / 2 * 4 + i % 2 * 2 + 1];
        float s = sc[b][i % 2] * un[b][i / 2];
        if constexpr (INT) a[i] = fmaf((float)(int)(h * 256u + l), s, a[i]);
        else { a[i] = fmaf(fmaf(h, 256.0f, l), s, a[i]); a[i] = fmaf(s, un[b][0], a[i]); }
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
      uint32_t a[2][4][4];
#pragma unroll
      for (int b = 0; b < 2; b++) {
        uint32_t v0[4] = {w[b][0].x, w[b][0].y, w[b][0].z, w[b][0].w}, v1[4] = {w[b][1].x, w[b][1].y, w[b][1].z, w[b][1].w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
          if constexpr (INT) {
            a[b][j][0] = v0[j] << 4 & 0xf0f0f0f0; a[b][j][1] = v1[j] << 4 & 0xf0f0f0f0; a[b][j][2] = v0[j] & 0xf0f0f0f0; a[b][j][3] = v1[j] & 0xf0f0f0f0;
          } else {
            uint32_t x = v0[j], y = v1[j], xs8 = x >> 4, ys8 = y >> 4;
            asm("lop3.b32 %0, %1, %2, 0x0f0f0f0f, 0x28;" : "=r"(a[b][j][0]) : "r"(x), "r"(eights)); asm("lop3.b32 %0, %1, %2, 0x0f0f0f0f, 0x28;" : "=r"(a[b][j][1]) : "r"(y), "r"(eights));
            asm("lop3.b32 %0, %1, %2, 0x0f0f0f0f, 0x28;" : "=r"(a[b][j][2]) : "r"(xs8), "r"(eights)); asm("lop3.b32 %0, %1, %2, 0x0f0f0f0f, 0x28;" : "=r"(a[b][j][3]) : "r"(ys8), "r"(eights));
          }
        }
        if (b == 1) { __syncwarp(); if (lane == 0) arrive(sm(&empty[st])); if (++st == STAGES) { st = 0; ph ^= 1; } }
        fence();
#pragma unroll
        for (int j = 0; j < 4; j++) wg<N>(d[b], a[b][j], desc<N>(xb + ((2 * group + b) * 4 + j) * N * 32), j > 0);
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
      if (RELOAD && u == 0) { set((it + 1) % 2); fetch((it + 2) & 7); }
    }
    waitg<0>();
    if (DEEP) finish(1, acc[U - 1]);
  }
  asm volatile("bar.sync 1, 256;");
  long long t1 = clock64();
  float s = 0;
  for (int u = 0; u < U; u++) for (int i = 0; i < O; i++) s += acc[u][i];
  out[blockIdx.x * 256 + threadIdx.x] = s;
  if (threadIdx.x == 0) cyc[blockIdx.x] = t1 - t0;
}
uint4 *in; float *out; long long *cyc;
double median() { long long c[132]; cudaMemcpy(c, cyc, sizeof c, cudaMemcpyDeviceToHost); std::sort(c, c + 132); return c[66]; }
template <typename E, int T, int U, int RELOAD, int DEEP> void go() {
  auto f = k<E, T, U, RELOAD, DEEP>; int bytes = STAGES * SB + 2 * 512 * T * 2 + 1024, iters = 2000 / U;
  cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  cudaFuncAttributes at; cudaFuncGetAttributes(&at, f);
  for (int r = 0; r < 2; r++) f<<<132, 384, bytes>>>(in, out, cyc, iters, 0x08080808u);
  double c = median();
  printf("wgmma of %s, %2d tokens, %d stages a chunk, reload %d, deep %d: %7.1f cycles a stage of 16 KiB; %d registers, %zu local %s\n", sizeof(E) == 4 && E(0.5f) == E(0) ? "s8" : "e4m3", T, U, RELOAD, DEEP, c / iters / U, at.numRegs, at.localSizeBytes, cudaGetErrorString(cudaGetLastError()));
  fflush(stdout);
}
template <typename E, int N, int CH> void one(const char *w) {
  for (int t : {128, 256}) {
    for (int r = 0; r < 2; r++) rate<E, N, CH><<<132, t>>>(out, cyc, 1000);
    printf("wgmma m64n%dk32 of %s from registers, %d chains, %d warps: %.1f cycles each of a warpgroup %s\n", N, w, CH, t / 32, median() / 16000, cudaGetErrorString(cudaGetLastError()));
  }
}
template <typename E, int N, int L> void ch(const char *w) {
  for (int r = 0; r < 2; r++) chain<E, N, L><<<132, 128>>>(out, cyc, 1000);
  printf("wgmma m64n%dk32 of %s: a chain of %d and its wait %.1f cycles\n", N, w, L, median() / 1000);
}
int main() {
  cudaMalloc(&in, 64 << 20); cudaMemset(in, 0x11, 64 << 20); cudaMalloc(&out, 132 * 1024 * 4); cudaMalloc(&cyc, 132 * 8);
  one<uint32_t, 16, 1>("s8"); one<uint32_t, 16, 2>("s8"); one<uint32_t, 32, 1>("s8"); one<uint32_t, 32, 2>("s8"); one<uint32_t, 64, 1>("s8");
  one<float, 16, 1>("e4m3"); one<float, 32, 1>("e4m3"); one<float, 64, 1>("e4m3");
  ch<uint32_t, 16, 1>("s8"); ch<uint32_t, 16, 4>("s8"); ch<uint32_t, 32, 1>("s8"); ch<uint32_t, 32, 4>("s8"); ch<float, 16, 4>("e4m3"); ch<float, 32, 4>("e4m3");
#define ALL(E) go<E, 8, 1, 0, 0>(); go<E, 8, 1, 0, 1>(); go<E, 8, 3, 0, 0>(); go<E, 8, 3, 0, 1>(); go<E, 8, 4, 0, 1>(); go<E, 8, 1, 1, 1>(); go<E, 8, 2, 1, 1>(); go<E, 8, 3, 1, 1>(); go<E, 8, 4, 1, 1>(); go<E, 8, 4, 1, 0>(); \
  go<E, 16, 1, 0, 0>(); go<E, 16, 1, 0, 1>(); go<E, 16, 3, 0, 1>(); go<E, 16, 4, 0, 1>(); go<E, 16, 1, 1, 1>(); go<E, 16, 2, 1, 1>(); go<E, 16, 3, 1, 1>(); go<E, 16, 4, 1, 1>(); go<E, 16, 4, 1, 0>();
  ALL(uint32_t) ALL(float)
  printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
