// A yardstick, not a piece of the product: the memory traffic and the hand-offs
// of decoder layers for one token, without their mathematics. It answers one
// question before anything is built on the answer: while the ring is full (all
// SMs wait for a hand-off, and memory idles), does it pay to have the chunks that
// come next fetched into L2?
//
//   nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a gap.cu && ./a.out
//
// "ahead D, pace P": a producer that finds its stage not drained asks for the
// chunk it is about to copy, and after every P clocks more for the next one, up
// to D. Ahead 0 is a plain ring.
#include <cstdio>
#include <cstdint>
#include <vector>
#include <algorithm>
#include <cuda_runtime.h>

constexpr int kStage = 16384, kStages = 11, kWarps = 8, kVector = 16384;
struct Op { int chunks, x; };          // of 16 KiB an SM; bf16 elements that every SM reads before
struct Shape { const char* name; int n; Op ops[8]; int layers, stall; };  // stall: clocks between the last chunk and the hand-off

__device__ __forceinline__ uint32_t smem(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ bool test(uint64_t* bar, uint32_t parity) {
  uint32_t ok;
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(ok) : "r"(smem(bar)), "r"(parity) : "memory");
  return ok;
}
__device__ __forceinline__ void wait(uint64_t* bar, uint32_t parity) {
  asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra L; }" :: "r"(smem(bar)), "r"(parity) : "memory");
}
__device__ __forceinline__ void sync() { asm volatile("bar.sync 1, %0;" :: "n"(kWarps * 32) : "memory"); }
__device__ __forceinline__ float lo(uint32_t u) { return __uint_as_float(u << 16); }
__device__ __forceinline__ float hi(uint32_t u) { return __uint_as_float(u & 0xffff0000u); }

struct Args { const char* weights; Shape shape; int inFlight, ahead, pace; unsigned* counter; uint4* act; float* sink; unsigned long long* fetched; };
struct Shared {
  uint8_t ring[kStages][kStage];
  uint64_t full[kStages], empty[kStages];
  float part[512];
  uint4 x[kVector / 8];
};

__device__ void produce(Shared& s, const Args& a) {
  int per = 0;
  for (int o = 0; o < a.shape.n; o++) per += a.shape.ops[o].chunks;
  const int total = per * a.shape.layers;
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  const char* from = a.weights + (size_t)blockIdx.x * total * kStage;
  unsigned long long fetched = 0;
  for (int c = 0, next = 0; c < total; c++) {
    const int slot = c % kStages;
    if (c >= kStages) {
      const uint32_t parity = (c / kStages - 1) & 1;
      if (a.ahead) {
        long long t = clock64();
        if (next < c) next = c;
        while (!test(&s.empty[slot], parity)) {
          if (next >= c + a.ahead || next >= total) { wait(&s.empty[slot], parity); break; }
          if (clock64() >= t) {
            asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(from + (size_t)next * kStage), "r"(kStage) : "memory");
            next++, fetched++, t = clock64() + a.pace;
          }
        }
      } else {
        wait(&s.empty[slot], parity);
      }
    }
    if (c >= a.inFlight) wait(&s.full[(c - a.inFlight) % kStages], (c - a.inFlight) / kStages & 1);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(smem(&s.full[slot])), "r"(kStage) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
                 :: "r"(smem(s.ring[slot])), "l"(from + (size_t)c * kStage), "r"(kStage), "r"(smem(&s.full[slot])), "l"(policy) : "memory");
  }
  if (blockIdx.x == 0) *a.fetched = fetched;
}

__device__ void consume(Shared& s, const Args& a) {
  const int t = threadIdx.x, w = t / 32, l = t % 32, B = blockIdx.x, G = gridDim.x;
  unsigned target = 0;
  int c = 0, turn = 0;
  float keep = 0;
  for (int layer = 0; layer < a.shape.layers; layer++) for (int o = 0; o < a.shape.n; o++) {
    const Op op = a.shape.ops[o];
    if (a.shape.stall) { long long until = clock64() + a.shape.stall; while (clock64() < until); }
    uint4* act = a.act + (turn++ & 1) * (kVector / 8);
    const int n = op.x / 8, mine = (n + G - 1) / G;
    sync();
    if (t < mine && B * mine + t < n) act[B * mine + t] = make_uint4(__float_as_uint(s.part[t]), t, B, layer);
    sync();
    target += G;
    if (t == 0) {
      unsigned v;
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" :: "l"(a.counter) : "memory");
      do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(a.counter) : "memory"); while (v < target);
    }
    sync();
    for (int i = t; i < n; i += kWarps * 32) {
      uint4 v;
      asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(act + i) : "memory");
      s.x[i] = v;
    }
    sync();
    for (int q = 0; q < op.chunks; q++, c++) {
      const int slot = c % kStages;
      wait(&s.full[slot], (c / kStages) & 1);
      const uint4* data = (const uint4*)(s.ring[slot] + w * (kStage / kWarps));
      float a0 = 0, a1 = 0;
#pragma unroll
      for (int i = 0; i < kStage / kWarps / 512; i++) {
        uint4 u = data[i * 32 + l], x = s.x[(q * 128 + w * 4 + i) % (kVector / 8 / 32) * 32 + l];
        a0 = fmaf(lo(u.x), lo(x.x), a0); a1 = fmaf(hi(u.x), hi(x.x), a1); a0 = fmaf(lo(u.y), lo(x.y), a0); a1 = fmaf(hi(u.y), hi(x.y), a1);
        a0 = fmaf(lo(u.z), lo(x.z), a0); a1 = fmaf(hi(u.z), hi(x.z), a1); a0 = fmaf(lo(u.w), lo(x.w), a0); a1 = fmaf(hi(u.w), hi(x.w), a1);
      }
      __syncwarp();
      if (l == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(smem(&s.empty[slot])) : "memory");
      a0 += a1;
      for (int d = 16; d; d /= 2) a0 += __shfl_xor_sync(~0u, a0, d);
      if (l == 0) s.part[(q * kWarps + w) & 511] = a0;
      keep += a0;
    }
  }
  if (keep == 123.456f) a.sink[t] = keep;
}

