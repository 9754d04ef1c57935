package reference

import (
	"math"
	"testing"

	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

func TestE4M3OfEveryCodeAndBetween(t *testing.T) {
	require.Equal(t, []float64{0, 0x1p-9, 7 * 0x1p-9, 0x1p-6, 1, 1.125, 448}, []float64{
		FromE4M3(0), FromE4M3(1), FromE4M3(7), FromE4M3(8), FromE4M3(0x38), FromE4M3(0x39), FromE4M3(0x7e)})
	for code := range 0x7f {
		x := FromE4M3(byte(code))
		require.Equal(t, byte(code), ToE4M3(x))
		require.Equal(t, byte(code|0x80), ToE4M3(-x))
		require.Equal(t, x, RoundE4M3(x))
		if code == 0x7e {
			break
		}
		next := FromE4M3(byte(code + 1))
		require.Greater(t, next, x)
		even := code + code%2
		require.Equal(t, byte(even), ToE4M3((x+next)/2), "between %#x and the next", code)
		require.Equal(t, byte(code), ToE4M3(math.Nextafter((x+next)/2, 0)))
		require.Equal(t, byte(code+1), ToE4M3(math.Nextafter((x+next)/2, 500)))
	}
	for _, x := range []float64{463, 464, 465, 1e30, math.Inf(1)} {
		require.Equal(t, []float64{448, -448}, []float64{RoundE4M3(x), RoundE4M3(-x)})
	}
	require.True(t, math.IsNaN(FromE4M3(0x7f)) && math.IsNaN(FromE4M3(0xff)) && math.IsNaN(RoundE4M3(math.NaN())))
	require.Equal(t, byte(0x7f), ToE4M3(math.NaN()))
	require.True(t, math.Signbit(FromE4M3(0x80)))
}

func TestAnE4M3CacheHasScales(t *testing.T) {
	s := models.Config{KVHeads: 2, HeadDim: 2, Layers: 2}
	var seen []Point
	h := WithE4M3Cache(Hooks{At: func(_ int, p Point, _ []float64) { seen = append(seen, p) }}, s,
		[]float32{9, 9, 9, 9, 1, 2, 0.5, 9})
	k, v := []float64{1.06, 500, 1.06, 500}, []float64{1.06, 1000, 0, 0}
	h.At(1, Key, k)
	h.At(1, Value, v)
	h.At(1, Query, nil)
	require.Equal(t, []float64{1, 448, 1, 224}, k)
	require.Equal(t, []float64{1, 896, 0, 0}, v)
	require.Equal(t, []Point{Query}, seen)
}
