// A yardstick, not a piece of the product: the memory traffic, the tensor-core
// arithmetic and the hand-offs of a decoder layer for T tokens at once, without
// its mathematics. It answers one question before anything is built on the
// answer: can every warp read its share of the T input vectors from L2 straight
// into registers, in fragment order, one K chunk ahead, while the weights stream
// at full speed?
//
//   nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a columns.cu && ./a.out
//
// Shapes are Llama-3.1-8B's. Schemes: "shared" is T = 1 with the vector in shared
// memory; "regs T B" reads T = 8 or 16 columns per batch of B row tiles.
#include <cstdio>
#include <cstdint>
#include <vector>
#include <algorithm>
#include <cuda_runtime.h>

constexpr int kStage = 16384, kWarps = 8, kChunk = 1024;
constexpr int kLayers = 16;
struct Op { int tiles, K; int batch; bool norm; };

__device__ __forceinline__ uint32_t smem(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void wait(uint64_t* bar, uint32_t parity) {
  asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra L; }" :: "r"(smem(bar)), "r"(parity) : "memory");
}
__device__ __forceinline__ void mma(float* c, const uint32_t* a, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <bool SHARED>
struct Shared {
  static constexpr int kStages = SHARED ? 10 : 12;
  uint8_t ring[kStages][kStage];
  uint64_t full[kStages], empty[kStages];
  float part[2][kWarps * 8 * 8 * 8];  // 8 warps x (4 tiles x 16 | 8 tiles x 8) x 8 rows
  float scale[16];
  uint16_t x[SHARED ? 14336 : 8];
};

__device__ void gridBarrier(unsigned* counter, unsigned& target) {
  target += gridDim.x;
  asm volatile("bar.sync 1, 256;" ::: "memory");
  if (threadIdx.x == 0) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" :: "l"(counter) : "memory");
    unsigned v;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(counter) : "memory"); while ((int)(v - target) < 0);
  }
  asm volatile("bar.sync 1, 256;" ::: "memory");
}

__device__ __forceinline__ int share(int tiles) { return tiles / gridDim.x + ((int)blockIdx.x < tiles % (int)gridDim.x); }

template <int TP, int B, bool SHARED>
__device__ __forceinline__ void consume(Shared<SHARED>& s, int n, int K, bool norm, const uint16_t* in, const float* sq, uint16_t* out, float* sqOut, int& stage, uint32_t& parity) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, chunks = (K + kChunk - 1) / kChunk;
  if (SHARED) {
    for (int i = threadIdx.x; i < K / 8; i += 256) ((uint4*)s.x)[i] = ((const uint4*)in)[i];
    asm volatile("bar.sync 1, 256;" ::: "memory");
  }
  if (norm && !SHARED)
    for (int t = warp; t < TP; t += kWarps) {
      float v = 0;
      for (int i = lane; i < gridDim.x; i += 32) v += sq[i * TP + t];
      for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
      if (lane == 0) s.scale[t] = v;
    }
  int half = 0;
  float squares = 0;
  for (int first = 0; first < n; first += B) {
    float acc[B][4] = {};
    uint32_t a[4][2][4], ahead[4][2][4];
    auto load = [&](int c) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int group = c * 32 + warp + 8 * i;
#pragma unroll
        for (int r = 0; r < (TP + 7) / 8; r++)
          *(uint4*)ahead[i][r] = *(const uint4*)(in + ((size_t)group * TP + lane / 4 + 8 * r) * 32 + lane % 4 * 8);
      }
    };
    if (!SHARED) load(0);
    for (int c = 0; c < chunks; c++) {
      if (!SHARED) {
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
          for (int r = 0; r < 2; r++)
#pragma unroll
            for (int j = 0; j < 4; j++) a[i][r][j] = ahead[i][r][j];
        if (c + 1 < chunks) load(c + 1);
      }
#pragma unroll
      for (int j = 0; j < B; j++) {
        if (first + j >= n) continue;
        wait(&s.full[stage], parity);
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const uint4 w = *(const uint4*)(s.ring[stage] + (warp + 8 * i) * 512 + lane * 16);
          uint32_t f0[4], f1[4];
          if (SHARED) {
            const uint4 x = *(const uint4*)(s.x + c * kChunk + (warp + 8 * i) * 32 + lane % 4 * 8);
            f0[0] = x.x, f0[1] = 0, f0[2] = x.y, f0[3] = 0, f1[0] = x.z, f1[1] = 0, f1[2] = x.w, f1[3] = 0;
          } else {
            f0[0] = a[i][0][0], f0[2] = a[i][0][1], f1[0] = a[i][0][2], f1[2] = a[i][0][3];
            f0[1] = TP > 8 ? a[i][1][0] : 0, f0[3] = TP > 8 ? a[i][1][1] : 0, f1[1] = TP > 8 ? a[i][1][2] : 0, f1[3] = TP > 8 ? a[i][1][3] : 0;
          }
          mma(acc[j], f0, w.x, w.y);
          mma(acc[j], f1, w.z, w.w);
        }
        __syncwarp();
        if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(smem(&s.empty[stage])) : "memory");
        if (++stage == Shared<SHARED>::kStages) stage = 0, parity ^= 1;
      }
    }
    constexpr int R = TP > 8 ? 4 : 8;
