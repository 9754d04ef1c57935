package dsl

import "github.com/mkgen/mkgen/dsl/ir"

// The element types. They are phantom: no Go value of them is ever used.
type (
	// F32 is IEEE binary32.
	F32 struct{}
	// BF16 is bfloat16: storage only; convert with Cast to compute.
	BF16 struct{}
	// F16 is IEEE binary16: storage only; convert with Cast to compute.
	F16 struct{}
	// I32 is a signed 32-bit integer.
	I32 struct{}
	// U16 is a raw view of two bytes.
	U16 struct{}
	// U32 is an unsigned 32-bit integer.
	U32 struct{}
	// U64 is an unsigned 64-bit integer.
	U64 struct{}
	// BF16x2 is two bf16 in 32 bits, element 0 in the low half.
	BF16x2 struct{}
	// F16x2 is two f16 in 32 bits, element 0 in the low half.
	F16x2 struct{}
	// E4M3x2 is two float8 e4m3 in 16 bits, element 0 in the low byte: storage
	// only; Pack makes it, Cast to F16x2 reads it.
	E4M3x2 struct{}
	// B128 is 128 untyped bits, moved by one scalar access.
	B128 struct{}
)

func (F32) irType() ir.Type    { return ir.F32 }
func (BF16) irType() ir.Type   { return ir.BF16 }
func (F16) irType() ir.Type    { return ir.F16 }
func (I32) irType() ir.Type    { return ir.I32 }
func (U16) irType() ir.Type    { return ir.U16 }
func (U32) irType() ir.Type    { return ir.U32 }
func (U64) irType() ir.Type    { return ir.U64 }
func (BF16x2) irType() ir.Type { return ir.BF16x2 }
func (F16x2) irType() ir.Type  { return ir.F16x2 }
func (E4M3x2) irType() ir.Type { return ir.E4M3x2 }
func (B128) irType() ir.Type   { return ir.B128 }

// Elem is any element type.
type Elem interface {
	F32 | BF16 | F16 | I32 | U16 | U32 | U64 | BF16x2 | F16x2 | E4M3x2 | B128
	irType() ir.Type
}

// Num is a type with arithmetic.
type Num interface {
	F32 | I32 | U32 | U64
	irType() ir.Type
}

// Int is an integer type with arithmetic.
type Int interface {
	I32 | U32 | U64
	irType() ir.Type
}

// Word is a type of one 32-bit register, which shuffles can move.
type Word interface {
	F32 | I32 | U32 | BF16x2 | F16x2
	irType() ir.Type
}

// IntWord is an integer of 32 bits.
type IntWord interface {
	U32 | I32
	irType() ir.Type
}

// Pair is a packed pair of 16-bit floats.
type Pair interface {
	BF16x2 | F16x2
	irType() ir.Type
}

// Packed is what two floats pack into.
type Packed interface {
	BF16x2 | F16x2 | E4M3x2
	irType() ir.Type
}

func typeOf[T Elem]() ir.Type { var t T; return t.irType() }

type noCompare [0]func() // makes == a compile error

// Val is a device value of type T, computed once.
type Val[T Elem] struct {
	_ noCompare
	k *Kernel
	v *ir.Value
}

// Pred is a device predicate. It is not a bool: Go's if refuses it.
type Pred struct {
	_ noCompare
	k *Kernel
	v *ir.Value
}

// Index is what can index a buffer: a Val of an integer type, or At(n).
type Index interface{ index() *ir.Value }

func (a Val[T]) index() *ir.Value { return a.v }

type at int

func (i at) index() *ir.Value {
	switch {
	case i < 0 && int64(i) == int64(int32(i)):
		return ir.ConstInt(ir.I32, int64(i)) // for the refusal to show it as written
	case int64(i) >= 1<<32 || i < 0:
		return ir.ConstInt(ir.U64, int64(i))
	}
	return ir.ConstInt(ir.U32, int64(i))
}

