package pipeline_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// mxfp4Plan has one matrix of mxfp4.
func mxfp4Plan(t *testing.T, rows, k int) *pipeline.Plan {
	p, err := pipeline.New(pipeline.Request{SMs: 1, Layers: 1, SharedLimit: 1 << 17,
		Layer: []pipeline.Matrix{{Name: "a", Rows: rows, K: k, Format: pipeline.FormatMXFP4}}})
	require.NoError(t, err)
	return p
}

// TestScalesOfMXFP4AreABytePacked: of whole blocks an image has just the bytes of the format.
func TestScalesOfMXFP4AreABytePacked(t *testing.T) {
	for _, k := range []int{128, 384, 4096} {
		m := mxfp4Plan(t, 16, k).Layer[0]
		require.Equal(t, int64(16*k/2+16*k/32), m.WeightBytes())
		require.Equal(t, m.WeightBytes(), m.TileBytes()*int64(m.Tiles))
		require.Equal(t, m.WeightBytes(), m.StreamedBytes())
	}
}

// TestExponentsComeBack packs codes of 1 with each scale that E8M0 has. The least, 2⁻¹²⁷, comes back as 0.
func TestExponentsComeBack(t *testing.T) {
	const k = 128
	p := mxfp4Plan(t, 8, k)
	m, image, got := &p.Layer[0], make([]byte, p.LayerBytes), make([]half.BF16, 8*k)
	var rows [pipeline.TileRows]*pipeline.Int4Row
	for first := 0; first < 256; first += 32 {
		for r := range rows {
			rows[r] = &pipeline.Int4Row{Codes: make([]int8, k), Scales: make([]float32, 4)}
			for i := range rows[r].Codes {
				rows[r].Codes[i] = 2
			}
			for g := range 4 {
				rows[r].Scales[g] = e8m0(first + 4*r + g)
			}
		}
		require.NoError(t, m.PackCoded(image[:m.TileBytes()], &rows))
		require.NoError(t, p.Unpack(got, image, 0, 0))
		for i, v := range got {
			code, x := first+4*(i/k)+i%k/32, v.Float32()
			switch code {
			case 0:
				require.Zero(t, x)
			case 255:
				require.True(t, math.IsNaN(float64(x)))
			default:
				require.Equal(t, e8m0(code), x, "exponent %d", code)
			}
		}
	}
}

// e8m0 is the number of a byte.
func e8m0(code int) float32 {
	if code == 255 {
		return float32(math.NaN())
	}
	return float32(math.Ldexp(1, code-127))
}

func TestScalesThatAreNoPowersOfTwoAreRefused(t *testing.T) {
	m := &mxfp4Plan(t, 1, 128).Layer[0]
	for _, scale := range []float32{3, -1, 1.5, 0x1p-128, 0x1.8p-127, -0x1p-127, float32(math.Inf(1))} {
		row := &pipeline.Int4Row{Codes: make([]int8, 128), Scales: []float32{1, 1, scale, 1}}
		err := m.PackCoded(make([]byte, m.TileBytes()), &[pipeline.TileRows]*pipeline.Int4Row{row})
		require.EqualError(t, err,
			fmt.Sprintf(`pipeline: scale %v of row 0 of a tile of "a", want one that mxfp4 can hold`, scale))
	}
}
