package dsl

import (
	"slices"

	"github.com/mkgen/mkgen/dsl/ir"
)

func shfl[T Word](op ir.Op, v Val[T], arg Val[U32]) Val[T] {
	var t T
	return op1[T](kern(v.k, arg.k), &ir.Instr{Op: op, T: t.irType(), Args: []*ir.Value{v.v, arg.v}})
}

func shflC[T Word](op ir.Op, v Val[T], n int) Val[T] {
	k := kern(v.k)
	if n < 0 || n >= WarpSize {
		k.errorf("%s: moves by %d lanes, want 0 to 31", op, n)
		return v
	}
	return shfl(op, v, k.U32(n))
}

// Shfl is v of lane (lane mod 32). All 32 lanes must be active, as in every
// function of this file.
func Shfl[T Word](v Val[T], lane Val[U32]) Val[T] { return shfl(ir.OpShflIdx, v, lane) }

// ShflXor is v of the lane whose index is this one's xor mask (0 to 31).
func ShflXor[T Word](v Val[T], mask int) Val[T] { return shflC(ir.OpShflXor, v, mask) }

// ShflUp is v of the lane n (0 to 31) below; lanes under n keep their own.
func ShflUp[T Word](v Val[T], n int) Val[T] { return shflC(ir.OpShflUp, v, n) }

// ShflDown is v of the lane n (0 to 31) above; the last n lanes keep their own.
func ShflDown[T Word](v Val[T], n int) Val[T] { return shflC(ir.OpShflDown, v, n) }

// All holds in every lane when p holds in every lane.
func All(p Pred) Pred {
	return opPred(kern(p.k), &ir.Instr{Op: ir.OpVoteAll, T: ir.Pred, Args: []*ir.Value{p.v}})
}

// Any holds in every lane when p holds in at least one.
func Any(p Pred) Pred {
	return opPred(kern(p.k), &ir.Instr{Op: ir.OpVoteAny, T: ir.Pred, Args: []*ir.Value{p.v}})
}

// Ballot has bit l set when p holds in lane l.
func Ballot(p Pred) Val[U32] {
	return op1[U32](kern(p.k), &ir.Instr{Op: ir.OpBallot, T: ir.U32, Args: []*ir.Value{p.v}})
}

// WarpSum is the sum of v over the lanes, the same bits in every lane.
func WarpSum[T Word](v Val[T]) Val[T] { return Butterfly(v, WarpSize, Val[T].Add) }

// WarpMax is the maximum of v over the lanes.
func WarpMax[T Word](v Val[T]) Val[T] { return Butterfly(v, WarpSize, Val[T].Max) }

// Butterfly combines v over groups of n lanes (n a power of two up to 32) with
// a commutative op; every lane of a group gets the same result.
func Butterfly[T Word](v Val[T], n int, combine func(a, b Val[T]) Val[T]) Val[T] {
	k := kern(v.k)
	if !powerOfTwo(n) || n > WarpSize {
		k.errorf("butterfly over %d lanes, want a power of two up to 32", n)
		return v
	}
	for d := n / 2; d > 0; d /= 2 {
		v = combine(v, ShflXor(v, d))
	}
	return v
}

func powerOfTwo(n int) bool { return n > 0 && n&(n-1) == 0 }

// ReduxMax is the largest of the lanes' values, in one instruction.
func ReduxMax[T IntWord](v Val[T]) Val[T] { return redux(ir.OpReduxMax, v) }

// ReduxAdd is the sum of the lanes' values, in one instruction; it wraps.
func ReduxAdd[T IntWord](v Val[T]) Val[T] { return redux(ir.OpReduxAdd, v) }

func redux[T IntWord](op ir.Op, v Val[T]) Val[T] {
	return op1[T](kern(v.k), &ir.Instr{Op: op, T: typeOf[T](), Args: []*ir.Value{v.v}})
}

// CTASum adds v over the warps first ≤ w < first+warps in a fixed order and
// returns the sum in each of their threads. scratch holds one f32 a warp;
// barrier makes those warps wait for each other. The caller must not touch
// scratch again before another barrier.
func CTASum(v Val[F32], scratch Buf[F32], first, warps int, barrier func()) Val[F32] {
	k := kern(v.k)
	sum := WarpSum(v)
	k.If(k.Lane().EqC(0), func() { scratch.Store(k.Warp().SubC(first), sum) })
	barrier()
	return SumOf(scratch, warps)
}

// SumOf adds the first n elements of a buffer, in their order.
func SumOf(v Buf[F32], n int) Val[F32] {
	total := v.Load(At(0))
	for i := 1; i < n; i++ {
		total = total.Add(v.Load(At(i)))
	}
	return total
}

// MMA is D = A·B + C of the tensor core's m16n8k16 shape, A and B both bf16 or
// both f16, C and D f32. Fragments as in PTX: with g = lane/4 and t = lane%4, A holds rows g,
// g+8 (registers 0, 1 and 2, 3 alternate rows) and columns 2t, 2t+1 (registers
// 0, 1) and 2t+8, 2t+9 (2, 3); B rows 2t, 2t+1 and 2t+8, 2t+9 of column g; C
// and D columns 2t, 2t+1 of rows g (0, 1) and g+8 (2, 3).
func MMA[P Pair](a [4]Val[P], b [2]Val[P], c [4]Val[F32]) [4]Val[F32] {
	in := &ir.Instr{Op: ir.OpMMA, T: ir.F32, Args: slices.Concat(ofValues(a[:]), ofValues(b[:]), ofValues(c[:]))}
	return [4]Val[F32](vals[F32](kern(a[0].k), in, 4))
}

// MMABytes is D = A·B + C of the tensor core's m16n8k32 shape for integers of 8 bits, four to a
// word, the lowest byte first; sums are exact modulo 2³². A's bytes have no sign in words of U32,
// and one in words of I32; B's have one. Fragments as in PTX: with g = lane/4 and t = lane%4, A
// holds rows g, g+8 (registers 0, 1 and 2, 3 alternate rows) and columns 4t … 4t+3 (registers 0,
// 1) and 16 more (2, 3); B rows 4t … 4t+3 and 16 more of column g; C and D columns 2t, 2t+1 of
// rows g (0, 1) and g+8 (2, 3).
func MMABytes[A IntWord](a [4]Val[A], b [2]Val[I32], c [4]Val[I32]) [4]Val[I32] {
	in := &ir.Instr{Op: ir.OpIMMA, T: ir.I32, Args: slices.Concat(ofValues(a[:]), ofValues(b[:]), ofValues(c[:]))}
	return [4]Val[I32](vals[I32](kern(a[0].k), in, 4))
}

func ofValues[T Elem](vs []Val[T]) (all []*ir.Value) {
	for _, v := range vs {
		all = append(all, v.v)
	}
	return all
}
