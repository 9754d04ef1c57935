package pipeline_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// TestWeightsOfCodesThatAreNotFinite spoils one code, scale or factor of a row that is all right without.
func TestWeightsOfCodesThatAreNotFinite(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		format pipeline.Format
		codes  []int8    // of columns from 130 on; 0 elsewhere
		scales []float32 // the last ones; 1 elsewhere
		column int
		want   string
	}{
		{pipeline.FormatI8, []int8{-128}, []float32{2e36}, -1, ""},
		{pipeline.FormatI8, []int8{5, -128}, []float32{2.7e36}, 131, "-Inf"},
		{pipeline.FormatI8, nil, []float32{inf}, 0, "NaN"},
		{pipeline.FormatI4G32, []int8{1, 1}, []float32{3e38}, -1, ""},
		{pipeline.FormatI4G32, []int8{1, 2}, []float32{3e38}, 131, "+Inf"},
		{pipeline.FormatI4G32, nil, []float32{nan}, 128, "NaN"},
		{"i4g32-zeros", []int8{7}, []float32{3e37}, 130, "+Inf"}, // 7 − −8
		{"i4g32-zeros", []int8{-7}, []float32{3e37}, -1, ""},
		{pipeline.FormatMXFP4, []int8{1, 2}, []float32{0x1p127}, -1, ""},
		{pipeline.FormatMXFP4, []int8{1, -1}, []float32{0x1p127}, 131, "-Inf"},
		{pipeline.FormatMXFP4, []int8{7}, []float32{0x1p125}, -1, ""},
		{pipeline.FormatMXFP4, []int8{7}, []float32{0x1p126}, 130, "+Inf"},
		{pipeline.FormatMXFP4, []int8{7}, []float32{0x1p-127}, -1, ""},
		{pipeline.FormatMXFP4, nil, []float32{nan}, 128, "NaN"},
		{pipeline.FormatNVFP4, []int8{2}, []float32{2, 1e38}, -1, ""},
		{pipeline.FormatNVFP4, []int8{4}, []float32{3, 1e38}, 130, "+Inf"},
		{pipeline.FormatNVFP4, nil, []float32{1, nan}, 0, "NaN"},
		{pipeline.FormatE4M3, []int8{0x7e, -2}, []float32{1}, -1, ""},
		{pipeline.FormatE4M3, []int8{0, 0x7f}, []float32{1}, 131, "NaN"},
		{pipeline.FormatE4M3, []int8{0x38, -2}, []float32{1e36}, 131, "-Inf"},
		{pipeline.FormatE4M3B128, []int8{0, 0, -1}, []float32{1}, 132, "NaN"},
		{pipeline.FormatE4M3B128, []int8{0x38, 0x7e}, []float32{1e36}, 131, "+Inf"},
	} {
		const columns = 144
		n := c.format.Scales(columns)
		row := pipeline.Int4Row{Codes: make([]int8, columns), Scales: make([]float32, n), Zeros: make([]int8, n)}
		copy(row.Codes[130:], c.codes)
		for g := range row.Scales {
			row.Scales[g], row.Zeros[g] = 1, -8
		}
		copy(row.Scales[n-len(c.scales):], c.scales)
		column, weight := c.format.NotFinite(&row)
		require.Equal(t, c.column, column, c)
		if column >= 0 {
			require.Equal(t, c.want, fmt.Sprint(weight), c)
		}
	}
}

func BenchmarkNotFinite(b *testing.B) {
	for _, f := range []pipeline.Format{pipeline.FormatE4M3, pipeline.FormatE4M3B128, pipeline.FormatI4G32} {
		b.Run(string(f), func(b *testing.B) {
			const columns = 8192
			n := f.Scales(columns)
			row := pipeline.Int4Row{Codes: make([]int8, columns), Scales: make([]float32, n), Zeros: make([]int8, n)}
			b.SetBytes(columns)
			for b.Loop() {
				f.NotFinite(&row)
			}
		})
	}
}
