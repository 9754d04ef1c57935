package ir_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
)

// small is a correct kernel to break by hand: a loop, a branch, roles, a
// variable, a view, a parameter and an mbarrier.
func small(t *testing.T) *ir.Kernel {
	k := dsl.New("small", dsl.Options{Warps: 4, Grid: 8, SharedLimit: 4096})
	n := dsl.Scalar[dsl.U32](k, "n", "")
	y := dsl.Global[dsl.U32](k, "y", 64)
	tile := dsl.Shared[dsl.U32](k, "tile", 64)
	wide := dsl.View[dsl.B128](tile)
	bars := dsl.NewMBars(k, "bars", 1)
	bars.Init(nil, k.U32(1))
	sum := dsl.NewVar(k.U32(7), "sum")
	k.For(k.U32(0), n, func(i u32) { sum.Set(sum.Get().Add(i)) })
	k.If(k.Lane().EqC(0), func() { y.Store(k.Warp(), sum.Get()) })
	k.Region("roles", func() {
		k.Roles(dsl.Role{Name: "all", First: 0, End: 4, Body: func() { wide.Store(nil, wide.Load(dsl.At(1))) }})
	})
	p, err := k.Finish()
	require.NoError(t, err)
	return p
}

// find gives the n-th instruction with the op.
func find(k *ir.Kernel, op ir.Op, n int) (found *ir.Instr) {
	k.Instrs(func(in *ir.Instr) {
		if in.Op == op {
			if n == 0 {
				found = in
			}
			n--
		}
	})
	return found
}

func findStmt[S ir.Stmt](k *ir.Kernel) (found S) {
	ir.Walk(k.Body, func(s ir.Stmt) bool {
		if x, ok := s.(S); ok {
			found = x
		}
		return true
	})
	return found
}

func buf(k *ir.Kernel, name string, view bool) *ir.Buf {
	return k.Bufs[slices.IndexFunc(k.Bufs, func(b *ir.Buf) bool { return b.Name == name && (b.Root != nil) == view })]
}

func front(k *ir.Kernel, s ir.Stmt) { k.Body.Stmts = slices.Insert(k.Body.Stmts, 0, s) }

