package ir

import "fmt"

// Op is a device operation; Ops describes each.
type Op uint8

// The operations. Each constant's comment is its printed form.
const (
	OpInvalid Op = iota

	// Arithmetic on one thread's values.
	OpAdd   // v2:f32 = add v0, v1          i32 u32 u64 f32; integers wrap
	OpSub   // v2:f32 = sub v0, v1
	OpMul   // v2:f32 = mul v0, v1          integers: low half
	OpMulHi // v2:u32 = mulhi v0, v1        u32: high half
	OpDiv   // v2:u32 = div v0, v1          integers: truncated, by 0 is an error; f32: IEEE
	OpRem   // v2:u32 = rem v0, v1          integers: sign of the dividend, by 0 is an error
	OpMin   // v2:f32 = min v0, v1          f32: the other operand if one is NaN
	OpMax   // v2:f32 = max v0, v1
	OpNeg   // v1:f32 = neg v0              i32 f32
	OpAbs   // v1:f32 = abs v0              i32 f32
	OpFma   // v3:f32 = fma v0, v1, v2      v0·v1 + v2, one rounding
	OpAnd   // v2:u32 = and v0, v1          i32 u32 u64 pred
	OpOr    // v2:u32 = or v0, v1
	OpXor   // v2:u32 = xor v0, v1
	OpNot   // v1:u32 = not v0
	OpShl   // v2:u32 = shl v0, v1          amount u32; 0 if it is the width or more
	OpShr   // v2:u32 = shr v0, v1          amount u32; i32 keeps the sign
	OpExp2  // v1:f32 = exp2 v0             approximate, −inf → 0
	OpLog2  // v1:f32 = log2 v0             approximate, 0 → −inf, negative → NaN
	OpRcp   // v1:f32 = rcp v0              approximate, 0 → inf
	OpRsqrt // v1:f32 = rsqrt v0            approximate, 0 → inf
	OpSqrt  // v1:f32 = sqrt v0             IEEE
	OpSin   // v1:f32 = sin v0              approximate, argument in [−π, π]
	OpCos   // v1:f32 = cos v0              approximate, argument in [−π, π]
	OpTanh  // v1:f32 = tanh v0             approximate
	OpRint  // v1:f32 = rint v0             to nearest even
	OpFloor // v1:f32 = floor v0

	// Comparisons and choice.
	OpEq     // v2:pred = eq v0, v1         NaN compares unequal
	OpNe     // v2:pred = ne v0, v1
	OpLt     // v2:pred = lt v0, v1
	OpLe     // v2:pred = le v0, v1
	OpGt     // v2:pred = gt v0, v1
	OpGe     // v2:pred = ge v0, v1
	OpSelect // v3:f32 = select v0, v1, v2  v0 ? v1 : v2

	// Conversions.
	OpCvt    // v1:f32 = cvt v0             nearest even to floats, toward zero to integers; a pair element by element
	OpBits   // v1:u32 = bits v0            the same bits as another type of the same size
	OpPack   // v2:bf16x2 = pack v0, v1     two f32 rounded to nearest even, v0 in the low half; to e4m3x2 at most ±448
	OpUnpack // v1:f32, v2:f32 = unpack v0  low half, high half; of u32 as u16
	OpSplit  // v1:u32, … = split v0        b128 → four u32, lowest first
	OpJoin   // v4:b128 = join v0, v1, v2, v3
	OpPrmt   // v2:u32 = prmt v0, v1 sel=0x5410   PTX prmt.b32, default mode
	OpPrmtBy // v3:u32 = prmt.by v0, v1, v2   the same, v2 being the selector
	OpLop3   // v3:u32 = lop3 v0, v1, v2 lut=0x28   PTX lop3.b32: bit 4a + 2b + c of lut for bits a, b and c
	OpDot2   // v3:u32 = dp2a v0, v1, v2     PTX dp2a.lo.u32.s32: halves of v0 times signed bytes of v1, + v2
	OpOpaque // v1:u32 = opaque v0          v0, of which the compiler knows nothing

	// Registers of the machine, parameters, variables.
	OpLane        // v0:u32 = lane            0 … 31
	OpWarp        // v0:u32 = warp            index in the CTA
	OpTid         // v0:u32 = tid             32·warp + lane
	OpCTA         // v0:u32 = cta             index in the grid
	OpGrid        // v0:u32 = grid            CTAs in the grid
	OpClusterRank // v0:u32 = cluster.rank    index of the CTA in its cluster
	OpSMID        // v0:u32 = smid            the SM it runs on; only for reports
	OpClock       // v0:u64 = clock           this SM's cycles
	OpGlobalTimer // v0:u64 = globaltimer     nanoseconds, coarse
	OpParam       // v0:u32 = param epoch     a scalar of the params block
	OpVar         // %acc0:f32 = var v0       declares a Var with its first value
	OpGet         // v1:f32 = get %acc0
	OpSet         // set %acc0, v1

	// Memory.
	OpLd       // v1:f32 = ld.f32 @x[v0]      lanes 1, 2, 4; order, scope, hint
	OpSt       // st.f32 @x[v0], v1
	OpAtomAdd  // v2:u32 = atom.add.u32 @x[v0], v1   returns the old value; u32 i32 u64
	OpAtomMax  // v2:u32 = atom.max.u32 @x[v0], v1   u32 i32 u64
	OpAtomMin  // v2:u32 = atom.min.u32 @x[v0], v1   u32 i32 u64
	OpAtomOr   // v2:u32 = atom.or.u32 @x[v0], v1    u32 u64
	OpAtomExch // v2:u32 = atom.exch.u32 @x[v0], v1  u32 u64
	OpAtomCAS  // v3:u32 = atom.cas.u32 @x[v0], v1, v2   compare with v1, store v2; u32 u64
	OpRedAdd   // red.add.u32 @x[v0], v1      as atom.add without a result; f32, too
	OpLdMatrix // v1:bf16x2, … = ldmatrix @x[v0]   four 8×8 b16 matrices; lane i gives row i%8 of matrix i/8
	OpBulkG2S  // bulk.g2s @dst[v0], @src[v1], @bar[v2], v3   v3 bytes; completes on the mbarrier
	// tensor.g2s @dst[v0], @map[0], @bar[v1], v2, v3, v4: the box of a tensor map at three coordinates; with
	// mask=3 into CTAs 0 and 1 of the cluster, at the same places, each completing on its own mbarrier
	OpTensorG2S
	// cp.async @dst[v0], @src[v1]: 16 bytes a lane, in the generic proxy, at some time before the cp.async.wait that
	// covers its group: until then nobody may touch the place, nor write what is copied
	OpCopyAsync

	// Synchronisation.
	OpBarCTA       // bar.cta                   all threads of the CTA
	OpBarCluster   // bar.cluster               all threads of the cluster; release and acquire at its scope
	OpBarSync      // bar.sync id=1 n=256       n threads, this one waits
	OpBarArrive    // bar.arrive id=1 n=256     n threads, this one does not wait
	OpSyncWarp     // syncwarp                  all 32 lanes
	OpFence        // fence.acq_rel.gpu         orders strong operations around it
	OpFenceProxy   // fence.proxy.async         generic proxy ↔ async proxy; Imm says which space
	OpCopyCommit   // cp.async.commit           the lane's cp.asyncs since the last one are a group
	OpCopyWait     // cp.async.wait 1           until at most 1 group of the lane's is under way; knows no other lane's
	OpFenceMBar    // fence.mbarrier_init       makes mbarrier.init visible to the async proxy and the cluster
	OpMBarInit     // mbar.init @bar[v0], v1    v1 arrivals a phase
	OpMBarArrive   // mbar.arrive @bar[v0]      release, cta
	OpMBarArriveN  // mbar.arrive.n @bar[v0], v1   v1 arrivals at once
	OpMBarArriveAt // mbar.arrive.at @bar[v0], v1   at the mbarrier of CTA v1 of the cluster
	OpMBarExpect   // mbar.expect @bar[v0], v1  arrive and expect v1 more bytes
	OpMBarTest     // v2:pred = mbar.test @bar[v0], v1   whether the phase of parity v1 has completed; orders nothing
	OpWaitMBar     // wait.mbar @bar[v0], v1    until the phase of parity v1 has completed; acquire, cta
	OpWaitMem      // wait.ge.acquire.gpu @x[v0], v1   until the word meets the condition with v1
	// v2:b128 = wait.tag.relaxed.gpu @x[v3], v0, v1   v1, or if its last word is not v0, the 128 bits there once theirs is
	OpWaitTag
	OpNanosleep // nanosleep v0              at most about v0 ns
	// griddep.wait              until the grids launched before this one have ended; what they did is visible then
	OpGridWait
	OpGridLaunch // griddep.launch            the grid launched behind may start once every CTA has come here or ended

	// Warp collectives: all 32 lanes must be active.
	OpShflIdx  // v2:f32 = shfl.idx v0, v1     value of lane v1 % 32
	OpShflXor  // v2:f32 = shfl.xor v0, v1     value of lane ^ v1
	OpShflUp   // v2:f32 = shfl.up v0, v1      value of lane − v1, own if there is none
	OpShflDown // v2:f32 = shfl.down v0, v1   value of lane + v1, own if there is none
	OpVoteAll  // v1:pred = vote.all v0
	OpVoteAny  // v1:pred = vote.any v0
	OpBallot   // v1:u32 = ballot v0           bit l is lane l's predicate
	OpReduxMax // v1:u32 = redux.max v0        the largest of the lanes' values; i32 u32
	OpReduxAdd // v1:i32 = redux.add v0        their sum, wrapping; i32 u32
	OpMMA      // v10:f32, … = mma v0 … v9     m16n8k16: A 4×bf16x2, B 2×bf16x2, C 4×f32 → D 4×f32; or A and B f16x2
	// v10:i32, … = imma v0 … v9    m16n8k32 of bytes: A 4×u32 (u8) or 4×i32 (s8), B 2×i32 (s8), C 4×i32 → D 4×i32; wraps
	OpIMMA

	OpElect // v0:pred = elect              true in one lane, always the same one

	// Warpgroups: four warps from a multiple of 4 on, all of which must come, with all their lanes. The products
	// are asynchronous: from wgmma to the wgmma.wait that covers it the sums may not be touched, nor the memory
	// written that it reads.
	// wgmma.bf16x2 %acc0 … %acc7, @a[v0], @b[v1]   m64nNk16: adds A·B to N/2 f32 Vars a thread; A from memory, or the
	// first 4 Vars; wgmma.e4m3x2 is m64nNk32, both operands in memory
	OpWGMMA
	OpWGMMAFence  // wgmma.fence               orders the warp's accesses to registers before its wgmmas behind it
	OpWGMMACommit // wgmma.commit              the wgmmas since the last one are a group
	OpWGMMAWait   // wgmma.wait 1              until at most 1 group of the warp's is under way
	// setmaxreg.inc 224         registers a thread of the warpgroup has from here on; inc waits until there are as many
	OpSetMaxReg

	// What the executor checks.
	OpUniform // v1:u32 = uniform.warp v0     asserts that v0 is the same over the scope
	OpAssert  // assert v0 "text"             the executor stops when v0 is false; emits nothing

	numOps
)

