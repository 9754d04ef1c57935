package ir_test

import (
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/stretchr/testify/require"
)

// mapped makes a kernel with a tensor map over a buffer of the given number of 16-byte elements. With 0 the host
// chooses it. It changes the map before the check.
func mapped(t *testing.T, words int64, change func(m *ir.TensorMap)) (*ir.Kernel, error) {
	t.Helper()
	k := dsl.New("mapped", dsl.Options{Warps: 1, SharedLimit: 227 << 10})
	src := dsl.Global[dsl.B128](k, "src", words, dsl.ReadOnly())
	dst := dsl.Shared[dsl.B128](k, "dst", 1<<13)
	bars := dsl.NewMBars(k, "bars", 1)
	m := dsl.NewTensorMap(k, "map", src, 0, [3]int64{64, 4, words / 32}, [2]int64{128, 512}, [3]int{64, 1, 64})
	k.If(k.Tid().EqC(0), func() { bars.Init(dsl.At(0), k.U32(1)) })
	dsl.TensorCopy(dst, dsl.At(0), m, [3]dsl.Val[dsl.I32]{k.I32(0), k.I32(0), k.I32(0)}, bars, dsl.At(0), 0)
	p, err := k.Finish()
	if err != nil {
		return nil, err
	}
	for _, b := range p.Bufs {
		if b.Map != nil {
			change(b.Map)
		}
	}
	return p, ir.Verify(p)
}

// The rules of cuTensorMapEncodeTiled, for maps without interleaving and swizzle.
func TestWhatATensorMapMustBe(t *testing.T) {
	_, err := mapped(t, 0, func(*ir.TensorMap) {})
	require.NoError(t, err)
	for want, change := range map[string]func(m *ir.TensorMap){
		"aligned to 16, from byte 8, want multiples of 16":                     func(m *ir.TensorMap) { m.From = 8 },
		"a box of 64 of 0 elements in dimension 0":                             func(m *ir.TensorMap) { m.Dims[0] = 0 },
		"a box of 64 of 4294967296 elements in dimension 2, want 1 to 256":     func(m *ir.TensorMap) { m.Dims[2] = 1 << 32 },
		"a box of 257 of 1 elements in dimension 2":                            func(m *ir.TensorMap) { m.Box[2] = 257 },
		"a stride of 24 bytes in dimension 1, want a multiple of 16":           func(m *ir.TensorMap) { m.Strides[0] = 24 },
		"a stride of 1099511627776 bytes in dimension 2":                       func(m *ir.TensorMap) { m.Strides[1] = 1 << 40 },
		"strides of 96 and 512 bytes, want a multiple of the first as the sec": func(m *ir.TensorMap) { m.Strides[0] = 96 },
		"a box of 1536 bytes in rows of 24, want fewer than 2^20 in multiples": func(m *ir.TensorMap) { m.Box[0] = 12 },
	} {
		_, err := mapped(t, 0, change)
		require.ErrorContains(t, err, want)
	}
	_, err = mapped(t, 64, func(m *ir.TensorMap) { m.Dims[2] = 3 })
	require.ErrorContains(t, err, "describes @src up to byte 1536, but it has 1024")
}

func TestATensorMapLiesWhereNobodyWrites(t *testing.T) {
	for _, change := range []func(b *ir.Buf){func(b *ir.Buf) { b.ReadOnly = false }, func(b *ir.Buf) { b.Align = 32 }} {
		p, err := mapped(t, 0, func(*ir.TensorMap) {})
		require.NoError(t, err)
		for _, b := range p.Bufs {
			if b.Map != nil {
				change(b)
			}
		}
		require.ErrorContains(t, ir.Verify(p), "holds a tensor map, want read-only global memory of 128 bytes, aligned to 64")
	}
}

func TestATensorCopyNamesCTAsOfItsCluster(t *testing.T) {
	p, err := mapped(t, 0, func(*ir.TensorMap) {})
	require.NoError(t, err)
	p.Instrs(func(in *ir.Instr) {
		if in.Op == ir.OpTensorG2S {
			in.Attr.Imm = 3
		}
	})
	require.ErrorContains(t, ir.Verify(p), "copies into the CTAs of mask 0x3 of a cluster of 1")
}

func TestATensorMapOfWhatABufferHolds(t *testing.T) {
	m := ir.TensorMap{Of: &ir.Buf{Name: "src"}, From: 64, Strides: [2]int64{128, 512}}
	require.Empty(t, m.Problem(64+512))
	require.Empty(t, m.Problem(64+512<<31))
	require.Equal(t, "a tensor map of 0 elements in its last dimension, over @src of 575 bytes, want 1 to 2^31", m.Problem(575))
	require.Contains(t, m.Problem(64+512+512<<31), "of 2147483649 elements in its last dimension, over @src")
}

// A descriptor has no base offset, so a swizzle's pattern begins where an address is a multiple of 8 rows.
func TestGroupsOfRowsOfAnOperandBeginWithTheSwizzle(t *testing.T) {
	multiply := func(tile dsl.Tile) error {
		k := dsl.New("multiply", dsl.Options{Warps: 4, SharedLimit: 227 << 10})
		data := dsl.Shared[dsl.B128](k, "data", 1<<13, dsl.Align(1024))
		sums := dsl.NewArray(k.F32(0), 8, "sum")
		rows := dsl.Tile{Swizzle: 128, Stride: 1024}
		k.WGMMAFence()
		dsl.WGMMA[dsl.BF16x2](sums, data, dsl.At(0), rows, data, dsl.At(0), tile)
		k.WGMMACommit()
		k.WGMMAWait(0)
		_, err := k.Finish()
		return err
	}
	require.NoError(t, multiply(dsl.Tile{Swizzle: 128, Stride: 2048}))
	require.NoError(t, multiply(dsl.Tile{Swizzle: 64, Stride: 1536}))
	require.NoError(t, multiply(dsl.Tile{Swizzle: 64, Stride: 512, Across: 4096}))
	for _, tile := range []dsl.Tile{{Swizzle: 128, Stride: 1536}, {Swizzle: 64, Stride: 256},
		{Swizzle: 64, Stride: 512, Across: 768}} {
		require.ErrorContains(t, multiply(tile), "the swizzle begins anew with each")
	}
}
