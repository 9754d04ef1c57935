// The PTX that emitted kernels rely on, in one kernel with no #include: nvcc and NVRTC must both take it for sm_90a.
// Written by hand, compiled by tests only. One bulk copy brings an A tile, ldmatrix a B tile, one mma multiplies them.
typedef unsigned int u32;
typedef unsigned long long u64;

struct Params {
  const void *a;   // 512 bytes of bf16, 16-byte aligned
  const void *b;   // 256 bytes of bf16
  float *out;      // 32 lanes of 4
};

extern "C" __global__ void __launch_bounds__(32) ptx_probe(const Params *p) {
  extern __shared__ __align__(128) unsigned char shared[];
  const u32 base = (u32)__cvta_generic_to_shared(shared);
  const u32 bar = base, a = base + 128, b = base + 640;
  const u32 lane = threadIdx.x;
  if (lane == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(1) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncwarp();
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  if (lane == 0) {
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(768) : "memory");
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
                 ::"r"(a), "l"(p->a), "r"(512), "r"(bar), "l"(policy) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(b), "l"(p->b), "r"(256), "r"(bar) : "memory");
  }
  u32 done = 0;
  while (!done) {
    asm volatile("{\n .reg .pred q;\n mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 q, [%1], %2;\n selp.u32 %0, 1, 0, q;\n}"
                 : "=r"(done) : "r"(bar), "r"(0) : "memory");
  }
  u32 a0, a1, a2, a3, b0, b1;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(a0), "=r"(a1), "=r"(a2), "=r"(a3) : "r"(a + lane * 16) : "memory");
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(b0), "=r"(b1) : "r"(b + (lane & 15) * 16) : "memory");
  float c0 = 0, c1 = 0, c2 = 0, c3 = 0;
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  float *out = p->out + lane * 4;
  asm volatile("st.release.gpu.global.f32 [%0], %1;" ::"l"(out), "f"(c0) : "memory");
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}