__global__ __launch_bounds__((kWarps + 1) * 32, 1) void layers(Args a) {
  extern __shared__ __align__(128) unsigned char raw[];
  Shared& s = *(Shared*)raw;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; i++) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(smem(&s.full[i])));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(smem(&s.empty[i])), "n"(kWarps));
    }
    asm volatile("fence.mbarrier_init.release.cluster;");
  }
  for (int i = threadIdx.x; i < 512; i += blockDim.x) s.part[i] = 0.5f;
  __syncthreads();
  if (threadIdx.x / 32 == kWarps) { if (threadIdx.x % 32 == 0) produce(s, a); }
  else consume(s, a);
}

int main() {
  Args a{};
  cudaDeviceProp d;
  cudaGetDeviceProperties(&d, 0);
  const int sms = d.multiProcessorCount;
  const size_t bytes = (size_t)20 << 30;
  char* weights;
  if (cudaMalloc(&weights, bytes) || cudaMalloc(&a.counter, 4) || cudaMalloc(&a.act, 4 * kVector) || cudaMalloc(&a.sink, 4096) || cudaMalloc(&a.fetched, 8)) return printf("no memory\n"), 1;
  cudaMemset(weights, 0x11, bytes);
  a.weights = weights;
  cudaFuncSetAttribute(layers, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  const Shape shapes[] = {
      {"8B, 6 hand-offs", 6, {{24, 4096}, {0, 768}, {0, 1024}, {16, 4096}, {110, 4096}, {55, 14336}}, 32, 0},
      {"1B, 6 hand-offs", 6, {{6, 2048}, {0, 384}, {0, 512}, {4, 2048}, {32, 2048}, {16, 8192}}, 64, 0},
      {"attention, 8 us idle", 1, {{62, 512}}, 64, 12000},
  };
  cudaEvent_t e0, e1;
  cudaEventCreate(&e0);
  cudaEventCreate(&e1);
  const int settings[][3] = {{3, 0, 0}, {2, 0, 0}, {3, 2, 800}, {3, 4, 800}, {3, 8, 800}, {3, 12, 800}, {3, 24, 800}, {3, 8, 500}, {3, 8, 1200}, {2, 8, 800}, {2, 12, 1200}, {4, 8, 800}, {3, 8, 0}};
  for (const Shape& shape : shapes) for (auto& w : settings) {
    a.shape = shape, a.inFlight = w[0], a.ahead = w[1], a.pace = w[2];
    size_t chunks = 0;
    for (int o = 0; o < shape.n; o++) chunks += shape.ops[o].chunks;
    const double total = (double)chunks * shape.layers * kStage * sms;
    if (total > bytes) return printf("%s: %.0f bytes\n", shape.name, total), 1;
    std::vector<float> times;
    cudaError_t error = cudaSuccess;
    for (int round = 0; round < 9; round++) {
      cudaMemset(a.counter, 0, 4);
      void* args[] = {&a};
      cudaEventRecord(e0);
      cudaLaunchCooperativeKernel((void*)layers, dim3(sms), dim3((kWarps + 1) * 32), args, sizeof(Shared), 0);
      cudaEventRecord(e1);
      error = cudaEventSynchronize(e1);
      float ms;
      cudaEventElapsedTime(&ms, e0, e1);
      if (round >= 2) times.push_back(ms);
    }
    std::sort(times.begin(), times.end());
    unsigned long long fetched = 0;
    cudaMemcpy(&fetched, a.fetched, 8, cudaMemcpyDeviceToHost);
    const float ms = times[times.size() / 2];
    printf("%-22s in flight %d  ahead %2d  pace %4d: %7.2f us a layer, %5.0f GB/s, %4.1f chunks ahead a layer of %zu, %s\n", shape.name, w[0], w[1], w[2], ms * 1e3 / shape.layers,
           total / ms / 1e6, (double)fetched / shape.layers, chunks, cudaGetErrorString(error));
    fflush(stdout);
  }
}
