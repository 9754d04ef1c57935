package ir

import (
	"fmt"
	"slices"
)

// A sig computes an instruction's result types from everything else in it, or
// says what is wrong: what was found and what is wanted.
type sig = func(in *Instr) ([]Type, error)

func isNum(t Type) bool   { return t.IsInt() || t == F32 }
func isInt(t Type) bool   { return t.IsInt() }
func isLogic(t Type) bool { return t.IsInt() || t == Pred }

func only(ts ...Type) func(Type) bool {
	return func(t Type) bool { return slices.Contains(ts, t) }
}

func same(n int, ok func(Type) bool) sig {
	return func(in *Instr) ([]Type, error) {
		if err := counts(in, n, 0); err != nil {
			return nil, err
		}
		t := in.Args[0].Type
		for _, a := range in.Args {
			if a.Type != t {
				return nil, fmt.Errorf("operands have types %s and %s, want one type", t, a.Type)
			}
		}
		if !ok(t) {
			return nil, fmt.Errorf("has no form for %s", t)
		}
		return []Type{t}, nil
	}
}

func unary(ok func(Type) bool) sig   { return same(1, ok) }
func binary(ok func(Type) bool) sig  { return same(2, ok) }
func ternary(ok func(Type) bool) sig { return same(3, ok) }

// counts checks the number of value and memory operands.
func counts(in *Instr, args, mem int) error {
	if len(in.Args) != args || len(in.Mem) != mem {
		return fmt.Errorf("has %d values and %d addresses, want %d and %d", len(in.Args), len(in.Mem), args, mem)
	}
	for i, a := range in.Args {
		if a == nil {
			return fmt.Errorf("operand %d is missing", i)
		}
	}
	return addrs(in)
}

func addrs(in *Instr) error {
	for _, m := range in.Mem {
		if m.Buf == nil {
			return fmt.Errorf("address without a buffer")
		}
		if m.Index != nil && !m.Index.Type.IsInt() {
			return fmt.Errorf("index into %s is %s, want i32, u32 or u64", m.Buf, m.Index.Type)
		}
	}
	return nil
}

func fixed(args []Type, res ...Type) sig {
	return func(in *Instr) ([]Type, error) {
		if err := counts(in, len(args), 0); err != nil {
			return nil, err
		}
		return res, wantTypes(in, args)
	}
}

func wantTypes(in *Instr, want []Type) error {
	for i, t := range want {
		if in.Args[i].Type != t {
			return fmt.Errorf("operand %d is %s, want %s", i, in.Args[i].Type, t)
		}
	}
	return nil
}

func shift(in *Instr) ([]Type, error) {
	if err := counts(in, 2, 0); err != nil {
		return nil, err
	}
	if !in.Args[0].Type.IsInt() || in.Args[1].Type != U32 {
		return nil, fmt.Errorf("shifts %s by %s, want an integer by u32", in.Args[0].Type, in.Args[1].Type)
	}
	return []Type{in.Args[0].Type}, nil
}

func compare(in *Instr) ([]Type, error) {
	if _, err := binary(isNum)(in); err != nil {
		return nil, err
	}
	return []Type{Pred}, nil
}

func selection(in *Instr) ([]Type, error) {
	if err := counts(in, 3, 0); err != nil {
		return nil, err
	}
	t := in.Args[1].Type
	if in.Args[0].Type != Pred || in.Args[2].Type != t {
		return nil, fmt.Errorf("chooses by %s between %s and %s, want pred and one type", in.Args[0].Type, t, in.Args[2].Type)
	}
	return []Type{t}, nil
}

// conversions lists what cvt turns into what.
var conversions = map[Type][]Type{
	F32:  {BF16, F16, I32, U32},
	BF16: {F32}, F16: {F32}, F16x2: {E4M3x2},
	I32: {F32, U32, U64}, U32: {F32, I32, U64, U16}, U64: {U32, I32}, U16: {U32},
}

