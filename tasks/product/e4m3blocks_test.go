package product_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/stretchr/testify/require"
)

// Of e4m3 with blocks a tile group has 256 columns: two blocks and their scales.
func TestGEMVOfE4M3WithBlocks(t *testing.T) {
	for _, c := range []gemvCase{
		{rows: 8, k: 128, sms: 1, consumers: 1},                // half a group
		{rows: 16, k: 768, sms: 1, consumers: 2},               // 3 groups over 2 warps
		{rows: 40, k: 4352, sms: 2, consumers: 8, stage: 4352}, // 17 groups: 8 chunks of 2 and a tail of 1
		// rows not a multiple of 8, odd; a block of 72 columns
		{rows: 13, k: 200, sms: 1, consumers: 2},
		{rows: 280, k: 512, sms: 1, consumers: 2, stage: 4352},          // 35 tiles of three blocks' rows: 3 batches
		{rows: 32, k: 3072, sms: 1, consumers: 4, stage: 8448, held: 3}, // chunks held
	} {
		c.format = pipeline.FormatE4M3B128
		t.Run(c.String(), c.check)
		t.Run("own codes, "+c.String(), func(t *testing.T) {
			rng := rig.Rand(uint64(c.rows))
			c, w := c.withCodes(rng)
			x := c.input(rng)
			got, exact := rig.F32s(gemvRig(t, c, nil, x).Run()["y"]), rig.Wide(x)
			c.near(t, w, exact, got)
		})
	}
}

func TestGEMMOfE4M3WithBlocks(t *testing.T) {
	for _, c := range []columns{
		{gemvCase{rows: 8, k: 128, sms: 1, consumers: 1}, 2, 2, 1},
		{gemvCase{rows: 24, k: 768, sms: 1, consumers: 2}, 16, 16, 4},
		{gemvCase{rows: 40, k: 2304, sms: 2, consumers: 4, stage: 8448}, 16, 5, 14},  // chunks of 4 groups and a tail of 1
		{gemvCase{rows: 50, k: 1240, sms: 3, consumers: 4, stage: 4352}, 8, 7, 3},    // a group of 216 columns
		{gemvCase{rows: 280, k: 256, sms: 1, consumers: 8}, 8, 8, 14},                // warps without a group
		{gemvCase{rows: 280, k: 2048, sms: 1, consumers: 8, stage: 16640}, 8, 8, 14}, // a chunk a tile
	} {
		c.format = pipeline.FormatE4M3B128
		t.Run(c.String(), c.check)
		t.Run("own codes, "+c.String(), func(t *testing.T) {
			rng := rig.Rand(uint64(c.rows))
			own, w := c.withCodes(rng)
			c.gemvCase = own
			var x [][]half.BF16
			for range c.n {
				x = append(x, c.input(rng))
			}
			got, even := rig.F32s(gemmRig(t, c, nil, x).Run()["y"]), (c.rows+1)/2*2
			for i, v := range x {
				c.near(t, w, rig.Wide(v), got[i*even:][:c.rows])
			}
		})
	}
}

// withCodes is the product with codes of its own, of all values, and scales that are no powers of two; w is what they
// mean.
func (c gemvCase) withCodes(rng *rand.Rand) (gemvCase, []float64) {
	blocks := (c.k + pipeline.BlockSize - 1) / pipeline.BlockSize
	scales, w := make([]float32, blocks), []float64{}
	for row := range c.rows {
		if row%pipeline.BlockSize == 0 {
			scales = make([]float32, blocks)
			for g := range scales {
				scales[g] = float32(math.Exp(rng.NormFloat64()) / 100)
			}
		}
		coded := &pipeline.Int4Row{Codes: make([]int8, c.k), Scales: scales}
		for k := range coded.Codes {
			code := byte(rng.IntN(256))
			if code&0x7f == 0x7f {
				code--
			}
			coded.Codes[k] = int8(code)
			w = append(w, float64(pipeline.FromE4M3(code))*float64(scales[k/pipeline.BlockSize]))
		}
		c.coded = append(c.coded, coded)
	}
	return c, w
}

// near compares with the float64 product of weights; as in gemvTolerance only sums round, and each block's once more
// when it is scaled.
func (c gemvCase) near(t *testing.T, w, x, got []float64) {
	t.Helper()
	row, want := c.off(w, x, got)
	require.Negative(t, row, "row %d: found %v, want %v", row, got[max(0, row)], want)
}

// off is the first row further from the float64 product than near allows, and that product; -1 of none.
func (c gemvCase) off(w, x, got []float64) (row int, want float64) {
	for row := range c.rows {
		sum, size := 0.0, 0.0
		for k, v := range x {
			p := w[row*c.k+k] * v
			sum += p
			size += math.Abs(p)
		}
		if !(math.Abs(sum-got[row]) <= 0x1p-20*size) { // NaN is off
			return row, sum
		}
	}
	return -1, 0
}
