// A word of 16 bytes whose last part is a tag: one load of all of it, or, with two, what ptxas makes of that in large kernels where
// nobody uses the middle. Written by hand, compiled by tests only; they put TWO before it.
typedef unsigned int u32;
typedef unsigned long long u64;

extern "C" __global__ void split(const uint4 *in, u32 *out) {
  const u64 p = __cvta_generic_to_global(in + threadIdx.x);
  u64 lo = 0, hi = 0;
  while ((u32)(hi >> 32) != 7) {
#ifdef TWO
    u32 first, tag;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%2+12];\nld.relaxed.gpu.global.u32 %1, [%2];\n" : "=r"(tag), "=r"(first) : "l"(p) : "memory");
    lo = first, hi = (u64)tag << 32;
#else
    asm volatile("{\n.reg .b128 v;\nld.relaxed.gpu.global.b128 v, [%2];\nmov.b128 {%0, %1}, v;\n}" : "=l"(lo), "=l"(hi) : "l"(p) : "memory");
#endif
  }
  out[threadIdx.x] = (u32)lo | (u32)(lo >> 32) | (u32)hi;
}
