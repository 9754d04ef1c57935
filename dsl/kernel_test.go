package dsl_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
)

func TestNewRefusesNamesAndSizes(t *testing.T) {
	for _, c := range []struct {
		name  string
		warps int
		want  string
	}{
		{"9lives", 1, `kernel name "9lives" is not a C identifier`},
		{"", 1, `kernel name "" is not a C identifier`},
		{"gemv-2", 1, `kernel name "gemv-2" is not a C identifier`},
		{"ok", 0, "kernel ok has 0 warps, want 1 to 32"},
		{"ok", 33, "kernel ok has 33 warps, want 1 to 32"},
	} {
		k := dsl.New(c.name, dsl.Options{Warps: c.warps})
		require.ErrorContains(t, k.Err(), c.want)
		_, err := k.Finish()
		require.ErrorContains(t, err, c.want)
		require.NotContains(t, err.Error(), "\n", "each mistake once")
	}
}

func TestFinishGivesTheHead(t *testing.T) {
	k := dsl.New("head", dsl.Options{Warps: 2, Grid: 3, SharedLimit: 100, Doc: []string{"one", "two"}})
	dsl.Shared[dsl.U32](k, "x", 5)
	p, err := k.Finish()
	require.NoError(t, err)
	require.Equal(t, text("// one", "// two", "kernel head warps=2 grid=3 shared=20/100",
		"shared @x:u32[5] offset=0 align=4", "{", "}", ""), p.String())
}

func TestARefusedOpGoesOnWithADummy(t *testing.T) {
	require.Equal(t, text("add: has no form for bf16",
		"fence: has order acq_rel and scope warp, want acq_rel or sc, and cta or wider"), mistakes(t, func(k *dsl.Kernel) {
		b := dsl.Global[dsl.BF16](k, "b", 1)
		b.Store(nil, b.Load(nil).Add(b.Load(nil)))
		k.Fence(dsl.WarpScope)
	}))
}

func TestZeroValuesBesideRealOnesAreRefused(t *testing.T) {
	require.Equal(t, text("add: an operand is a zero Val; make it with a Kernel",
		"fma: an operand is a zero Val; make it with a Kernel", "and: an operand is a zero Val; make it with a Kernel",
		"select: an operand is a zero Val; make it with a Kernel", "st: an operand is a zero Val; make it with a Kernel",
		"index into @x is a zero Val",
		"set: an operand is a zero Val; make it with a Kernel", "assert: an operand is a zero Val; make it with a Kernel",
		"nanosleep: an operand is a zero Val; make it with a Kernel"), mistakes(t, func(k *dsl.Kernel) {
		var zero u32
		x, acc := dsl.Global[dsl.U32](k, "x", 4), dsl.NewVar(k.U32(0), "acc")
		k.Lane().Add(zero)
		dsl.FMA(k.F32(1), f32{}, k.F32(1))
		k.Lane().EqC(0).And(dsl.Pred{})
		dsl.Select(dsl.Pred{}, k.Lane(), k.Lane())
		x.Store(nil, zero)
		x.Load(zero)
		acc.Set(zero)
		k.Assert(dsl.Pred{}, "zero")
		k.Nanosleep(zero)
	}))
}

func TestAllZeroValuesPanic(t *testing.T) {
	const message = "dsl: a zero Val is used: it belongs to no kernel"
	for name, f := range map[string]func(){
		"add":     func() { u32{}.Add(u32{}) },
		"not":     func() { u32{}.Not() },
		"exp2":    func() { dsl.Exp2(f32{}) },
		"pred":    func() { dsl.Pred{}.Not() },
		"uniform": func() { dsl.Uniform(u32{}, dsl.CTAScope) },
		"newvar":  func() { dsl.NewVar(u32{}, "x") },
		"load":    func() { dsl.Buf[dsl.U32]{}.Load(nil) },
		"view":    func() { dsl.View[dsl.U32](dsl.Buf[dsl.F32]{}) },
		"mbar":    func() { dsl.MBars{}.Arrive(nil) },
		"shuffle": func() { dsl.ShflXor(u32{}, 1) },
		"mma":     func() { dsl.MMA([4]dsl.Val[dsl.BF16x2]{}, [2]dsl.Val[dsl.BF16x2]{}, [4]f32{}) },
	} {
		require.PanicsWithValue(t, message, f, name)
	}
}

func TestNamesStayTheFirstAndNeverReachConstants(t *testing.T) {
	require.Equal(t, text("v0.row:u32 = lane", "v1.odd:pred = eq v0, 1", "assert v1 \"odd\"", "nanosleep 3"),
		body(t, func(k *dsl.Kernel) {
			row := k.Lane().Named("row").Named("line")
			k.Assert(row.EqC(1).Named("odd").Named("even"), "odd")
			k.Nanosleep(k.U32(3).Named("three"))
		}))
}

func TestSpecialRegistersAndParameters(t *testing.T) {
	p := finish(t, func(k *dsl.Kernel) {
		n := dsl.Scalar[dsl.U64](k, "n", "")
		dsl.Scalar[dsl.F32](k, "eps", "")
		dsl.Global[dsl.U64](k, "y", 1).Store(nil, n.Add(k.Clock()).Sub(k.GlobalTimer()))
		out(k, k.Lane(), k.Warp(), k.Tid(), k.CTA(), k.Grid(), k.SMID())
	})
	for _, op := range []ir.Op{ir.OpLane, ir.OpWarp, ir.OpTid, ir.OpCTA, ir.OpGrid, ir.OpSMID, ir.OpClock,
		ir.OpGlobalTimer} {
		require.Len(t, positions(p, op), 1, "%s", op)
	}
	fields, size := p.ParamsLayout()
	require.Len(t, fields, 4, "two pointers, two scalars")
	require.Equal(t, 32, size)
}
