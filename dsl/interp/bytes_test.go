package interp_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/dsl"
)

// TestByteProductIsAMatrixProduct takes both kinds of A, with sums that go past 32 bits.
func TestByteProductIsAMatrixProduct(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for _, signed := range []bool{false, true} {
		for _, edge := range []int32{0, math.MaxInt32, math.MinInt32} {
			byteProduct(t, r, signed, edge)
		}
	}
}

// byteProduct multiplies random bytes, of which a fifth are as large as they can be; C is near edge.
func byteProduct(t *testing.T, r *rand.Rand, signed bool, edge int32) {
	var a [16][32]int64
	var b [32][8]int64
	var c [16][8]int32
	some := func(lo, hi int64) int64 {
		return []int64{lo, hi, r.Int64N(hi-lo+1) + lo, r.Int64N(hi-lo+1) + lo, r.Int64N(hi-lo+1) + lo}[r.IntN(5)]
	}
	for i := range a {
		for k := range a[i] {
			a[i][k] = some(0, 255)
			if signed {
				a[i][k] = some(-128, 127)
			}
		}
	}
	for k := range b {
		for j := range b[k] {
			b[k][j] = some(-128, 127)
		}
	}
	words := make([]uint32, 32*12)
	for l := range 32 { // PTX's figures for m16n8k32 of 8 bits
		g, q, w := l/4, l%4, words[12*l:]
		for n := range 4 {
			for _, at := range [][3]int{{0, g, 4 * q}, {1, g + 8, 4 * q}, {2, g, 4*q + 16}, {3, g + 8, 4*q + 16}} {
				w[at[0]] |= uint32(uint8(a[at[1]][at[2]+n])) << (8 * n)
			}
			w[4] |= uint32(uint8(b[4*q+n][g])) << (8 * n)
			w[5] |= uint32(uint8(b[4*q+16+n][g])) << (8 * n)
			row, col := g+n/2*8, 2*q+n%2
			c[row][col] = edge + int32(r.IntN(9)-4)
			w[6+n] = uint32(c[row][col])
		}
	}
	p := build(t, 1, 1, func(k *dsl.Kernel) {
		x, y := dsl.Global[dsl.U32](k, "x", 32*12, dsl.ReadOnly()), dsl.Global[dsl.I32](k, "y", 128)
		var u [4]dsl.Val[dsl.U32]
		s := make([]dsl.Val[dsl.I32], 10)
		for i := range s {
			w := x.Load(k.Lane().MulC(12).AddC(i))
			if i < 4 && !signed {
				u[i] = w
			} else {
				s[i] = dsl.Bits[dsl.I32](w)
			}
		}
		var d [4]dsl.Val[dsl.I32]
		if signed {
			d = dsl.MMABytes([4]dsl.Val[dsl.I32](s), [2]dsl.Val[dsl.I32](s[4:]), [4]dsl.Val[dsl.I32](s[6:]))
		} else {
			d = dsl.MMABytes(u, [2]dsl.Val[dsl.I32](s[4:]), [4]dsl.Val[dsl.I32](s[6:]))
		}
		y.StoreN(k.Lane().MulC(4), d[:])
	})
	m := bufs(p)
	m.Bind("x", putU32s(words...))
	run(t, p, m, 0)
	y := u32s(m.Bytes("y"))
	for i := range 16 {
		for j := range 8 {
			want := int64(c[i][j])
			for k := range 32 {
				want += a[i][k] * b[k][j]
			}
			lane, reg := i%8*4+j/2, j%2+2*(i/8)
			require.Equal(t, int32(want), int32(y[4*lane+reg]), "D[%d][%d], signed %v, C near %d", i, j, signed, edge)
		}
	}
}

func TestReduxOfAllLanes(t *testing.T) {
	x := make([]uint32, 32)
	for l := range x {
		x[l] = uint32(l) * 0x91234567
	}
	var sum, most uint32
	least := int32(math.MinInt32)
	for _, v := range x {
		sum, most, least = sum+v, max(most, v), max(least, int32(v))
	}
	p := build(t, 1, 1, func(k *dsl.Kernel) {
		in, out := dsl.Global[dsl.U32](k, "x", 32, dsl.ReadOnly()), dsl.Global[dsl.U32](k, "y", 128)
		v := in.Load(k.Lane())
		s := dsl.Bits[dsl.I32](v)
		out.StoreN(k.Lane().MulC(4), []dsl.Val[dsl.U32]{dsl.ReduxAdd(v), dsl.ReduxMax(v),
			dsl.Bits[dsl.U32](dsl.ReduxAdd(s)), dsl.Bits[dsl.U32](dsl.ReduxMax(s))})
	})
	m := bufs(p)
	m.Bind("x", putU32s(x...))
	run(t, p, m, 0)
	for l := range 32 {
		require.Equal(t, []uint32{sum, most, sum, uint32(least)}, u32s(m.Bytes("y"))[4*l:][:4], "lane %d", l)
	}
}