// Waits reports whether the op is a wait for memory: what is polled is its first
// address, the second a flag that ends it, the third where that is noted.
func (o Op) Waits() bool { return o == OpWaitMBar || o == OpWaitMem || o == OpWaitTag }

// Effect is what an op does besides computing its results.
type Effect uint8

// The effects.
const (
	Pure    Effect = iota // results depend on the arguments only
	Reads                 // depends on memory, a Var, or the machine's state
	Writes                // changes memory or a Var, or reports
	Synchro               // orders memory or waits
)

var effectNames = [...]string{"pure", "reads", "writes", "synchronises"}

// String is the effect's name.
func (e Effect) String() string { return effectNames[e] }

// OpInfo is one row of the op table.
type OpInfo struct {
	Name   string
	Effect Effect
	Scope  Scope // threads that must take part: Thread, Warp or CTA
	// Sig gives the result types, or says what is wrong with T, Args, Mem and Attr.
	Sig func(in *Instr) ([]Type, error)
}

// String is the op's name in printed IR.
func (o Op) String() string {
	if o >= numOps || ops[o].Name == "" {
		return fmt.Sprintf("op(%d)", uint8(o))
	}
	return ops[o].Name
}

// Info is the op's row of the table; it panics for an op that has none.
func (o Op) Info() OpInfo {
	if o >= numOps || ops[o].Sig == nil {
		panic(fmt.Sprintf("BUG: op %d has no row", uint8(o)))
	}
	return ops[o]
}

// AllOps lists every op in order.
func AllOps() []Op {
	out := make([]Op, 0, numOps-1)
	for o := OpInvalid + 1; o < numOps; o++ {
		out = append(out, o)
	}
	return out
}
