// The smoke test's kernel, written by hand: does the driver package launch a cooperative grid with much dynamic shared memory, pass
// the params block, and talk to a kernel that runs? The layout of Params is repeated in main.go.
typedef unsigned int u32;
typedef unsigned long long u64;

struct Params {
  const float *a, *b; // n values each
  float *sum;         // a + b, through shared memory
  float *reversed;    // sum backwards, read after the grid barrier: mostly other blocks' work
  u32 *arrived;       // the barrier's counter, 0 at launch
  u32 *host;          // mapped: [0] the host's answer, [1] the kernel's call, [2] whether the kernel saw the answer
  u32 n;              // at most gridDim.x * shared floats
  u32 shared_floats;  // floats of dynamic shared memory per block
};

static __device__ __forceinline__ u32 load_acquire_gpu(const u32 *p) {
  u32 v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}

static __device__ __forceinline__ u32 load_acquire_sys(const u32 *p) {
  u32 v;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}

static __device__ __forceinline__ void store_release_sys(u32 *p, u32 v) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

extern "C" __global__ void __launch_bounds__(256) smoke(const Params *p) {
  extern __shared__ float stage[];
  const u32 base = blockIdx.x * p->shared_floats;
  const u32 left = base < p->n ? p->n - base : 0;
  const u32 mine = left < p->shared_floats ? left : p->shared_floats;

  // Filled forwards and emptied backwards by thread, so that values cross between threads in shared memory.
  for (u32 i = threadIdx.x; i < mine; i += blockDim.x) stage[i] = p->a[base + i] + p->b[base + i];
  __syncthreads();
  for (u32 i = threadIdx.x; i < mine; i += blockDim.x) p->sum[base + mine - 1 - i] = stage[mine - 1 - i];

  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(p->arrived) : "memory");
    while (load_acquire_gpu(p->arrived) < gridDim.x) {
    }
  }
  __syncthreads();
  for (u32 i = base + threadIdx.x; i < base + mine; i += blockDim.x) p->reversed[i] = p->sum[p->n - 1 - i];

  if (blockIdx.x == 0 && threadIdx.x == 0) {
    store_release_sys(p->host + 1, 1);
    u32 saw = 0;
    for (u32 spin = 0; spin < (1u << 22) && !saw; spin++) saw = load_acquire_sys(p->host);
    store_release_sys(p->host + 2, saw);
  }
}