// broken is what the builder cannot build, and a part of the refusal.
var broken = []struct {
	name string
	make func(k *ir.Kernel)
	want string
}{
	{"no body", func(k *ir.Kernel) { k.Body = nil }, "kernel: is nil or has no body"},
	{"a nil statement", func(k *ir.Kernel) { front(k, nil) },
		"block: holds a <nil>, want an instruction, for, if, roles or region"},
	{"a loop without a body", func(k *ir.Kernel) { findStmt[*ir.For](k).Body = nil }, "for: has no body"},
	{"a loop without a bound", func(k *ir.Kernel) { findStmt[*ir.For](k).Hi = nil },
		"for: lacks its index, a bound or its step"},
	{"an if without a condition", func(k *ir.Kernel) { findStmt[*ir.If](k).Cond = nil }, "if: lacks its condition"},
	{"a role without a body", func(k *ir.Kernel) { findStmt[*ir.Roles](k).Roles[0].Body = nil }, "role all: has no body"},
	{"a region without a body", func(k *ir.Kernel) { findStmt[*ir.Region](k).Body = nil }, "region roles: has no body"},
	{"an unknown op", func(k *ir.Kernel) { front(k, &ir.Instr{Op: 250}) }, "op(250): is no op of the table"},
	{"a nil operand", func(k *ir.Kernel) { find(k, ir.OpAdd, 0).Args[0] = nil }, "add: lacks an operand or a result"},
	{"an address without a buffer", func(k *ir.Kernel) { find(k, ir.OpSt, 0).Mem[0].Buf = nil },
		"st: has an address without a buffer"},
	{"a misnumbered buffer", func(k *ir.Kernel) { k.Bufs[0].ID = 3 }, "buffer 0: is missing, wrongly numbered"},
	{"a misnumbered variable", func(k *ir.Kernel) { k.Vars[0].ID = 3 }, "variable 0: is missing, wrongly numbered"},
	{"a misnumbered parameter", func(k *ir.Kernel) { k.Params[0].ID = 3 }, "parameter 0: is missing or wrongly numbered"},
	{"too many warps", func(k *ir.Kernel) { k.Warps = 33 }, "kernel small: has 33 warps a CTA, want 1 to 32"},
	{"too many CTAs an SM", func(k *ir.Kernel) { k.PerSM = 33 }, "leaves registers for 33 CTAs an SM, want 0 to 32"},
	{"an uneven cluster", func(k *ir.Kernel) { k.ClusterSize = 3 },
		"has a grid of 8 CTAs in clusters of 3, want a multiple"},
	{"a taken name", func(k *ir.Kernel) { k.Params[0].Name = "" }, "parameter : its name is empty or taken"},
	{"a parameter of 16 bits", func(k *ir.Kernel) { k.Params[0].Type = ir.BF16 },
		"parameter n: is bf16, want i32, u32, u64 or f32"},

	{"a value defined twice", func(k *ir.Kernel) {
		k.Body.Stmts = append(k.Body.Stmts, find(k, ir.OpAdd, 0))
	}, "add: defines v3, which ir/direct_test.go:"},
	{"an ID out of range", func(k *ir.Kernel) { k.NumValues = 2 }, "get: defines v2, want an ID from 0 to 1"},
	{"a constant as a result", func(k *ir.Kernel) { find(k, ir.OpAdd, 0).Res[0] = ir.ConstInt(ir.U32, 1) },
		"add: defines the constant 1"},
	{"a value linked elsewhere", func(k *ir.Kernel) { find(k, ir.OpAdd, 0).Res[0].Def = nil },
		"add: defines v3, which names another definition"},
	{"a use before the definition", func(k *ir.Kernel) {
		lane := find(k, ir.OpLane, 0)
		front(k, &ir.Instr{Op: ir.OpNanosleep, Args: lane.Res})
	}, "nanosleep: uses v4 before ir/direct_test.go:"},
	{"a variable set before it is declared", func(k *ir.Kernel) { front(k, find(k, ir.OpGet, 1)) },
		"get: %sum0 is used before ir/direct_test.go:"},
	{"a variable declared twice", func(k *ir.Kernel) { k.Body.Stmts = append(k.Body.Stmts, find(k, ir.OpVar, 0)) },
		"var: declares %sum0, which ir/direct_test.go:"},
	{"a variable declared nowhere", func(k *ir.Kernel) {
		k.Vars = append(k.Vars, &ir.Var{ID: 1, Type: ir.U32, Hint: "x"})
		find(k, ir.OpSet, 0).Attr.Var = k.Vars[1]
	}, "set: %x1 is declared nowhere"},
	{"a variable of another kernel",
		func(k *ir.Kernel) { find(k, ir.OpSet, 0).Attr.Var = &ir.Var{Type: ir.U32, Hint: "x"} },
		"set: names %x0, which is no variable of kernel small"},
	{"no variable", func(k *ir.Kernel) { find(k, ir.OpSet, 0).Attr.Var = nil }, "set: names no variable"},
	{"a parameter of another kernel",
		func(k *ir.Kernel) { find(k, ir.OpParam, 0).Attr.Param = &ir.Param{Name: "m", Type: ir.U32} },
		"param: names m, which is no parameter of kernel small"},
	{"impossible bits", func(k *ir.Kernel) { find(k, ir.OpVar, 0).Args[0].Bits = 1 << 32 },
		"var: uses a constant of type u32 with the bits 0x100000000"},

	{"operands of two types", func(k *ir.Kernel) { find(k, ir.OpAdd, 0).Args[0] = ir.ConstF32(1) },
		"add: operands have types f32 and u32, want one type"},
	{"a result of the wrong type", func(k *ir.Kernel) { find(k, ir.OpAdd, 0).Res[0].Type = ir.I32 },
		"add: result v3 is i32, want u32"},
	{"a result too few", func(k *ir.Kernel) { find(k, ir.OpGet, 1).Res = nil }, "get: has 0 results, want 1"},
	{"a condition that is a number", func(k *ir.Kernel) { findStmt[*ir.If](k).Cond = ir.ConstInt(ir.U32, 1) },
		"if: the condition 1 is u32, want pred"},
	{"a loop index that is a float", func(k *ir.Kernel) { findStmt[*ir.For](k).I.Type = ir.F32 },
		"for: the index is f32, want u32 or i32"},
	{"a bound of another type", func(k *ir.Kernel) { findStmt[*ir.For](k).Lo = ir.ConstInt(ir.I32, 0) },
		"for: the bound 0 is i32, want u32 like the index"},
	{"a step of 0", func(k *ir.Kernel) { findStmt[*ir.For](k).Step = ir.ConstInt(ir.U32, 0) },
		"for: the step is 0, want a positive constant"},
	{"a negative step", func(k *ir.Kernel) {
		f := findStmt[*ir.For](k)
		f.Step = ir.ConstInt(ir.I32, -1)
	}, "for: the step is -1, want a positive constant"},
	{"a computed step", func(k *ir.Kernel) { f := findStmt[*ir.For](k); f.Step = f.Hi },
		"for: the step is v0, want a positive constant"},
	{"a negative unrolling", func(k *ir.Kernel) { findStmt[*ir.For](k).Unroll = -2 },
		"for: is unrolled -2 times, want 0 or more"},
	{"a selector of 20 bits", func(k *ir.Kernel) {
		in := find(k, ir.OpAdd, 0)
		in.Op, in.Attr.Imm = ir.OpPrmt, 0x54321
	}, "prmt: has selector 0x54321, want 16 bits"},
	{"a table of 9 bits", func(k *ir.Kernel) {
		in := find(k, ir.OpAdd, 0)
		in.Op, in.Attr.Imm = ir.OpLop3, 0x128
	}, "lop3: has table 0x128, want 8 bits"},
	{"a vector atomic", func(k *ir.Kernel) {
		front(k, &ir.Instr{Op: ir.OpRedAdd, T: ir.U32, Mem: []ir.Addr{{Buf: k.Bufs[0]}},
			Args: []*ir.Value{ir.ConstInt(ir.U32, 1)}, Attr: ir.Attr{Lanes: 2, Order: ir.Relaxed, Scope: ir.GPU}})
	}, "red.add: moves 2 elements at once; only ld and st have vectors"},

	{"a buffer not placed", func(k *ir.Kernel) { buf(k, "tile", false).Offset = -1 },
		"shared buffer @tile: has no place; LayoutShared gives one"},
	{"buffers that overlap", func(k *ir.Kernel) { buf(k, "bars", false).Offset = 8 },
		"shared buffer @bars: takes bytes 8..16, which overlap @tile at 0..256"},
	{"a misplaced buffer", func(k *ir.Kernel) { buf(k, "bars", false).Offset = 260 },
		"shared buffer @bars: is placed at byte 260, want a multiple of 8"},
	{"a crooked alignment", func(k *ir.Kernel) { k.Bufs[0].Align = 12 },
		"global buffer @y: is aligned to 12 bytes, want a power of two that is at least the element's 4"},
	{"a global mbarrier", func(k *ir.Kernel) { k.Bufs[0].Elem, k.Bufs[0].Align = ir.MBar, 8 },
		"global buffer @y: holds mbarriers, which live in shared memory only"},
	{"less shared memory than used", func(k *ir.Kernel) { k.SharedLimit = 100 },
		"kernel small: its shared buffers end at byte 264 (@tile 256, @bars 8), but a CTA has 100"},
	{"a view beyond its root", func(k *ir.Kernel) { buf(k, "tile", true).Offset = 16 },
		"view @tile:b128: covers bytes 16..272 of @tile, which has 256"},
	{"a view of a view", func(k *ir.Kernel) { v := buf(k, "tile", true); v.Root = v },
		"want a buffer of this kernel, of the same space, that is no view"},
	{"a view of mbarriers", func(k *ir.Kernel) { v := buf(k, "tile", true); v.Root, v.Len = buf(k, "bars", false), 0 },
		"view @bars:b128: sees mbar as b128; mbarriers have no other form"},
	{"a view of a root not aligned for it", func(k *ir.Kernel) { buf(k, "tile", false).Align = 4 },
		"view @tile:b128: has elements of 16 bytes at byte 0 of @tile, which is aligned to 4"},
	{"a vector in a view that starts off", func(k *ir.Kernel) {
		b := &ir.Buf{ID: len(k.Bufs), Name: "tile", Space: ir.Shared, Elem: ir.U32, Len: 8, Align: 4, Offset: 4,
			Root: buf(k, "tile", false)}
		k.Bufs = append(k.Bufs, b)
		front(k, &ir.Instr{Op: ir.OpSt, T: ir.U32, Mem: []ir.Addr{{Buf: b}},
			Args: slices.Repeat([]*ir.Value{ir.ConstInt(ir.U32, 1)}, 2), Attr: ir.Attr{Lanes: 2}})
	}, "st: moves 8 bytes at once, but @tile:u32 starts at byte 4 of shared memory; "},
	{"a vector of a buffer not aligned for it", func(k *ir.Kernel) {
		front(k, &ir.Instr{Op: ir.OpSt, T: ir.U32, Mem: []ir.Addr{{Buf: k.Bufs[0]}},
			Args: slices.Repeat([]*ir.Value{ir.ConstInt(ir.U32, 1)}, 2), Attr: ir.Attr{Lanes: 2}})
	}, "st: moves 8 bytes at once, but @y is aligned to 4; declare it with Align(8)"},
}

func TestVerifyRefusesWhatTheBuilderCannotBuild(t *testing.T) {
	require.NoError(t, ir.Verify(small(t)))
	for _, b := range broken {
		t.Run(b.name, func(t *testing.T) {
			k := small(t)
			b.make(k)
			require.ErrorContains(t, ir.Verify(k), b.want)
		})
	}
	require.Error(t, ir.Verify(nil))
}

func TestVerifyChangesNothing(t *testing.T) {
	k := small(t)
	before := k.String()
	require.NoError(t, ir.Verify(k))
	require.Equal(t, before, k.String())
}
