// A yardstick, not a piece of the product: cycles that a stage of 4-bit weights takes the 8 (or 4, or 16) consumer warps
// of a CTA with 8 or 16 tokens, where memory costs nothing. The ring's protocol is there, its copies are not. It answers what
// bounds a stage: the size of its code, the masks that make nibbles f16, or neither.
//
//   nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a stage.cu && ./a.out
//
// mode 0: 8 tokens, a stage of two tiles of 2048 columns; 1: 16 tokens, four tiles of 1024 columns; 2: 8 tokens, two
// stages of a tile of 4096 columns; 3 and 4: 8 and 16 tokens, 16 warps, four tiles of 1024 columns, of which a warp has a
// block of two tiles. how 0: top bits turned by an xor for all masks; 1: in each mask (lop3); 2: so, and
// shifts as high halves of products. unroll: stages that have accumulators, and so code, of their own.
// acc: accumulators in registers or in shared memory. reload 1: the input is set anew after that many stages.
// mode 10 and 11: as 0 and 1, by mma.sync of bytes: weights are s8, and a token's input high and low bytes of fixed point,
// summed apart from each other in s32 that begin as the bits of 1.5 * 2^23 in f32. how 0: nibbles at the top of bytes, three
// instructions a word; 1: whole bytes, which are 16 times the high nibble and the low one, and low nibbles: one. reload 2:
// bytes are made of f16.
#include <cstdio>
#include <cstdint>
#include <cuda_runtime.h>
#include <algorithm>
constexpr int STAGES = 10, SB = 16896, RUN = 2112;
__device__ __forceinline__ uint32_t sm(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void wait(uint32_t b, uint32_t ph) {
  asm volatile("{\n.reg .pred P;\nL: mbarrier.try_wait.parity.shared.b64 P, [%0], %1;\n@P bra D;\nbra L;\nD:\n}" :: "r"(b), "r"(ph) : "memory");
}
__device__ __forceinline__ void arrive(uint32_t b) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(b) : "memory"); }
__device__ __forceinline__ uint4 lds4(uint32_t a) { uint4 v; asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(a)); return v; }
__device__ __forceinline__ uint32_t lds(uint32_t a) { uint32_t v; asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(a)); return v; }
__device__ __forceinline__ void mma(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
template <int HOW> __device__ __forceinline__ void nib(uint32_t w, uint32_t eights, uint32_t (&lo)[2], uint32_t (&hi)[2]) {
  if constexpr (HOW == 0) {
    w ^= 0x88888888u; uint32_t s = w >> 8;
    lo[0] = w & 0xf000f; lo[1] = s & 0xf000f; hi[0] = w & 0xf000f0; hi[1] = s & 0xf000f0;
  } else {
    uint32_t s;
    if constexpr (HOW == 1) s = w >> 8; else asm("mul.hi.u32 %0, %1, %2;" : "=r"(s) : "r"(w), "r"(1u << 24));
    asm("lop3.b32 %0, %1, %2, 0xf000f, 0x28;" : "=r"(lo[0]) : "r"(w), "r"(eights)); // (a ^ b) & c
    asm("lop3.b32 %0, %1, %2, 0xf000f, 0x28;" : "=r"(lo[1]) : "r"(s), "r"(eights));
    asm("lop3.b32 %0, %1, %2, 0xf000f0, 0x28;" : "=r"(hi[0]) : "r"(w), "r"(eights));
    asm("lop3.b32 %0, %1, %2, 0xf000f0, 0x28;" : "=r"(hi[1]) : "r"(s), "r"(eights));
  }
}
#define H2(name, op) __device__ __forceinline__ uint32_t name(uint32_t a, uint32_t b) { uint32_t d; asm(op " %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b)); return d; }
H2(hsub2, "sub.f16x2") H2(hmax2, "max.f16x2")
__device__ __forceinline__ uint32_t habs2(uint32_t a) { uint32_t d; asm("abs.f16x2 %0, %1;" : "=r"(d) : "r"(a)); return d; }
__device__ __forceinline__ uint32_t hneg2(uint32_t a) { uint32_t d; asm("neg.f16x2 %0, %1;" : "=r"(d) : "r"(a)); return d; }
__device__ __forceinline__ uint32_t hfma2(uint32_t a, uint32_t b, uint32_t c) { uint32_t d; asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d; }
__device__ __forceinline__ void imma(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1, const int (&c)[4]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
}
struct X { uint32_t w[8][2]; float less[2]; }; // a block's input of 8 tokens
template <int HOW, int SETS> __device__ __forceinline__ void block(uint4 w0, uint4 w1, float s0, float s1, const X (&x)[SETS], float (*acc)[4], uint32_t eights) {
  uint32_t a0[4] = {w0.x, w0.y, w0.z, w0.w}, a1[4] = {w1.x, w1.y, w1.z, w1.w};
  float lo[SETS][4] = {}, hi[SETS][4] = {};
#pragma unroll
  for (int j = 0; j < 4; j++) {
    uint32_t l0[2], h0[2], l1[2], h1[2];
    nib<HOW>(a0[j], eights, l0, h0); nib<HOW>(a1[j], eights, l1, h1);
#pragma unroll
    for (int t = 0; t < SETS; t++) {
      mma(lo[t], l0[0], l1[0], l0[1], l1[1], x[t].w[j][0], x[t].w[j][1]);
      mma(hi[t], h0[0], h1[0], h0[1], h1[1], x[t].w[4 + j][0], x[t].w[4 + j][1]);
    }
  }
  float t0 = s0 * 0.0625f, t1 = s1 * 0.0625f;
#pragma unroll
  for (int t = 0; t < SETS; t++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float s = i < 2 ? s0 : s1, u = i < 2 ? t0 : t1;
      acc[t][i] = fmaf(lo[t][i], s, acc[t][i]); acc[t][i] = fmaf(x[t].less[i % 2], s, acc[t][i]); acc[t][i] = fmaf(hi[t][i], u, acc[t][i]);
    }
}
template <int HOW, int SETS> __device__ __forceinline__ void bytes(uint4 w0, uint4 w1, float s0, float s1, const X (&x)[SETS], float (*acc)[4], int magic) {
  uint32_t a0[4] = {w0.x, w0.y, w0.z, w0.w}, a1[4] = {w1.x, w1.y, w1.z, w1.w};
  const int m[4] = {magic, magic, magic, magic};
  int hi[SETS][4], lo[SETS][4];
#pragma unroll
  for (int h = 0; h < 2; h++)
#pragma unroll
    for (int j = 0; j < 2; j++) {
      uint32_t a[4] = {a0[2 * j], a1[2 * j], a0[2 * j + 1], a1[2 * j + 1]};
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (HOW == 0) a[i] = (h ? a[i] : a[i] << 4) & 0xf0f0f0f0u; else if (h == 0) a[i] &= 0x0f0f0f0fu;
#pragma unroll
      for (int t = 0; t < SETS; t++) {
        const int z[4] = {0, 0, 0, 0};
        if (h == 0 && j == 0) { imma(hi[t], a[0], a[1], a[2], a[3], x[t].w[0][0], x[t].w[0][1], HOW ? z : m); imma(lo[t], a[0], a[1], a[2], a[3], x[t].w[4][0], x[t].w[4][1], HOW ? z : m); }
        else {
          if (HOW == 1 && h == 1 && j == 0)
#pragma unroll
            for (int i = 0; i < 4; i++) { hi[t][i] = hi[t][i] * 16 + magic; lo[t][i] = lo[t][i] * 16 + magic; }
          imma(hi[t], a[0], a[1], a[2], a[3], x[t].w[2 * h + j][0], x[t].w[2 * h + j][1], hi[t]);
          imma(lo[t], a[0], a[1], a[2], a[3], x[t].w[4 + 2 * h + j][0], x[t].w[4 + 2 * h + j][1], lo[t]);
        }
      }
    }
#pragma unroll
  for (int t = 0; t < SETS; t++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float f = __int_as_float(hi[t][i]) - 12582912.f, g = __int_as_float(lo[t][i]) - 12582912.f;
      acc[t][i] = fmaf(fmaf(f, 256.f, g) * x[t].less[i % 2], i < 2 ? s0 : s1, acc[t][i]);
    }
}
__device__ __forceinline__ float bf(uint32_t v, int hi) { return __uint_as_float(hi ? v & 0xffff0000u : v << 16); }

template <bool INT, int HOW, int SETS> __device__ __forceinline__ void either(uint4 w0, uint4 w1, float s0, float s1, const X (&x)[SETS], float (*acc)[4], uint32_t eights) {
  if constexpr (INT) bytes<HOW, SETS>(w0, w1, s0, s1, x, acc, eights ^ 0xc3c88888u); else block<HOW, SETS>(w0, w1, s0, s1, x, acc, eights);
}
// U stages have accumulators of their own; CH: chunks whose input is set anew after each U stages (X from L2, one ahead) if RELOAD
// MODE 0: 8 tokens, 2 tiles x 2 blocks a warp; 1: 16 tokens, 4 tiles x 1 block; 2: 8 tokens, two stages of a tile x 4 blocks
// ACC 0 registers; 1 shared memory
template <int M, int HOW, int U, int ACC, int RELOAD, int W = 8> __global__ void __launch_bounds__(W * 32 + 32, 1) k(const uint32_t *in, float *out, long long *cyc, int iters, uint32_t eights) {
  extern __shared__ __align__(1024) unsigned char ring[];
  __shared__ __align__(16) float part[W * 32 * 16];
  __shared__ __align__(8) uint64_t full[STAGES], empty[STAGES];
  constexpr bool INT = M >= 10; constexpr int MODE = M % 10;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = threadIdx.x; i < STAGES * SB / 4; i += blockDim.x) ((uint32_t *)ring)[i] = (i % (RUN / 4) >= 512) ? 0x3c003c00u : i * 2654435761u;
  for (int i = threadIdx.x; i < W * 32 * 16; i += blockDim.x) part[i] = 0;
  if (threadIdx.x == 0) for (int i = 0; i < STAGES; i++) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(sm(&full[i])));
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(sm(&empty[i])), "r"(W));
  }
  __syncthreads();
  constexpr int PER = MODE == 2 ? 2 : 1; // stages an iteration of U
  int total = iters * U * PER;
  if (warp == W) {
    if (lane == 0) for (int i = 0; i < total; i++) {
      if (i >= STAGES) wait(sm(&empty[i % STAGES]), (i / STAGES - 1) & 1);
      arrive(sm(&full[i % STAGES]));
    }
    return;
  }
  constexpr int SETS = MODE == 1 || MODE == 4 ? 2 : 1, BL = MODE == 1 || MODE >= 3 ? 1 : MODE == 2 ? 4 : 2, PAIRS = MODE == 1 ? 2 : 1;
  X x[BL][SETS]; uint4 nx[BL][SETS][4];
  auto fetch = [&](int c) {
    for (int b = 0; b < BL; b++) for (int t = 0; t < SETS; t++) for (int q = 0; q < 4; q++)
      nx[b][t][q] = ((const uint4 *)in)[(((c * W + warp) * BL + b) * SETS + t) * 128 + q * 32 + lane];
  };
  auto set = [&]() {
#pragma unroll
    for (int b = 0; b < BL; b++) for (int t = 0; t < SETS; t++) {
      if constexpr (INT) {
        if constexpr (RELOAD != 2) {
#pragma unroll
          for (int q = 0; q < 4; q++) { uint4 v = nx[b][t][q]; x[b][t].w[2 * q][0] = v.x; x[b][t].w[2 * q][1] = v.y; x[b][t].w[2 * q + 1][0] = v.z; x[b][t].w[2 * q + 1][1] = v.w; }
          x[b][t].less[0] = __int_as_float(nx[b][t][0].x); x[b][t].less[1] = __int_as_float(nx[b][t][1].x);
        } else {
          uint32_t w[16], most = 0;
#pragma unroll
          for (int q = 0; q < 4; q++) { uint4 v = nx[b][t][q]; w[4 * q] = v.x; w[4 * q + 1] = v.y; w[4 * q + 2] = v.z; w[4 * q + 3] = v.w; }
#pragma unroll
          for (int i = 0; i < 16; i++) most = hmax2(most, habs2(w[i]));
          most = max(most & 0xffff, most >> 16);
          most = max(most, __shfl_xor_sync(~0u, most, 1)); most = max(most, __shfl_xor_sync(~0u, most, 2));
          uint32_t e = (most + 7) >> 10, up = min(30u, 36u - min(e, 30u)) << 10, dn = e << 10, mg = 0x66006600, m256 = 0x5c005c00; // e: exponent
          up |= up << 16; dn |= dn << 16;
#pragma unroll
          for (int i = 0; i < 8; i++) {
            uint32_t hw[2], lw[2];
#pragma unroll
            for (int k = 0; k < 2; k++) {
              uint32_t v = w[2 * i + k];
              hw[k] = hfma2(v, up, mg); lw[k] = hfma2(hfma2(hsub2(hw[k], mg), hneg2(dn), v), m256, mg);
            }
            x[b][t].w[i / 2][i % 2] = __byte_perm(hw[0], hw[1], 0x6420); x[b][t].w[4 + i / 2][i % 2] = __byte_perm(lw[0], lw[1], 0x6420);
          }
          float un = __uint_as_float((e + 100) << 23);
          x[b][t].less[0] = __shfl_sync(~0u, un, lane % 4 * 8); x[b][t].less[1] = __shfl_sync(~0u, un, lane % 4 * 8 + 4);
        }
        continue;
      }
      float d[4] = {};
#pragma unroll
      for (int q = 0; q < 4; q++) {
        uint4 v = nx[b][t][q];
        x[b][t].w[2 * q][0] = __byte_perm(v.x, v.y, 0x5410); x[b][t].w[2 * q][1] = __byte_perm(v.x, v.y, 0x7632);
        x[b][t].w[2 * q + 1][0] = __byte_perm(v.z, v.w, 0x5410); x[b][t].w[2 * q + 1][1] = __byte_perm(v.z, v.w, 0x7632);
      }
      for (int j = 0; j < 8; j++) mma(d, 0x80088008u, 0x80088008u, 0x80088008u, 0x80088008u, x[b][t].w[j][0], x[b][t].w[j][1]);
      x[b][t].less[0] = d[0]; x[b][t].less[1] = d[1];
    }
  };
  fetch(0); set(); fetch(1);
  float acc[U * PAIRS * SETS][4] = {};
  asm volatile("bar.sync 1, %0;" :: "n"(W * 32));
  long long t0 = clock64();
  uint32_t st = 0, ph = 0;
  auto next = [&]() { if (++st == STAGES) { st = 0; ph ^= 1; } };
