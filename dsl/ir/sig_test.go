package ir_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/dsl/ir"
)

// changes break an instruction's signature; each says whether it applies.
var changes = []struct {
	name  string
	apply func(k *ir.Kernel, in *ir.Instr) bool
}{
	{"an operand less", func(_ *ir.Kernel, in *ir.Instr) bool {
		if len(in.Args) == 0 {
			return false
		}
		in.Args = in.Args[1:]
		return true
	}},
	{"an operand more", func(_ *ir.Kernel, in *ir.Instr) bool {
		in.Args = append(in.Args, ir.ConstInt(ir.U32, 1))
		return true
	}},
	{"an operand of 128 bits", func(_ *ir.Kernel, in *ir.Instr) bool {
		if len(in.Args) == 0 || in.Args[0].Type == ir.B128 {
			return false
		}
		in.Args[0] = ir.ConstInt(ir.B128, 1)
		return true
	}},
	{"an address less", func(_ *ir.Kernel, in *ir.Instr) bool {
		if len(in.Mem) == 0 || in.Op.Waits() { // those may lack the flag
			return false
		}
		in.Mem = in.Mem[1:]
		return true
	}},
	{"an address more", func(k *ir.Kernel, in *ir.Instr) bool {
		in.Mem = append(in.Mem, ir.Addr{Buf: k.Bufs[0]})
		return true
	}},
	{"another buffer", func(k *ir.Kernel, in *ir.Instr) bool {
		if len(in.Mem) == 0 {
			return false
		}
		in.Mem[0].Buf = buf(k, "full", false)
		if slices.Contains([]ir.Op{ir.OpMBarInit, ir.OpMBarArrive, ir.OpMBarArriveN, ir.OpMBarArriveAt, ir.OpMBarExpect,
			ir.OpMBarTest, ir.OpWaitMBar}, in.Op) {
			in.Mem[0].Buf = buf(k, "tile", false)
		}
		return true
	}},
	{"a float index", func(_ *ir.Kernel, in *ir.Instr) bool {
		if len(in.Mem) == 0 {
			return false
		}
		in.Mem[0].Index = ir.ConstF32(1)
		return true
	}},
	{"a result of 16 bits", func(_ *ir.Kernel, in *ir.Instr) bool {
		if len(in.Res) == 0 {
			return false
		}
		in.Res[0].Type = ir.BF16
		return true
	}},
	{"a result more", func(_ *ir.Kernel, in *ir.Instr) bool {
		in.Res = append(in.Res, &ir.Value{ID: 0, Type: ir.U32, Def: in})
		return true
	}},
}

// TestEverySignatureRefuses breaks the first instruction of every op in every
// way that applies; the type errors are goldens.
func TestEverySignatureRefuses(t *testing.T) {
	var all strings.Builder
	for _, op := range ir.AllOps() {
		for _, c := range changes {
			k := everyOp(t)
			in := find(k, op, 0)
			require.NotNil(t, in, "%s is missing in the kernel of every op, print_test.go", op)
			if !c.apply(k, in) {
				continue
			}
			found := ""
			for _, e := range ir.Errors(ir.Verify(k)) {
				if e.Kind == ir.KindType && e.What == op.String() && e.Pos == in.Pos && found == "" {
					found = e.Text
				}
			}
			require.NotEmpty(t, found, "%s with %s is accepted", op, c.name)
			fmt.Fprintf(&all, "%s, %s: %s\n", op, c.name, found)
		}
	}
	golden(t, "signatures.txt", all.String())
}

// TestVerifyNeverPanics makes random changes, most of them nonsense.
func TestVerifyNeverPanics(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		k := everyOp(t)
		var ins []*ir.Instr
		k.Instrs(func(in *ir.Instr) { ins = append(ins, in) })
		for range 1 + r.IntN(8) {
			scramble(r, k, ins[r.IntN(len(ins))], ins[r.IntN(len(ins))])
		}
		require.NotPanics(t, func() { _ = ir.Verify(k) }, "seed %d", seed)
	}
}

func scramble(r *rand.Rand, k *ir.Kernel, a, b *ir.Instr) {
	switch r.IntN(12) {
	case 0:
		a.Args, b.Args = b.Args, a.Args
	case 1:
		a.Mem, b.Mem = b.Mem, a.Mem
	case 2:
		a.Res, b.Res = b.Res, a.Res
	case 3:
		a.Attr, b.Attr = b.Attr, a.Attr
	case 4:
		a.Op = ir.Op(r.IntN(120))
	case 5:
		a.T = ir.Type(r.IntN(20))
	case 6:
		a.Attr.Order, a.Attr.Scope = ir.Order(r.IntN(9)), ir.Scope(r.IntN(9))
	case 7:
		a.Attr.Hint, a.Attr.Cond, a.Attr.Lanes = ir.Hint(r.IntN(9)), ir.Cond(r.IntN(5)), r.IntN(9)-2
	case 8:
		for _, v := range a.Res {
			v.ID, v.Type = r.IntN(300)-50, ir.Type(r.IntN(20))
		}
	case 9:
		a.Attr.Var, a.Attr.Param, a.Attr.N, a.Attr.Imm = nil, nil, r.IntN(2000)-1000, r.Int64N(40)-20
	case 10:
		x := k.Bufs[r.IntN(len(k.Bufs))]
		x.Elem, x.Align, x.Offset, x.Len = ir.Type(r.IntN(14)), r.IntN(40), r.IntN(9000)-100, r.Int64N(100)-5
	case 11:
		k.Body.Stmts = append(k.Body.Stmts, a, b)
	}
}
