package emit

// fixedHelper is a function of the prelude whose text never varies, by rank.
// asm statements that only compute are not volatile: the compiler may move
// and merge them. Those that read or order memory, or that lanes run
// together, are, and that which is to hold the compiler up.
type fixedHelper struct {
	name string
	rank int
	deps string
	text string
}

// ownHelpers are what a thread does alone, without touching memory.
var ownHelpers = [...]fixedHelper{
	{"shared_address", 0, "", `
// The 32-bit address of a place in this CTA's shared memory.
DEVICE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }`},

	{"global", 0, "", `
// Tells the compiler that a pointer points into global memory: accesses then
// need not find out their address space.
template <class T>
DEVICE T* global(T* p) {
  __builtin_assume(__isGlobal(p));
  return p;
}`},
	{"opaque", 1, "", `
// x, of which the compiler then knows nothing: what is computed of it is not moved in front of a loop.
DEVICE u32 opaque(u32 x) {
  asm volatile("" : "+r"(x));
  return x;
}`},
	{"shl32", 1, "", `
// a << n, 0 for n of 32 and more (C++ leaves that open).
DEVICE u32 shl32(u32 a, u32 n) {
  u32 v;
  asm("shl.b32 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(n));
  return v;
}`},
	{"shl64", 1, "", `
// a << n, 0 for n of 64 and more.
DEVICE u64 shl64(u64 a, u32 n) {
  u64 v;
  asm("shl.b64 %0, %1, %2;" : "=l"(v) : "l"(a), "r"(n));
  return v;
}`},
	{"shr32", 1, "", `
// a >> n, 0 for n of 32 and more.
DEVICE u32 shr32(u32 a, u32 n) {
  u32 v;
  asm("shr.u32 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(n));
  return v;
}`},
	{"sar32", 1, "", `
// a >> n keeping the sign, also for n of 32 and more.
DEVICE i32 sar32(i32 a, u32 n) {
  i32 v;
  asm("shr.s32 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(n));
  return v;
}`},
	{"shr64", 1, "", `
// a >> n, 0 for n of 64 and more.
DEVICE u64 shr64(u64 a, u32 n) {
  u64 v;
  asm("shr.u64 %0, %1, %2;" : "=l"(v) : "l"(a), "r"(n));
  return v;
}`},
	{"abs_i32", 1, "", `
// |a|; the most negative number stays itself.
DEVICE i32 abs_i32(i32 a) { return a < 0 ? (i32)(0u - (u32)a) : a; }`},
	{"exp2", 1, "", `
// 2 to the power a, approximate (2 ulp); results below the normal range are 0.
DEVICE float exp2(float a) {
  float v;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(v) : "f"(a));
  return v;
}`},
	{"log2", 1, "", `
// Base-2 logarithm, approximate.
DEVICE float log2(float a) {
  float v;
  asm("lg2.approx.f32 %0, %1;" : "=f"(v) : "f"(a));
  return v;
}`},
	{"rcp", 1, "", `
// 1 / a, approximate (1 ulp).
DEVICE float rcp(float a) {
  float v;
  asm("rcp.approx.f32 %0, %1;" : "=f"(v) : "f"(a));
  return v;
}`},
	{"rsqrt", 1, "", `
// 1 / sqrt(a), approximate (2 ulp).
DEVICE float rsqrt(float a) {
  float v;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(v) : "f"(a));
  return v;
}`},
	{"sin", 1, "", `
// sin(a) for a in [-pi, pi], approximate (2^-20.5 absolute).
DEVICE float sin(float a) {
  float v;
  asm("sin.approx.ftz.f32 %0, %1;" : "=f"(v) : "f"(a));
  return v;
}`},
	{"cos", 1, "", `
// cos(a) for a in [-pi, pi], approximate (2^-20.5 absolute).
DEVICE float cos(float a) {
  float v;
  asm("cos.approx.ftz.f32 %0, %1;" : "=f"(v) : "f"(a));
  return v;
}`},
	{"tanh", 1, "", `
// tanh(a), approximate (2^-11 relative).
DEVICE float tanh(float a) {
  float v;
  asm("tanh.approx.f32 %0, %1;" : "=f"(v) : "f"(a));
  return v;
}`},
	{"bf16_of", 1, "", `
// a rounded to the nearest bfloat16, ties to even.
DEVICE bf16 bf16_of(float a) {
  bf16 v;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(v) : "f"(a));
  return v;
}`},
	{"f16_of", 1, "", `
// a rounded to the nearest binary16, ties to even.
DEVICE f16 f16_of(float a) {
  f16 v;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(v) : "f"(a));
  return v;
}`},
	{"float_of_bf16", 1, "", `
// A bfloat16 is the upper half of a float.
DEVICE float float_of_bf16(bf16 a) { return __uint_as_float((u32)a << 16); }`},
	{"float_of_f16", 1, "", `
DEVICE float float_of_f16(f16 a) {
  float v;
  asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(a));
  return v;
}`},
	{"pack_bf16", 1, "", `
// Two floats rounded to bfloat16, the first in the low half.
DEVICE bf16x2 pack_bf16(float lo, float hi) {
  bf16x2 v;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(hi), "f"(lo));
  return v;
}`},
	{"pack_f16", 1, "", `
// Two floats rounded to binary16, the first in the low half.
DEVICE f16x2 pack_f16(float lo, float hi) {
  f16x2 v;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(hi), "f"(lo));
  return v;
}`},
	{"pack_e4m3", 1, "", `
// Two floats rounded to float8 e4m3, at most +-448, the first in the low byte.
DEVICE u16 pack_e4m3(float lo, float hi) {
  u16 v;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(v) : "f"(hi), "f"(lo));
  return v;
}`},
	{"f16_of_e4m3", 1, "", `
// Two float8 e4m3 as binary16, exactly, the low byte in the low half.
DEVICE f16x2 f16_of_e4m3(u16 a) {
  f16x2 v;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(v) : "h"(a));
  return v;
}`},
	{"bf16_lo", 1, "", `
DEVICE float bf16_lo(bf16x2 a) { return __uint_as_float(a << 16); }`},
	{"bf16_hi", 1, "", `
DEVICE float bf16_hi(bf16x2 a) { return __uint_as_float(a & 0xffff0000u); }`},
	{"f16_lo", 2, "float_of_f16", `
DEVICE float f16_lo(f16x2 a) { return float_of_f16((f16)a); }`},
	{"f16_hi", 2, "float_of_f16", `
DEVICE float f16_hi(f16x2 a) { return float_of_f16((f16)(a >> 16)); }`},
	{"u16_lo", 1, "", `
// The low half of a word. As a move, unlike a shift, the halves cost nothing where
// an instruction can read half a register.
DEVICE u16 u16_lo(u32 a) {
  u16 v;
  asm("{\n\t.reg .b16 other;\n\tmov.b32 {%0, other}, %1;\n\t}" : "=h"(v) : "r"(a));
  return v;
}`},
	{"u16_hi", 1, "", `
// The high half of a word.
DEVICE u16 u16_hi(u32 a) {
  u16 v;
  asm("{\n\t.reg .b16 other;\n\tmov.b32 {other, %0}, %1;\n\t}" : "=h"(v) : "r"(a));
  return v;
}`},
	{"prmt", 1, "", `
// Four bytes picked out of a (0 to 3) and b (4 to 7) by the nibbles of sel.
DEVICE u32 prmt(u32 a, u32 b, u32 sel) {
  u32 v;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(sel));
  return v;
}`},
	{"dp2a", 1, "", `
// The halves of a times bytes 0 and 1 of b, which have a sign, and c added.
DEVICE u32 dp2a(u32 a, u32 b, u32 c) {
  u32 v;
  asm("dp2a.lo.u32.s32 %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(c));
  return v;
}`},
	{"lop3", 1, "", `
// Bit by bit what the table has for bits a, b and c: bit 4a + 2b + c of it.
template <int TABLE>
DEVICE u32 lop3(u32 a, u32 b, u32 c) {
  u32 v;
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(v) : "r"(a), "r"(b), "r"(c), "n"(TABLE));
  return v;
}`},
	{"smid", 1, "", `
// The SM this CTA runs on.
DEVICE u32 smid() {
  u32 v;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(v));
  return v;
}`},
	{"clock", 1, "", `
// This SM's cycle counter. What is added is 0: it makes use of the high half, since a read of
// the low one alone may become one of a uniform register, which ptxas moves behind what follows.
DEVICE u64 clock() {
  u64 v;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(v) : : "memory");
  return v + (v >> 63);
}`},
	{"globaltimer", 1, "", `
// Nanoseconds, the same clock for all SMs, in coarse steps.
DEVICE u64 globaltimer() {
  u64 v;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v) : : "memory");
  return v;
}`},
	{"policy_evict_first", 1, "", `
// L2 cache policy: these lines leave first.
DEVICE u64 policy_evict_first() {
  u64 v;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(v));
  return v;
}`},
	{"policy_evict_last", 1, "", `
// L2 cache policy: these lines leave last.
DEVICE u64 policy_evict_last() {
  u64 v;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(v));
  return v;
}`},
}
