package half

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every pattern is what it was after the way through a float, and what lies between two neighbours rounds to the
// nearer, a tie to the even one.
func TestEveryPatternComesBackAndMiddlesRoundToEven(t *testing.T) {
	for i := range 1 << 16 {
		b, f := BF16(i), F16(i)
		if x := b.Float32(); x == x {
			require.Equal(t, b, BF16Of(x))
			require.Equal(t, b, ExactBF16(x))
		} else {
			require.True(t, BF16Of(x).Float32() != BF16Of(x).Float32(), "%04x", i)
		}
		if x := f.Float32(); x == x {
			require.Equal(t, f, F16Of(float64(x)))
		} else {
			require.Equal(t, F16(0x7e00), F16Of(float64(x))&0x7fff)
		}
		if i&0x7fff >= 0x7c00-1 {
			continue
		}
		low, high := float64(f.Float32()), float64((f + 1).Float32())
		even := f + f&1
		require.Equal(t, even, F16Of((low+high)/2), "%04x", i)
		require.Equal(t, f, F16Of(math.Nextafter((low+high)/2, low)), "%04x", i)
		require.Equal(t, f+1, F16Of(math.Nextafter((low+high)/2, high)), "%04x", i)
	}
	require.Equal(t, F16(0x7bff), F16Of(math.Nextafter(65520, 0)))
	require.Equal(t, F16(0xfc00), F16Of(-65520))
	for i := range 0x7f7f {
		b := BF16(i)
		middle := math.Float32frombits(uint32(i)<<16 | 0x8000)
		require.Equal(t, b+b&1, BF16Of(middle), "%04x", i)
		require.Equal(t, b, BF16Of(math.Nextafter32(middle, 0)), "%04x", i)
		require.Equal(t, b+1, BF16Of(math.Nextafter32(middle, float32(math.Inf(1)))), "%04x", i)
	}
	require.Equal(t, BF16(0x7f80), BF16Of(math.MaxFloat32))
	require.Equal(t, BF16(0xff80), BF16Of(float32(math.Inf(-1))))
}

func TestBytesAreLittleEndian(t *testing.T) {
	data := make([]byte, 2)
	BF16(0x3f81).Put(data)
	require.Equal(t, []byte{0x81, 0x3f}, data)
	require.Equal(t, BF16(0x3f81), BF16At(data))
	require.Equal(t, F16(0x3f81), F16At(data))
	require.Equal(t, []byte{0, 1, 0x3f, 2, 0x3c}, F16(0x3c02).Append(BF16(0x3f01).Append([]byte{0})))
	F16(0x3c02).Put(data)
	require.Equal(t, []byte{2, 0x3c}, data)
}
