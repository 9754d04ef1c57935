package interp_test

import (
	"encoding/binary"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/stretchr/testify/require"
)

func TestPrmtSelectsBytes(t *testing.T) {
	for _, sel := range []int{0x5410, 0x7632, 0x0123, 0xfb48, 0x8c9d} {
		got := lanewise(t, [][3]uint32{{0x03827100, 0xf766d544}},
			func(k *dsl.Kernel, a, b, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
				return dsl.Permute(a, b, uint16(sel))
			})
		var src [8]byte
		binary.LittleEndian.PutUint32(src[:], 0x03827100)
		binary.LittleEndian.PutUint32(src[4:], 0xf766d544)
		var want [4]byte
		for i := range want {
			n := sel >> (4 * i) & 15
			want[i] = src[n&7]
			if n >= 8 {
				want[i] = byte(int8(src[n&7]) >> 7)
			}
		}
		require.Equal(t, binary.LittleEndian.Uint32(want[:]), got[0], "%#x", sel)
		by := lanewise(t, [][3]uint32{{0x03827100, 0xf766d544, 0xabcd0000 | uint32(sel)}},
			func(k *dsl.Kernel, a, b, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
				return dsl.PermuteBy(a, b, c)
			})
		require.Equal(t, got, by, "%#x", sel)
	}
}

func TestXorAndIsItsThreeOperations(t *testing.T) {
	args := [][3]uint32{{0x12345678, 0x88888888, 0x000f000f}, {0xffff0000, 0x0ff00ff0, 0xcccccccc}, {5, 5, 0xffffffff}}
	for i, g := range lanewise(t, args, func(k *dsl.Kernel, a, b, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
		return dsl.XorAnd(a, b, c)
	}) {
		require.Equal(t, (args[i][0]^args[i][1])&args[i][2], g)
	}
}

func TestDot2IsItsProductsAndSum(t *testing.T) {
	args := [][3]uint32{{0x12345678, 0, 5}, {0xffffffff, 0, 0xffffffff}, {0x80007fff, 0, 0x80000000}}
	for _, by := range [][2]int8{{1, 0}, {0, 1}, {-1, 0}, {0, -128}, {127, -3}} {
		for i, g := range lanewise(t, args, func(_ *dsl.Kernel, a, _, c dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
			return dsl.Dot2(a, by[0], by[1], c)
		}) {
			low, high := int64(args[i][0]&0xffff), int64(args[i][0]>>16)
			require.Equal(t, uint32(low*int64(by[0])+high*int64(by[1])+int64(args[i][2])), g, "%v", by)
		}
	}
}

func TestHalvesOfAWord(t *testing.T) {
	args := [][3]uint32{{0x12345678}, {0xffff0000}, {0x0000ffff}, {0x80007fff}}
	for i, g := range lanewise(t, args, func(k *dsl.Kernel, a, _, _ dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
		lo, hi := dsl.Halves(a)
		return dsl.Cast[dsl.U32](lo).ShlC(16).Or(dsl.Cast[dsl.U32](hi))
	}) {
		require.Equal(t, args[i][0]<<16|args[i][0]>>16, g)
	}
}

func TestSplitAndJoinOfB128(t *testing.T) {
	p := build(t, 1, 1, func(k *dsl.Kernel) {
		x := dsl.Global[dsl.B128](k, "x", 32)
		v := dsl.NewVar(x.Load(k.Lane()), "v")
		k.If(k.Lane().LtC(16), func() {
			w := dsl.Split(v.Get())
			v.Set(dsl.Join(w[3], w[2].AddC(1), w[1], w[0]))
		})
		x.Store(k.Lane(), v.Get())
	})
	words := make([]uint32, 128)
	for i := range words {
		words[i] = uint32(i)
	}
	m := interp.NewMemory()
	m.Bind("x", putU32s(words...))
	run(t, p, m, 0)
	got := u32s(m.Bytes("x"))
	require.Equal(t, []uint32{3, 3, 1, 0}, got[:4])
	require.Equal(t, []uint32{63, 63, 61, 60}, got[60:64])
	require.Equal(t, words[64:], got[64:])
}

func TestOpaqueIsItsOperand(t *testing.T) {
	args := triples(20, 3)
	got := lanewise(t, args, func(_ *dsl.Kernel, a, _, _ dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return dsl.Opaque(a) })
	for i, a := range args {
		require.Equal(t, a[0], got[i])
	}
}