#pragma unroll
    for (int r = 0; r < B; r += R) {
      if (first + r >= n) continue;
      float* p = s.part[half];
#pragma unroll
      for (int j = r; j < r + R && j < B; j++) {
        float* q = p + ((warp * R + j - r) * TP + lane / 4) * 8 + lane % 4 * 2;
        *(float2*)q = make_float2(acc[j][0], acc[j][1]);
        if (TP > 8) *(float2*)(q + 64) = make_float2(acc[j][2], acc[j][3]);
      }
      asm volatile("bar.sync 1, 256;" ::: "memory");
      const int tile = threadIdx.x / (TP * 4), token = threadIdx.x / 4 % TP, row = threadIdx.x % 4 * 2;
      if (first + r + tile < n) {
        float y0 = 0, y1 = 0;
        for (int w = 0; w < kWarps; w++) {
          const float2 v = *(float2*)(p + ((w * R + tile) * TP + token) * 8 + row);
          y0 += v.x, y1 += v.y;
        }
        if (norm) y0 *= s.scale[token], y1 *= s.scale[token];
        squares += y0 * y0 + y1 * y1;
        const int k = ((blockIdx.x * share(n) + first + r + tile) * 8 + row) % 14336;
        *(uint32_t*)(out + ((size_t)(k / 32) * TP + token) * 32 + k % 32) = __float_as_uint(y0 + y1) & 0x3fff3fff;
      }
      half ^= 1;
    }
  }
  if (!SHARED) {  // the sum of squares of each token
    s.part[half][threadIdx.x] = squares;
    asm volatile("bar.sync 1, 256;" ::: "memory");
    if (threadIdx.x < TP) {
      float v = 0;
      for (int i = 0; i < 256 / TP; i++) v += s.part[half][(i / 4 * TP + threadIdx.x) * 4 + i % 4];
      sqOut[blockIdx.x * TP + threadIdx.x] = v;
    }
  }
}

template <int TP, int B, bool SHARED>
__global__ __launch_bounds__(288, 1) void step(const uint8_t* weights, uint16_t* act, float* sq, unsigned* counter, unsigned base, int inFlight, int barriers) {
  extern __shared__ __align__(128) uint8_t raw[];
  auto& s = *(Shared<SHARED>*)raw;
  constexpr int kStages = Shared<SHARED>::kStages;
  const int tiles[4] = {768, 512, 3584, 512}, ks[4] = {4096, 4096, 4096, 14336};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; i++) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(smem(&s.full[i])) : "memory");
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 8;" :: "r"(smem(&s.empty[i])) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x >= 256) {
    if (threadIdx.x > 256) return;
    int n = 0;
    size_t layerBytes = 0;
    for (int o = 0; o < 4; o++) layerBytes += (size_t)tiles[o] * ks[o] * 16;
    for (int l = 0; l < kLayers; l++) {
      const uint8_t* at = weights + l * layerBytes;
      for (int o = 0; o < 4; o++) {
        const int mine = share(tiles[o]), chunks = (ks[o] + kChunk - 1) / kChunk;
        const uint8_t* p = at + ((size_t)blockIdx.x * (tiles[o] / gridDim.x) + min((int)blockIdx.x, tiles[o] % (int)gridDim.x)) * ks[o] * 16;
        for (int i = 0; i < mine * chunks; i++, n++, p += kStage) {
          const int stage = n % kStages;
          if (n >= kStages) wait(&s.empty[stage], (n / kStages - 1) & 1);
          if (n >= inFlight) wait(&s.full[(n - inFlight) % kStages], ((n - inFlight) / kStages) & 1);
          asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
          asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(smem(&s.full[stage])), "r"(kStage) : "memory");
          asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                       :: "r"(smem(s.ring[stage])), "l"(p), "r"(kStage), "r"(smem(&s.full[stage])) : "memory");
        }
        at += (size_t)tiles[o] * ks[o] * 16;
      }
    }
    return;
  }
  unsigned target = base;
  int stage = 0;
  uint32_t parity = 0;
  const size_t n = (size_t)14336 * 16;
  for (int l = 0; l < kLayers; l++) {
    for (int o = 0; o < 4; o++) {
      consume<TP, B, SHARED>(s, share(tiles[o]), ks[o], o % 2 == 0, act + o * n, sq + o * 132 * 16, act + (o + 1) % 4 * n, sq + (o + 1) % 4 * 132 * 16, stage, parity);
      gridBarrier(counter, target);
      for (int i = 0; o == 0 && i < barriers; i++) gridBarrier(counter, target);  // attention, merge
    }
  }
}

