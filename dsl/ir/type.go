package ir

import "fmt"

// Type is the type of a value or of a buffer's elements.
type Type uint8

// The types. Sizes in bytes are given by Size.
const (
	Invalid Type = iota
	Pred         // predicate: true or false; has no size in memory
	U16          // 16-bit unsigned; only a raw view of 2-byte elements
	I32          // 32-bit signed
	U32          // 32-bit unsigned
	U64          // 64-bit unsigned
	F32          // IEEE binary32
	BF16         // bfloat16
	F16          // IEEE binary16
	BF16x2       // two bf16 packed in 32 bits, element 0 in the low half
	F16x2        // two f16 packed in 32 bits, element 0 in the low half
	E4M3x2       // two float8 e4m3 packed in 16 bits, element 0 in the low byte; only stored and converted
	B128         // 128 untyped bits; its memory accesses are one scalar access
	MBar         // a 64-bit mbarrier object; only in shared memory, only named by mbarrier ops
	numTypes
)

var typeNames = [numTypes]string{"invalid", "pred", "u16", "i32", "u32", "u64", "f32", "bf16", "f16", "bf16x2", "f16x2",
	"e4m3x2", "b128", "mbar"}

var typeSizes = [numTypes]int{0, 0, 2, 4, 4, 8, 4, 2, 2, 4, 4, 2, 16, 8}

// String is the type's name in printed IR.
func (t Type) String() string {
	if t >= numTypes {
		return fmt.Sprintf("type(%d)", uint8(t))
	}
	return typeNames[t]
}

// Size is the number of bytes an element takes in memory; 0 for Pred and Invalid.
func (t Type) Size() int {
	if t >= numTypes {
		panic(fmt.Sprintf("BUG: size of type %d", uint8(t)))
	}
	return typeSizes[t]
}

// IsInt reports whether t is an integer type with arithmetic (i32, u32, u64).
func (t Type) IsInt() bool { return t == I32 || t == U32 || t == U64 }

// IsFloat reports whether t is a scalar floating-point type (f32, bf16, f16).
func (t Type) IsFloat() bool { return t == F32 || t == BF16 || t == F16 }

// Is32 reports whether t occupies one 32-bit register that shuffles can move.
func (t Type) Is32() bool {
	return t == I32 || t == U32 || t == F32 || t == BF16x2 || t == F16x2
}

// Types lists every valid type in order.
func Types() []Type {
	ts := make([]Type, 0, numTypes-1)
	for t := Pred; t < numTypes; t++ {
		ts = append(ts, t)
	}
	return ts
}

// Space is the address space of a buffer.
type Space uint8

// The address spaces.
const (
	Global Space = iota // device memory, bound by the host through the params block
	Shared              // one CTA's shared memory
)

// String is "global" or "shared".
func (s Space) String() string {
	if s == Shared {
		return "shared"
	}
	return "global"
}

// Scope is a set of threads: those that must take part in an op, those a
// memory operation synchronises with, or those over which a value is uniform.
// Wider scopes compare greater.
type Scope uint8

// The scopes, narrowest first.
const (
	Thread Scope = iota
	Warp
	CTA
	Cluster
	GPU // the grid; the device for memory operations
	Sys // host and all devices
)

var scopeNames = [...]string{"thread", "warp", "cta", "cluster", "gpu", "sys"}

// String is the scope's PTX name ("cta", "gpu", …).
func (s Scope) String() string { return scopeNames[s] }

// Order is the memory order of a load, store, atomic, fence or wait.
type Order uint8

// The memory orders, as in the PTX memory consistency model. Weak accesses
// may not race; the others are strong at their scope.
const (
	Weak Order = iota
	Relaxed
	Acquire
	Release
	AcqRel
	SeqCst // fences only
	Volatile
)

var orderNames = [...]string{"weak", "relaxed", "acquire", "release", "acq_rel", "sc", "volatile"}

// String is the order's PTX name.
func (o Order) String() string { return orderNames[o] }

// Hint is an L2 or L1 cache hint. It never changes what an op means.
type Hint uint8

// The cache hints.
const (
	NoHint      Hint = iota
	EvictFirst       // L2::evict_first: streamed once
	EvictLast        // L2::evict_last: wanted again soon
	NoAllocate       // L1::no_allocate
	NonCoherent      // ld.global.nc: the launch never writes this memory
)

var hintNames = [...]string{"", "evict_first", "evict_last", "no_allocate", "nc"}

// String is the hint's name, empty for NoHint.
func (h Hint) String() string { return hintNames[h] }

// Cond is the condition of a structured wait on a 32-bit word in memory.
type Cond uint8

// The wait conditions. CondGE compares by wrap-safe difference: it holds when
// int32(word − want) ≥ 0, so counters may run past 2³².
const (
	CondEQ Cond = iota
	CondNE
	CondGE
)

var condNames = [...]string{"eq", "ne", "ge"}

// String is "eq", "ne" or "ge".
func (c Cond) String() string { return condNames[c] }