// At is a constant index.
func At(i int) Index { return at(i) }

// Given is whether a is a value: the zero Val of a field that was left out is not.
func (a Val[T]) Given() bool { return a.v != nil }

// Named gives the value a name for readers of the IR and of the emitted code
// and returns it.
func (a Val[T]) Named(name string) Val[T] {
	if a.v != nil && !a.v.Const && a.v.Hint == "" {
		a.v.Hint = name
	}
	return a
}

// Named gives the predicate a name for readers and returns it.
func (p Pred) Named(name string) Pred {
	if p.v != nil && !p.v.Const && p.v.Hint == "" {
		p.v.Hint = name
	}
	return p
}

// Lit is a constant: an integer, the raw bits of a 16-bit or packed type, or a
// whole number as f32 (k.F32 makes others). x must fit T; a negative x of an
// unsigned type means its two's complement, so that AddC(-1) subtracts.
func Lit[T Elem](k *Kernel, x int64) Val[T] {
	t := typeOf[T]()
	lo, hi := int64(-1<<31), int64(1<<32-1)
	switch t {
	case ir.I32:
		hi = 1<<31 - 1
	case ir.F32:
		lo, hi = -1<<24, 1<<24 // every whole number up to there is one exactly
	case ir.U16, ir.BF16, ir.F16, ir.E4M3x2:
		lo, hi = 0, 1<<16-1
	case ir.U64, ir.B128:
		return lit[T](k, x)
	}
	k.Require(lo <= x && x <= hi, "constant %d does not fit %s", x, t)
	return lit[T](k, x)
}

// lit is Lit that cuts off what does not fit.
func lit[T Elem](k *Kernel, x int64) Val[T] {
	if typeOf[T]() == ir.F32 {
		return Val[T]{k: k, v: ir.ConstF32(float64(x))}
	}
	return Val[T]{k: k, v: ir.ConstInt(typeOf[T](), x)}
}

// F32 is an f32 constant, x rounded to nearest even.
func (k *Kernel) F32(x float64) Val[F32] { return Val[F32]{k: k, v: ir.ConstF32(x)} }

// U32 is a u32 constant; x must fit.
func (k *Kernel) U32(x int) Val[U32] {
	k.Require(x >= 0 && int64(x) < 1<<32, "constant %d does not fit u32", x)
	return lit[U32](k, int64(x))
}

// I32 is an i32 constant; x must fit.
func (k *Kernel) I32(x int) Val[I32] {
	k.Require(int64(x) == int64(int32(x)), "constant %d does not fit i32", x)
	return lit[I32](k, int64(x))
}

// U64 is a u64 constant.
func (k *Kernel) U64(x uint64) Val[U64] { return Lit[U64](k, int64(x)) }

// Bool is a constant predicate.
func (k *Kernel) Bool(b bool) Pred {
	v := ir.ConstInt(ir.Pred, 0)
	if b {
		v.Bits = 1
	}
	return Pred{k: k, v: v}
}

// op1 appends an op with one result of type T.
func op1[T Elem](k *Kernel, in *ir.Instr) Val[T] {
	if out := k.emit(in); out != nil && len(out.Res) == 1 {
		return Val[T]{k: k, v: out.Res[0]}
	}
	return Lit[T](k, 0)
}

func opPred(k *Kernel, in *ir.Instr) Pred {
	if out := k.emit(in); out != nil && len(out.Res) == 1 {
		return Pred{k: k, v: out.Res[0]}
	}
	return k.Bool(false)
}

func vals[T Elem](k *Kernel, in *ir.Instr, n int) []Val[T] {
	vs := make([]Val[T], n)
	out := k.emit(in)
	for i := range vs {
		if out == nil || i >= len(out.Res) {
			vs[i] = Lit[T](k, 0)
			continue
		}
		vs[i] = Val[T]{k: k, v: out.Res[i]}
	}
	return vs
}