template <int TP, int B, bool SHARED>
void run(const char* name, const uint8_t* w, uint16_t* act, float* sq, unsigned* counter, size_t bytes, int inFlight, int barriers) {
  auto k = step<TP, B, SHARED>;
  cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared<SHARED>));
  cudaFuncAttributes attr;
  cudaFuncGetAttributes(&attr, k);
  std::vector<float> ms;
  cudaEvent_t a, b;
  cudaEventCreate(&a), cudaEventCreate(&b);
  for (int i = 0; i < 12; i++) {
    cudaMemset(counter, 0, 4);
    unsigned base = 0;
    void* args[] = {&w, &act, &sq, &counter, &base, &inFlight, &barriers};
    cudaEventRecord(a);
    cudaLaunchCooperativeKernel((void*)k, 132, 288, args, sizeof(Shared<SHARED>), 0);
    cudaEventRecord(b);
    cudaEventSynchronize(b);
    float t;
    cudaEventElapsedTime(&t, a, b);
    if (i >= 3) ms.push_back(t);
  }
  std::sort(ms.begin(), ms.end());
  const double us = ms[ms.size() / 2] * 1000 / kLayers;
  printf("%-10s T %2d  B %2d  in flight %d  barriers %d: %7.1f us a layer, %6.0f GB/s of weights, %d registers, %d B spilled, %s\n", name, SHARED ? 1 : TP, B, inFlight, 4 + barriers, us,
         bytes / us / 1e3, attr.numRegs, (int)attr.localSizeBytes, cudaGetErrorString(cudaGetLastError()));
}

int main() {
  const size_t layer = ((size_t)768 * 4096 + 512 * 4096 + 3584 * 4096 + 512 * (size_t)14336) * 16;
  uint8_t* w;
  uint16_t* act;
  float* sq;
  unsigned* counter;
  cudaMalloc(&w, layer * kLayers);
  cudaMalloc(&act, 4 * 14336 * 16 * 2);
  cudaMalloc(&sq, 4 * 132 * 16 * 4);
  cudaMalloc(&counter, 4);
  cudaMemset(w, 0x11, layer * kLayers);
  cudaMemset(act, 0x11, 4 * 14336 * 16 * 2);
  cudaMemset(sq, 0, 4 * 132 * 16 * 4);
  for (int f : {2, 3, 4}) {
    run<8, 1, true>("shared", w, act, sq, counter, layer, f, 2);
    run<8, 4, false>("regs", w, act, sq, counter, layer, f, 2);
    run<8, 7, false>("regs", w, act, sq, counter, layer, f, 2);
    run<8, 14, false>("regs", w, act, sq, counter, layer, f, 2);
    run<8, 28, false>("regs", w, act, sq, counter, layer, f, 2);
    run<16, 4, false>("regs", w, act, sq, counter, layer, f, 2);
    run<16, 7, false>("regs", w, act, sq, counter, layer, f, 2);
    run<16, 10, false>("regs", w, act, sq, counter, layer, f, 2);
    run<16, 14, false>("regs", w, act, sq, counter, layer, f, 2);
  }
  return cudaDeviceSynchronize() != cudaSuccess;
}