func convert(in *Instr) ([]Type, error) {
	if err := counts(in, 1, 0); err != nil {
		return nil, err
	}
	if !slices.Contains(conversions[in.T], in.Args[0].Type) {
		return nil, fmt.Errorf("cannot turn %s into %s", in.Args[0].Type, in.T)
	}
	return []Type{in.T}, nil
}

func reinterpret(in *Instr) ([]Type, error) {
	if err := counts(in, 1, 0); err != nil {
		return nil, err
	}
	from, to := in.Args[0].Type, in.T
	if from.Size() != to.Size() || from.Size() == 0 || from == MBar || from == B128 {
		return nil, fmt.Errorf("cannot see %s as %s: sizes are %d and %d bytes", from, to, from.Size(), to.Size())
	}
	return []Type{to}, nil
}

func pack(in *Instr) ([]Type, error) {
	if err := counts(in, 2, 0); err != nil {
		return nil, err
	}
	if in.T != BF16x2 && in.T != F16x2 && in.T != E4M3x2 {
		return nil, fmt.Errorf("packs into %s, want bf16x2, f16x2 or e4m3x2", in.T)
	}
	return []Type{in.T}, wantTypes(in, []Type{F32, F32})
}

func unpack(in *Instr) ([]Type, error) {
	if err := counts(in, 1, 0); err != nil {
		return nil, err
	}
	switch t := in.Args[0].Type; t {
	case BF16x2, F16x2:
		return []Type{F32, F32}, nil
	case U32:
		return []Type{U16, U16}, nil
	default:
		return nil, fmt.Errorf("unpacks %s, want bf16x2, f16x2 or u32", t)
	}
}

// mma takes fragments of A and B that are all bf16x2 or all f16x2.
func mma(in *Instr) ([]Type, error) {
	t := BF16x2
	if len(in.Args) > 0 && in.Args[0] != nil && in.Args[0].Type == F16x2 {
		t = F16x2
	}
	return fixed([]Type{t, t, t, t, t, t, F32, F32, F32, F32}, F32, F32, F32, F32)(in)
}

// imma takes fragments of bytes: A's words are u32, bytes without a sign, or i32, with one.
func imma(in *Instr) ([]Type, error) {
	t := I32
	if len(in.Args) > 0 && in.Args[0] != nil && in.Args[0].Type == U32 {
		t = U32
	}
	return fixed([]Type{t, t, t, t, I32, I32, I32, I32, I32, I32}, I32, I32, I32, I32)(in)
}

func param(in *Instr) ([]Type, error) {
	if err := counts(in, 0, 0); err != nil {
		return nil, err
	}
	if in.Attr.Param == nil {
		return nil, fmt.Errorf("names no parameter")
	}
	return []Type{in.Attr.Param.Type}, nil
}

func varGet(in *Instr) ([]Type, error) {
	if err := counts(in, 0, 0); err != nil {
		return nil, err
	}
	if in.Attr.Var == nil {
		return nil, fmt.Errorf("names no variable")
	}
	return []Type{in.Attr.Var.Type}, nil
}

func varSet(in *Instr) ([]Type, error) {
	if err := counts(in, 1, 0); err != nil {
		return nil, err
	}
	if in.Attr.Var == nil {
		return nil, fmt.Errorf("names no variable")
	}
	return nil, wantTypes(in, []Type{in.Attr.Var.Type})
}

func uniform(in *Instr) ([]Type, error) {
	if err := counts(in, 1, 0); err != nil {
		return nil, err
	}
	if s := in.Attr.Scope; s != Warp && s != CTA && s != GPU {
		return nil, fmt.Errorf("asserts uniformity over %s, want warp, cta or gpu", s)
	}
	return []Type{in.Args[0].Type}, nil
}

func shuffle(in *Instr) ([]Type, error) {
	if err := counts(in, 2, 0); err != nil {
		return nil, err
	}
	if !in.Args[0].Type.Is32() || in.Args[1].Type != U32 {
		return nil, fmt.Errorf("shuffles %s by %s, want a 32-bit type by u32", in.Args[0].Type, in.Args[1].Type)
	}
	return []Type{in.Args[0].Type}, nil
}
