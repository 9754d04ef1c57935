package probe

import (
	"fmt"
	"math"

	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/synth"
)

// Projections is how many numbers stand for a key or a value in a file of rows: sums of its
// elements with random signs. Their squares sum to Projections times the row's on average, so
// that a row is compared without having all of it.
const Projections = 8

// signSequence is the number of the sequence of package synth whose tokens below 256 are the
// signs: bit j of token d is 1 where projection j subtracts element d.
const signSequence = 1 << 20

// projected are the projections of a row.
func projected(row []float32, signs []int) (out [Projections]float64) {
	for d, x := range row {
		for j := range out {
			if signs[d]>>j&1 == 0 {
				out[j] += float64(x)
			} else {
				out[j] -= float64(x)
			}
		}
	}
	return out
}

// RowsBytes is the length of a layer's part of a file of rows: [K, V][heads][tokens][Projections]
// in half precision, little-endian.
func RowsBytes(heads, tokens int) int { return 2 * heads * tokens * Projections * 2 }

// CompareRows compares a layer's rows with those of a file, of which want is the layer's part for
// a sequence of n tokens. A row's difference is relative to the size that rows of its head
// have on average.
func CompareRows(f *Figures, layer int, rows *Rows, want []byte, tokens int) {
	signs := synth.Tokens(0, signSequence, rows.D, 1<<Projections)
	found := make([]headRows, 2*rows.Heads)
	each(len(found), func(i int) {
		v, head := i/rows.Heads, i%rows.Heads
		at := ((i * tokens) + rows.From) * Projections * 2
		found[i] = compareHead(rows, v, head, want[at:], signs)
	})
	for i, h := range found {
		what := fmt.Sprintf("layer %d, KV head %d, %s", layer, i%rows.Heads, []string{"key", "value"}[i/rows.Heads])
		for t, x := range h.each {
			f.note(CacheRow, x, func() string { return fmt.Sprintf("%s of position %d", what, rows.From+t) })
		}
		f.note(CacheRowScale, math.Abs(h.factor-1), func() string { return fmt.Sprintf("%ss, times %.4f", what, h.factor) })
	}
}

// headRows is how far a head's rows are from what they should be, and by what factor all of them
// are larger.
type headRows struct {
	each   []float64
	factor float64
}

func compareHead(rows *Rows, v, head int, want []byte, signs []int) headRows {
	h := headRows{each: make([]float64, rows.Tokens)}
	product, size := 0.0, 0.0
	for t := range h.each {
		got := projected(rows.Row(v, t, head), signs)
		for j, x := range got {
			w := float64(half.F16At(want[2*(t*Projections+j):]).Float32())
			product += x * w
			size += w * w
			h.each[t] += (x - w) * (x - w)
		}
	}
	for t, x := range h.each {
		h.each[t] = math.Sqrt(x / size * float64(rows.Tokens))
	}
	h.factor = product / size
	return h
}

// PutRow appends the projections of a row, as a file of rows has them. What half precision
// cannot hold becomes infinite.
func PutRow(out []byte, row []float32) []byte {
	for _, x := range projected(row, synth.Tokens(0, signSequence, len(row), 1<<Projections)) {
		out = half.F16Of(x).Append(out)
	}
	return out
}