#pragma unroll 1
  for (int it = 0; it < iters; it++) {
    if (RELOAD) { set(); fetch(it & 7); }
#pragma unroll
    for (int u = 0; u < U; u++) {
      float(*a)[4] = &acc[u * PAIRS * SETS]; float sa[PAIRS * SETS][4];
      float *mine = part + (warp * 32 + lane) * 4; // [pair·set][warp][lane][4]
      if constexpr (ACC == 1) {
        a = sa;
#pragma unroll
        for (int i = 0; i < PAIRS * SETS; i++) { float4 v = *(float4 *)(mine + i * W * 128); sa[i][0] = v.x; sa[i][1] = v.y; sa[i][2] = v.z; sa[i][3] = v.w; }
      }
      if constexpr (MODE == 0) {
        wait(sm(&full[st]), ph);
        uint32_t b = sm(ring) + st * SB + (warp / 2) * RUN;
        uint32_t s0 = lds(b + 2048 + lane / 4 * 8 + warp % 2 * 4), s1 = lds(b + 8448 + 2048 + lane / 4 * 8 + warp % 2 * 4);
        uint32_t c = b + warp % 2 * 1024 + lane * 16;
        uint4 w00 = lds4(c), w01 = lds4(c + 512), w10 = lds4(c + 8448), w11 = lds4(c + 8448 + 512);
        either<INT, HOW, 1>(w00, w10, bf(s0, 0), bf(s1, 0), x[0], a, eights);
        either<INT, HOW, 1>(w01, w11, bf(s0, 1), bf(s1, 1), x[1], a, eights);
        __syncwarp(); if (lane == 0) arrive(sm(&empty[st])); next();
      } else if constexpr (MODE == 1) {
        wait(sm(&full[st]), ph);
        uint32_t b = sm(ring) + st * SB + (warp / 4) * RUN, sc = b + 2048 + lane / 4 * 8 + warp % 4 * 2 & ~3u, c = b + warp % 4 * 512 + lane * 16;
        uint32_t s[4]; uint4 w[4];
#pragma unroll
        for (int i = 0; i < 4; i++) { s[i] = lds(sc + i * 4224); w[i] = lds4(c + i * 4224); }
#pragma unroll
        for (int i = 0; i < 4; i += 2) either<INT, HOW, 2>(w[i], w[i + 1], bf(s[i], 0), bf(s[i + 1], 0), x[0], a + i, eights);
        __syncwarp(); if (lane == 0) arrive(sm(&empty[st])); next();
      } else if constexpr (MODE >= 3) { // 4 tiles of 1024 columns: a warp a block of a pair
        wait(sm(&full[st]), ph);
        int blk = warp % 8, pr = warp / 8;
        uint32_t b = sm(ring) + st * SB + (blk / 4) * RUN + pr * 2 * 4224, sc = b + 2048 + lane / 4 * 8 + blk % 4 * 2 & ~3u, c = b + blk % 4 * 512 + lane * 16;
        uint32_t s0 = lds(sc), s1 = lds(sc + 4224); uint4 w0 = lds4(c), w1 = lds4(c + 4224);
        block<HOW, SETS>(w0, w1, bf(s0, 0), bf(s1, 0), x[0], a, eights);
        __syncwarp(); if (lane == 0) arrive(sm(&empty[st])); next();
      } else {
        uint4 w[2][4]; uint32_t s[2][2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
          wait(sm(&full[st]), ph);
          uint32_t b = sm(ring) + st * SB + warp * RUN;
          uint64_t v; asm volatile("ld.shared.b64 %0, [%1];" : "=l"(v) : "r"(b + 2048 + lane / 4 * 8)); s[i][0] = (uint32_t)v; s[i][1] = (uint32_t)(v >> 32);
#pragma unroll
          for (int j = 0; j < 4; j++) w[i][j] = lds4(b + j * 512 + lane * 16);
          __syncwarp(); if (lane == 0) arrive(sm(&empty[st])); next();
        }
#pragma unroll
        for (int j = 0; j < 4; j++) block<HOW, 1>(w[0][j], w[1][j], bf(s[0][j / 2], j % 2), bf(s[1][j / 2], j % 2), x[j], a, eights);
      }
      if constexpr (ACC == 1)
#pragma unroll
        for (int i = 0; i < PAIRS * SETS; i++) *(float4 *)(mine + i * W * 128) = make_float4(sa[i][0], sa[i][1], sa[i][2], sa[i][3]);
    }
  }
  asm volatile("bar.sync 1, %0;" :: "n"(W * 32));
  long long t1 = clock64();
  float s = part[threadIdx.x];
  for (int i = 0; i < U * PAIRS * SETS; i++) s += acc[i][0] + acc[i][1] + acc[i][2] + acc[i][3];
  out[blockIdx.x * 512 + threadIdx.x] = s;
  if (threadIdx.x == 0) cyc[blockIdx.x] = t1 - t0;
}
uint32_t *in; float *out; long long *cyc;
template <int MODE, int HOW, int U, int ACC, int RELOAD, int W = 8> void go(const char *what) {
  auto f = k<MODE, HOW, U, ACC, RELOAD, W>;
  cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, STAGES * SB);
  int iters = 2000 / U; cudaFuncAttributes at; cudaFuncGetAttributes(&at, f);
  for (int r = 0; r < 2; r++) f<<<132, W * 32 + 32, STAGES * SB>>>(in, out, cyc, iters, 0x88888888u);
  long long c[132]; cudaError_t e = cudaMemcpy(c, cyc, sizeof c, cudaMemcpyDeviceToHost);
  std::sort(c, c + 132);
  printf("%2d warps mode %d how %d unroll %2d acc %s reload %d: %7.1f cycles a stage of 16 KiB; %d registers, %zu local %s %s\n", W, MODE, HOW, U, ACC ? "smem" : "regs", RELOAD,
         double(c[66]) / iters / U / (MODE % 10 == 2 ? 2 : 1), at.numRegs, at.localSizeBytes, what, cudaGetErrorString(e));
}
// straight code of N instructions, W warps a scheduler: cycles an instruction of a warp
template <int N> __global__ void code(float *out, long long *cyc, int iters) {
  float a = threadIdx.x, b = 1.0001f, c0 = 1, c1 = 2, c2 = 3, c3 = 4;
  __syncthreads(); long long t0 = clock64();
#pragma unroll 1
  for (int i = 0; i < iters; i++) {
#pragma unroll
    for (int j = 0; j < N / 4; j++) asm volatile("fma.rn.f32 %0, %4, %5, %0;\nfma.rn.f32 %1, %4, %5, %1;\nfma.rn.f32 %2, %4, %5, %2;\nfma.rn.f32 %3, %4, %5, %3;" : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : "f"(a), "f"(b));
  }
  __syncthreads(); long long t1 = clock64();
  out[blockIdx.x * 1024 + threadIdx.x] = c0 + c1 + c2 + c3; if (threadIdx.x == 0) cyc[blockIdx.x] = t1 - t0;
}
template <int N> void straight() {
  for (int w : {4, 8}) {
    int iters = 400000 / N + 2; long long c[132];
    for (int r = 0; r < 2; r++) code<N><<<132, w * 32>>>(out, cyc, iters);
    cudaMemcpy(c, cyc, sizeof c, cudaMemcpyDeviceToHost); std::sort(c, c + 132);
    printf("straight code of %6d bytes, %d warps: %.2f cycles an instruction\n", N * 16, w, double(c[66]) / iters / N);
  }
}
int main() {
  cudaMalloc(&in, 64 << 20); cudaMemset(in, 0x11, 64 << 20); cudaMalloc(&out, 132 * 1024 * 4); cudaMalloc(&cyc, 132 * 8);
  straight<64>(); straight<256>(); straight<512>(); straight<1024>(); straight<2048>(); straight<4096>(); straight<8192>(); straight<12288>();
  go<0, 0, 1, 0, 0>(""); go<0, 0, 3, 0, 0>(""); go<0, 0, 7, 0, 0>(""); go<0, 0, 7, 0, 1>("14 tiles a batch"); go<0, 0, 3, 0, 1>("6 tiles, as in the product");
  go<0, 1, 1, 0, 0>(""); go<0, 2, 1, 0, 0>(""); go<0, 1, 3, 0, 1>(""); go<0, 2, 3, 0, 1>("");
  go<0, 0, 1, 1, 0>(""); go<0, 1, 1, 1, 0>(""); go<0, 2, 1, 1, 0>("");
  go<2, 0, 1, 0, 0>(""); go<2, 1, 1, 0, 0>(""); go<2, 2, 1, 0, 0>(""); go<2, 1, 1, 1, 0>("");
  go<1, 0, 1, 0, 0>(""); go<1, 0, 2, 0, 0>(""); go<1, 0, 2, 0, 1>("8 tiles"); go<1, 1, 1, 0, 0>(""); go<1, 2, 1, 0, 0>(""); go<1, 1, 2, 0, 1>("");
  go<1, 0, 1, 1, 0>(""); go<1, 1, 1, 1, 0>(""); go<1, 2, 1, 1, 0>("");
  go<0, 1, 7, 0, 1>(""); go<0, 1, 1, 0, 0, 4>("half a stage"); go<0, 1, 1, 1, 0, 4>("half a stage");
  go<3, 1, 1, 0, 0, 16>(""); go<3, 1, 1, 1, 0, 16>(""); go<3, 1, 3, 0, 1, 16>(""); go<3, 1, 7, 0, 1, 16>("");
  go<1, 1, 3, 0, 1>(""); go<4, 1, 1, 0, 0, 16>(""); go<4, 1, 1, 1, 0, 16>(""); go<4, 1, 2, 0, 1, 16>(""); go<4, 1, 3, 0, 1, 16>(""); go<4, 1, 7, 0, 1, 16>("");
  go<10, 0, 1, 0, 0>(""); go<10, 0, 1, 1, 0>(""); go<10, 0, 7, 1, 1>("14 tiles a chunk"); go<10, 0, 7, 1, 2>("14 tiles a chunk"); go<0, 1, 7, 1, 1>("14 tiles a chunk");
  go<10, 1, 1, 0, 0>(""); go<10, 1, 1, 1, 0>(""); go<10, 1, 7, 1, 1>("14 tiles a chunk"); go<10, 0, 3, 0, 1>(""); go<10, 0, 3, 0, 2>("");
  go<11, 0, 1, 0, 0>(""); go<11, 0, 2, 0, 0>(""); go<11, 0, 3, 0, 1>(""); go<11, 0, 3, 0, 2>(""); go<11, 0, 1, 1, 0>("");
  go<11, 1, 1, 0, 0>(""); go<11, 1, 2, 0, 0>(""); go<11, 1, 3, 0, 1>(""); go<11, 1, 1, 1, 0>("");
  printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
