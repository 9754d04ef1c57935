package checkpoint

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
)

func float32Bits(x float32) uint32 { return math.Float32bits(x) }

// nearest is bf16 by its definition: of the two neighbours of x, the nearer one, or
// else the even one. Infinity counts as 2^128.
func nearest(x float64) half.BF16 {
	value := func(bits half.BF16) float64 {
		if bits == 0x7f80 {
			return 0x1p128
		}
		return float64(bits.Float32())
	}
	sign := half.BF16(0)
	if math.Signbit(x) {
		sign, x = 0x8000, -x
	}
	low, high := half.BF16(0), half.BF16(0x7f80)
	for high-low > 1 {
		if middle := (low + high) / 2; value(middle) <= x {
			low = middle
		} else {
			high = middle
		}
	}
	below, above := x-value(low), value(high)-x
	if below < above || below == above && low%2 == 0 {
		return sign | low
	}
	return sign | high
}

func TestEveryF16RoundsToTheNearestBF16(t *testing.T) {
	for i := range 1 << 16 {
		x := half.F16(i)
		fraction, exponent := float64(x&0x3ff), int(x>>10&0x1f)
		switch {
		case exponent == 31 && fraction != 0:
			require.True(t, isNaN(fromF16(x)), "%04x", x)
			require.Equal(t, half.BF16(x&0x8000), fromF16(x)&0x8000)
			continue
		case exponent == 31:
			require.Equal(t, half.BF16(x&0x8000|0x7f80), fromF16(x))
			continue
		case exponent > 0:
			fraction, exponent = fraction+1024, exponent-1
		}
		value := math.Copysign(math.Ldexp(fraction, exponent-24), 1-float64(x>>14&2))
		if got := fromF16(x); got != nearest(value) {
			require.Equal(t, nearest(value), got, "%04x, which is %g", x, value)
		}
	}
}

func TestF32RoundsToTheNearestBF16(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var inputs []uint32
	for high := range 1 << 16 { // around every bf16 and every tie
		for _, low := range []uint32{0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, random.Uint32() & 0xffff} {
			inputs = append(inputs, uint32(high)<<16|low)
		}
	}
	for _, x := range inputs {
		value := math.Float32frombits(x)
		got := ofBits(x)
		switch {
		case value != value:
			if !isNaN(got) || got&0x8000 != half.BF16(x>>16)&0x8000 {
				require.Fail(t, "NaN", "%08x became %04x", x, got)
			}
		case math.IsInf(float64(value), 0):
			require.Equal(t, half.BF16(x>>16), got)
		case got != nearest(float64(value)):
			require.Equal(t, nearest(float64(value)), got, "%08x", x)
		}
	}
}

// TestAllLengthsConvertAlike: the loops that take four elements at a time agree with
// single elements, and write nothing beyond.
func TestAllLengthsConvertAlike(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	table := newF16Table()
	for n := range 19 {
		src := make([]byte, 4*n)
		for i := range src {
			src[i] = byte(random.Uint32())
		}
		for _, from := range []models.DType{models.BF16, models.F16, models.F32} {
			dst := make([]half.BF16, n+1)
			dst[n] = 0xabcd
			convert(dst[:n], src[:n*from.Bytes()], from, table)
			for i := range n {
				require.Equal(t, element(src[i*from.Bytes():], from), dst[i])
			}
			require.Equal(t, half.BF16(0xabcd), dst[n])
		}
	}
}

func TestRowsAtOddAddressesConvert(t *testing.T) {
	buffer := []byte{0xff, 0x80, 0x3f, 0x00, 0xc0, 0xff}
	dst := make([]half.BF16, 2)
	convert(dst, buffer[1:5], models.BF16, nil)
	require.Equal(t, []half.BF16{0x3f80, 0xc000}, dst)
	wide := binary.LittleEndian.AppendUint32([]byte{9}, float32Bits(1))
	convert(dst[:1], wide[1:], models.F32, nil)
	require.Equal(t, half.BF16(0x3f80), dst[0])
}

func isNaN(b half.BF16) bool { return b&0x7fff > 0x7f80 }
