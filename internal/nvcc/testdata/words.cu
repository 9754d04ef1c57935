// A wait for a word of 16 bytes whose last part is a tag, as emitted kernels have it, without the middle parts or, with -DWHOLE, with
// them. Written by hand, compiled by tests only: of a load whose middle nobody uses ptxas makes two.
typedef unsigned int u32;
typedef unsigned long long u64;

extern "C" __global__ void words(const uint4 *in, u32 *out) {
  u64 lo, hi;
  do {
    asm volatile("{\n.reg .b128 v;\nld.relaxed.gpu.global.b128 v, [%2];\nmov.b128 {%0, %1}, v;\n}"
                 : "=l"(lo), "=l"(hi) : "l"(__cvta_generic_to_global(in + threadIdx.x)) : "memory");
  } while ((u32)(hi >> 32) != 7);
#ifdef WHOLE
  out[threadIdx.x] = (u32)lo | (u32)(lo >> 32) | (u32)hi;
#else
  out[threadIdx.x] = (u32)lo;
#endif
}
