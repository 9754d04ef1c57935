package emit

// sharedHelpers are what threads do together, or with the machinery beside them:
// barriers, mbarriers, bulk copies, matrices.
var sharedHelpers = [...]fixedHelper{
	{"bar_sync", 1, "", `
// Waits at named barrier id until n threads have come.
template <int id, int n>
DEVICE void bar_sync() {
  asm volatile("bar.sync %0, %1;" : : "n"(id), "n"(n) : "memory");
}`},
	{"bar_arrive", 1, "", `
// Comes to named barrier id of n threads without waiting.
template <int id, int n>
DEVICE void bar_arrive() {
  asm volatile("bar.arrive %0, %1;" : : "n"(id), "n"(n) : "memory");
}`},
	{"fence_mbarrier_init", 1, "", `
// Makes mbarrier initialisations visible to the async proxy and the cluster.
DEVICE void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
}`},
	{"wait_for_prior", 1, "", `
// Waits until the grids launched before this one have ended; what they did is
// visible then.
DEVICE void wait_for_prior() {
  asm volatile("griddepcontrol.wait;" : : : "memory");
}`},
	{"launch_dependents", 1, "", `
// Lets the grid launched behind this one start once every CTA has come here.
DEVICE void launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
}`},
	{"mbar_init", 1, "shared_address", `
// Sets up an mbarrier that count arrivals complete.
DEVICE void mbar_init(u64* bar, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(shared_address(bar)), "r"(count) : "memory");
}`},
	{"mbar_arrive", 1, "shared_address", `
// One arrival; releases what this thread did before, at CTA scope.
DEVICE void mbar_arrive(u64* bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(shared_address(bar)) : "memory");
}`},
	{"mbar_arrive_n", 1, "shared_address", `
// Several arrivals at once.
DEVICE void mbar_arrive_n(u64* bar, u32 arrivals) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;"
               : : "r"(shared_address(bar)), "r"(arrivals) : "memory");
}`},
	{"mbar_arrive_expect", 1, "shared_address", `
// Makes the phase wait for bytes more, then arrives.
DEVICE void mbar_arrive_expect(u64* bar, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               : : "r"(shared_address(bar)), "r"(bytes) : "memory");
}`},
	{"mbar_test", 1, "shared_address", `
// Whether the phase of this parity has completed, as it is now.
DEVICE bool mbar_test(u64* bar, u32 parity) {
  u32 done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(done) : "r"(shared_address(bar)), "r"(parity) : "memory");
  return done != 0;
}`},
	{"mbar_try_wait", 1, "shared_address", `
// Whether the phase of this parity has completed (acquire at CTA scope); waits
// a while, as long as the hardware likes, before it says no.
DEVICE bool mbar_try_wait(u64* bar, u32 parity) {
  u32 done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(done) : "r"(shared_address(bar)), "r"(parity) : "memory");
  return done != 0;
}`},
	{"mbar_wait", 2, "mbar_try_wait", `
// Waits until the phase of this parity has completed.
DEVICE void mbar_wait(u64* bar, u32 parity) {
  while (!mbar_try_wait(bar, parity)) {
  }
}`},
	{"mbar_wait_sleep", 2, "mbar_try_wait", `
// Waits until the phase of this parity has completed, sleeping between polls.
DEVICE void mbar_wait_sleep(u64* bar, u32 parity, u32 ns) {
  while (!mbar_try_wait(bar, parity)) {
    __nanosleep(ns);
  }
}`},
	{"mbar_wait_or", 1, "shared_address", `
// Waits until the phase of this parity has completed, or the flag is set:
// then true. Looks at the flag every 16 polls. One piece of assembly: as a
// C++ loop it takes the compiler more registers.
DEVICE bool mbar_wait_or(u64* bar, u32 parity, const u32* flag) {
  u32 set;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      ".reg .u32 polls;\n"
      "mov.u32 polls, 0;\n"
      "again_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "mov.u32 %0, 0;\n"
      "@p bra done_%=;\n"
      "add.u32 polls, polls, 1;\n"
      "and.b32 %0, polls, 15;\n"
      "setp.ne.u32 p, %0, 0;\n"
      "@p bra again_%=;\n"
      "ld.relaxed.sys.u32 %0, [%3];\n"
      "setp.eq.u32 p, %0, 0;\n"
      "@p bra again_%=;\n"
      "done_%=:\n"
      "}"
      : "=&r"(set) : "r"(shared_address(bar)), "r"(parity), "l"(flag) : "memory");
  return set != 0;
}`},
	{"mbar_wait_or_sleep", 2, "mbar_try_wait", `
// As mbar_wait_or, sleeping between polls.
DEVICE bool mbar_wait_or_sleep(u64* bar, u32 parity, u32 ns, const u32* flag) {
  for (u32 polls = 1; !mbar_try_wait(bar, parity); ++polls) {
    if (polls % 16 == 0 && *(const volatile u32*)flag != 0) {
      return true;
    }
    __nanosleep(ns);
  }
  return false;
}`},
	{"note", 1, "shared_address", `
// The warp's lane 0 notes once, in the warp's 16 bytes of shared memory, which
// wait it gave up and when, and leaves the others time to see the flag as well.
DEVICE void note(u32* notes, u32 site, u32 tag, u32 detail) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      ".reg .u32 at, t;\n"
      "mov.u32 at, %%tid.x;\n"
      "and.b32 t, at, 31;\n"
      "setp.ne.u32 p, t, 0;\n"
      "@p bra noted_%=;\n"
      "shr.u32 at, at, 1;\n"
      "add.u32 at, at, %0;\n"
      "ld.shared.u32 t, [at];\n"
      "setp.ne.u32 p, t, 0;\n"
      "@p bra noted_%=;\n"
      "mov.u32 t, %%globaltimer_lo;\n"
      "st.shared.v4.u32 [at], {%1, %2, %3, t};\n"
      "nanosleep.u32 500000;\n"
      "noted_%=:\n"
      "}"
      : : "r"(shared_address(notes)), "r"(site), "r"(tag), "r"(detail) : "memory");
}`},
	{"mbar_poll_noted", 1, "shared_address", `
// Whether the phase of this parity has completed, or the flag is set, which
// the warp notes once, as note does. Looks at the flag every 16 polls. Without a
// branch: with one the compiler takes the warp to be divergent from here on.
DEVICE bool mbar_poll_noted(u64* bar, u32 parity, u32 polls, const u32* flag, u32* notes, u32 site, u32 tag, u32 detail) {
  u32 done;
  asm volatile(
      "{\n"
      ".reg .pred p, q, first;\n"
      ".reg .u32 t, at, set;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "and.b32 t, %3, 15;\n"
      "setp.eq.u32 q, t, 15;\n"
      "mov.u32 set, 0;\n"
      "@q ld.relaxed.sys.u32 set, [%4];\n"
      "setp.ne.u32 q, set, 0;\n"
      "mov.u32 at, %%tid.x;\n"
      "shr.u32 at, at, 5;\n"
      "mad.lo.u32 at, at, 16, %5;\n"
      "mov.u32 t, 1;\n"
      "@q ld.shared.u32 t, [at];\n"
      "setp.eq.u32 first, t, 0;\n"
      "mov.u32 t, %%globaltimer_lo;\n"
      "@first st.shared.v4.u32 [at], {%6, %7, %8, t};\n"
      "@first nanosleep.u32 500000;\n"
      "or.pred p, p, q;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(done)
      : "r"(shared_address(bar)), "r"(parity), "r"(polls), "l"(flag), "r"(shared_address(notes)), "r"(site), "r"(tag), "r"(detail)
      : "memory");
  return done != 0;
}`},
	{"mbar_wait_noted", 2, "mbar_try_wait", `
// Waits until the phase of this parity has completed, or the flag is set,
// which the warp notes.
DEVICE void mbar_wait_noted(u64* bar, u32 parity, const u32* flag, u32* notes, u32 site, u32 tag, u32 detail) {
  if (!mbar_try_wait(bar, parity)) {
    for (u32 polls = 0; !mbar_poll_noted(bar, parity, polls, flag, notes, site, tag, detail); ++polls) {
    }
  }
}`},
	{"bulk_g2s", 1, "shared_address", `
// Starts a copy of bytes from global to shared memory by the async proxy;
// it completes as bytes on the mbarrier.
DEVICE void bulk_g2s(void* dst, const void* src, u32 bytes, u64* bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               : : "r"(shared_address(dst)), "l"(__cvta_generic_to_global(src)), "r"(bytes), "r"(shared_address(bar))
               : "memory");
}`},
	{"bulk_g2s_hint", 1, "shared_address", `
// As bulk_g2s, with an L2 cache policy.
DEVICE void bulk_g2s_hint(void* dst, const void* src, u32 bytes, u64* bar, u64 policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
      : : "r"(shared_address(dst)), "l"(__cvta_generic_to_global(src)), "r"(bytes), "r"(shared_address(bar)), "l"(policy)
      : "memory");
}`},
	{"copy_async", 1, "shared_address", `
// Starts a copy of 16 bytes from global to shared memory, past L1.
DEVICE void copy_async(void* dst, const void* src) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               : : "r"(shared_address(dst)), "l"(__cvta_generic_to_global(src)) : "memory");
}`},
	{"copy_commit", 1, "", `
// Makes a group of this thread's copies since the last one.
DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" : : : "memory"); }`},
	{"copy_wait", 1, "", `
// Waits until at most pending of this thread's groups are under way.
template <int pending>
DEVICE void copy_wait() { asm volatile("cp.async.wait_group %0;" : : "n"(pending) : "memory"); }`},
	{"ldmatrix", 1, "shared_address", `
// Four 8x8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
DEVICE uint4 ldmatrix(const void* row) {
  uint4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(shared_address(row)) : "memory");
  return v;
}`},
	{"ldmatrix_trans", 1, "shared_address", `
// As ldmatrix, each matrix transposed.
DEVICE uint4 ldmatrix_trans(const void* row) {
  uint4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(shared_address(row)) : "memory");
  return v;
}`},
	{"mma_m16n8k16_f16", 1, "", `
// As mma_m16n8k16, A and B in binary16.
DEVICE float4 mma_m16n8k16_f16(f16x2 a0, f16x2 a1, f16x2 a2, f16x2 a3, f16x2 b0, f16x2 b1,
                               float c0, float c1, float c2, float c3) {
  float4 d;
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%10, %11, %12, %13};"
               : "=f"(d.x), "=f"(d.y), "=f"(d.z), "=f"(d.w)
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(c0), "f"(c1), "f"(c2), "f"(c3));
  return d;
}`},
	{"mma_m16n8k16", 1, "", `
// D = A * B + C on the tensor core: A 16x16 and B 16x8 in bfloat16, C and D in float.
DEVICE float4 mma_m16n8k16(bf16x2 a0, bf16x2 a1, bf16x2 a2, bf16x2 a3, bf16x2 b0, bf16x2 b1,
                           float c0, float c1, float c2, float c3) {
  float4 d;
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%10, %11, %12, %13};"
               : "=f"(d.x), "=f"(d.y), "=f"(d.z), "=f"(d.w)
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(c0), "f"(c1), "f"(c2), "f"(c3));
  return d;
}`},
	{"mma_m16n8k32_u8", 1, "", `
// D = A * B + C on the tensor core: A 16x32 of bytes without a sign, B 32x8 of bytes
// with one; C and D wrap.
DEVICE int4 mma_m16n8k32_u8(u32 a0, u32 a1, u32 a2, u32 a3, i32 b0, i32 b1,
                          i32 c0, i32 c1, i32 c2, i32 c3) {
  int4 d;
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%10, %11, %12, %13};"
               : "=r"(d.x), "=r"(d.y), "=r"(d.z), "=r"(d.w)
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(c0), "r"(c1), "r"(c2), "r"(c3));
  return d;
}`},
	{"mma_m16n8k32_s8", 1, "", `
// D = A * B + C on the tensor core: A 16x32 and B 32x8 of bytes with a sign;
// C and D wrap.
DEVICE int4 mma_m16n8k32_s8(i32 a0, i32 a1, i32 a2, i32 a3, i32 b0, i32 b1,
                          i32 c0, i32 c1, i32 c2, i32 c3) {
  int4 d;
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%10, %11, %12, %13};"
               : "=r"(d.x), "=r"(d.y), "=r"(d.z), "=r"(d.w)
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(c0), "r"(c1), "r"(c2), "r"(c3));
  return d;
}`},
}
