package ir_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/dsl/ir"
)

func TestParamsLayoutPutsPointersBeforeScalars(t *testing.T) {
	k := &ir.Kernel{
		Bufs:   []*ir.Buf{{Name: "x"}, {Name: "s", Space: ir.Shared}, {Name: "y"}},
		Params: []*ir.Param{{Name: "a", Type: ir.U32}, {Name: "b", Type: ir.U64}, {Name: "c", Type: ir.F32}},
	}
	fields, size := k.ParamsLayout()
	at := map[string]int{}
	for _, f := range fields {
		at[f.Name] = f.Offset
	}
	require.Equal(t, map[string]int{"x": 0, "y": 8, "a": 16, "b": 24, "c": 32}, at)
	require.Equal(t, 40, size, "a multiple of 8")
	fields, size = (&ir.Kernel{}).ParamsLayout()
	require.Empty(t, fields)
	require.Zero(t, size)
}

func shared(name string, elem ir.Type, n int64, align, offset int) *ir.Buf {
	return &ir.Buf{Name: name, Space: ir.Shared, Elem: elem, Len: n, Align: align, Offset: offset}
}

func TestLayoutSharedPlacesInOrderAndKeepsWhatIsFixed(t *testing.T) {
	k := &ir.Kernel{SharedLimit: 1000, Bufs: []*ir.Buf{
		shared("a", ir.U16, 3, 2, -1), shared("b", ir.F32, 2, 4, -1), shared("fixed", ir.B128, 1, 128, 128),
		shared("c", ir.MBar, 2, 8, -1),
	}}
	require.NoError(t, k.LayoutShared())
	var at []int
	for _, b := range k.Bufs {
		at = append(at, b.Offset)
	}
	require.Equal(t, []int{0, 8, 128, 144}, at)
	require.Equal(t, 160, k.SharedBytes)
	require.NoError(t, k.LayoutShared(), "a second time changes nothing")
	require.Equal(t, 160, k.SharedBytes)
}

func TestLayoutSharedReportsEverything(t *testing.T) {
	k := &ir.Kernel{Name: "k", SharedLimit: 100, Bufs: []*ir.Buf{
		shared("a", ir.U32, 16, 4, 2), shared("b", ir.U32, 16, 4, 32), shared("c", ir.U32, 16, 4, -1),
	}}
	require.EqualError(t, k.LayoutShared(), `shared buffer @a: is placed at byte 2, want a multiple of 4
shared buffer @b: is placed at byte 32, but @a, declared before it, ends at 66
kernel k: its shared buffers end at byte 160 (@a 64, @b 64, @c 64), but a CTA has 100`)
}

func TestLayoutSharedOfNothing(t *testing.T) {
	k := &ir.Kernel{}
	require.NoError(t, k.LayoutShared())
	require.Zero(t, k.SharedBytes)
}

func TestManySharedBuffersAreListedByTheLargest(t *testing.T) {
	k := &ir.Kernel{Name: "k", SharedLimit: 64}
	for i, n := range []int64{1, 2, 3, 40, 5, 6} {
		k.Bufs = append(k.Bufs, shared(string(rune('a'+i)), ir.U32, n, 4, -1))
	}
	require.EqualError(t, k.LayoutShared(),
		"kernel k: its shared buffers end at byte 228 (@d 160, @f 24, @e 20, @c 12, 2 more), but a CTA has 64")
}

func TestConstantsPrintAndCutTheirBits(t *testing.T) {
	for _, c := range []struct {
		v    *ir.Value
		want string
		bits uint64
	}{
		{ir.ConstInt(ir.U32, -1), "4294967295", 0xffffffff},
		{ir.ConstInt(ir.I32, 0xffffffff), "-1", 0xffffffffffffffff},
		{ir.ConstInt(ir.U64, -1), "18446744073709551615", 0xffffffffffffffff},
		{ir.ConstInt(ir.U16, 0x12345), "9029", 0x2345},
		{ir.ConstInt(ir.Pred, 3), "true", 1},
		{ir.ConstInt(ir.Pred, 2), "false", 0},
		{ir.ConstF32(2), "2.0", 0x40000000},
		{ir.ConstF32(-0.1), "-0.1", 0xbdcccccd},
		{ir.ConstF32(1e30), "1e+30", 0x7149f2ca},
		{&ir.Value{Type: ir.F32, Const: true, Bits: 0xff800000}, "-Inf", 0xff800000},
		{&ir.Value{Type: ir.F32, Const: true, Bits: 0x7fc00000}, "NaN", 0x7fc00000},
		{&ir.Value{ID: 7}, "v7", 0},
	} {
		require.Equal(t, c.want, c.v.String())
		require.Equal(t, c.bits, c.v.Bits)
	}
	require.Panics(t, func() { ir.ConstInt(ir.F32, 1) })
}

func TestTypesHaveNamesAndSizes(t *testing.T) {
	names := map[string]bool{}
	for _, x := range ir.Types() {
		require.False(t, names[x.String()], "%s twice", x)
		names[x.String()] = true
		require.Equal(t, x == ir.Pred, x.Size() == 0, "%s", x)
	}
	require.Equal(t, "type(99)", ir.Type(99).String())
	require.Panics(t, func() { ir.Type(99).Size() })
	require.True(t, ir.BF16.IsFloat() && !ir.BF16x2.IsFloat())
}
