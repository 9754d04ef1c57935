package ir

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Pos says where in Go source a node was made: the line of the template that
// asked for it, and that template's caller. Both are "file.go:line", file
// without directories but for its package folder; empty when unknown.
type Pos struct {
	Line   string
	Caller string
}

// String is "product/gemv.go:40 (called from megakernel/build.go:12)".
func (p Pos) String() string {
	switch {
	case p.Line == "":
		return "unknown position"
	case p.Caller == "":
		return p.Line
	}
	return p.Line + " (called from " + p.Caller + ")"
}

// Value is something computed once: a constant, an instruction's result, or a
// loop's index. Every value of a thread is that thread's own.
type Value struct {
	ID    int // unique in its kernel, in order of definition; constants share -1
	Type  Type
	Hint  string // a name for readers, may be empty
	Const bool   // Bits holds the value, Def is nil
	Bits  uint64 // constants: the bit pattern, sign-extended for i32; 0 or 1 for pred
	Def   *Instr // the defining instruction; nil for constants and loop indices
	Loop  *For   // the loop whose index this is, or nil
}

// String is the printed form: "v7", or the constant's text.
//
// Example printed form: 42, 1.5, 2.0, true, v12
func (v *Value) String() string {
	if v == nil {
		return "<nil>"
	}
	if !v.Const {
		return fmt.Sprintf("v%d", v.ID)
	}
	switch v.Type {
	case Pred:
		return fmt.Sprint(v.Bits != 0)
	case F32:
		return f32Text(math.Float32frombits(uint32(v.Bits)))
	case I32:
		return fmt.Sprint(int32(v.Bits))
	}
	return fmt.Sprint(v.Bits)
}

// f32Text is x in the fewest digits that give it back, with a point, an
// exponent or a letter to tell it from an integer.
func f32Text(x float32) string {
	s := strconv.FormatFloat(float64(x), 'g', -1, 32)
	if strings.ContainsAny(s, ".eIN") {
		return s
	}
	return s + ".0"
}

// ConstInt makes an integer or raw-bits constant of type t. Bits beyond the
// type's width are cut off; i32 is kept sign-extended.
func ConstInt(t Type, x int64) *Value {
	bits := uint64(x)
	switch t {
	case U32, BF16x2, F16x2:
		bits = uint64(uint32(x))
	case U16, BF16, F16, E4M3x2:
		bits = uint64(uint16(x))
	case I32:
		bits = uint64(int64(int32(x)))
	case Pred:
		bits &= 1
	case F32:
		panic("BUG: ConstInt of f32")
	}
	return &Value{ID: -1, Type: t, Const: true, Bits: bits}
}

// ConstF32 makes an f32 constant, rounding x to nearest even.
func ConstF32(x float64) *Value {
	return &Value{ID: -1, Type: F32, Const: true, Bits: uint64(math.Float32bits(float32(x)))}
}

// Var is a mutable register, one copy a thread. It is read by get and written
// by set; Init gives its first value where it is declared (the op var).
type Var struct {
	ID   int
	Type Type
	Hint string
}

// String is the printed form, "%acc3"; "%x1.3" where the name ends in a digit.
func (x *Var) String() string {
	if x == nil {
		return "<nil>"
	}
	dot := ""
	if n := len(x.Hint); n > 0 && x.Hint[n-1] >= '0' && x.Hint[n-1] <= '9' {
		dot = "."
	}
	return fmt.Sprintf("%%%s%s%d", x.Hint, dot, x.ID)
}

// Param is a scalar in the kernel's params block, the same for every thread.
type Param struct {
	ID   int // position among the scalars
	Name string
	Type Type // i32, u32, u64 or f32
	Doc  string
}

// MaxLen is the most elements a buffer can have, so that its bytes fit an int64.
const MaxLen = 1 << 40

// Buf is an array in global or shared memory, or a view of one with another
// element type. Indices are in elements of Elem.
type Buf struct {
	ID       int
	Name     string
	Space    Space
	Elem     Type
	Len      int64      // elements; for a global buffer 0 means: as long as the host binds
	Align    int        // bytes; at least the element size
	Offset   int        // shared, root: byte offset in the CTA's shared memory; view: byte offset in Root
	Root     *Buf       // nil for a root; views of views point at the root
	ReadOnly bool       // global: no thread writes it during a launch
	Host     HostUse    // global: what the host does with it during a launch
	Map      *TensorMap // global: what the tensor map that the host puts here describes; nil: it holds data
	Doc      string
	Pos      Pos
}

// Base is the buffer that owns the storage: b itself or the root of a view.
func (b *Buf) Base() *Buf {
	if b.Root != nil {
		return b.Root
	}
	return b
}

// Bytes is Len in bytes; 0 for a global buffer of host-bound length.
func (b *Buf) Bytes() int64 { return b.Len * int64(b.Elem.Size()) }

// String is the printed form, "@ring" or "@ring:u32" for a view.
func (b *Buf) String() string {
	if b == nil {
		return "<nil>"
	}
	if b.Root != nil {
		return "@" + b.Root.Name + ":" + b.Elem.String()
	}
	return "@" + b.Name
}
