package product_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/i4"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/stretchr/testify/require"
)

// withFloats is the product with codes of e2m1 of its own, as a checkpoint has them: all 16, scales of groups that
// differ, and of nvfp4 any f32 as the factor of each row.
func (c gemvCase) withFloats(rng *rand.Rand) gemvCase {
	for range c.rows {
		coded := &pipeline.Int4Row{Codes: make([]int8, c.k)}
		for range c.format.Scales(c.k) {
			if c.format == pipeline.FormatNVFP4 { // up to 56, so that four times as much is an e4m3
				coded.Scales = append(coded.Scales, pipeline.FromE4M3(byte(0x20+rng.IntN(0x47))))
			} else {
				coded.Scales = append(coded.Scales, float32(math.Ldexp(1, rng.IntN(9)-8)))
			}
		}
		if c.format == pipeline.FormatNVFP4 {
			coded.Scales[len(coded.Scales)-1] = float32(math.Exp(rng.NormFloat64()) / 1000)
		}
		for k := range coded.Codes {
			coded.Codes[k] = int8(rng.IntN(16) - 8) // bit 3 is the sign
		}
		c.coded = append(c.coded, coded)
	}
	return c
}

// meant are the weights that withFloats' codes stand for.
func (c gemvCase) meant() (w []float64) {
	for _, row := range c.coded {
		group, factor := 32, 1.0
		if c.format == pipeline.FormatNVFP4 {
			group, factor = 16, float64(row.Scales[len(row.Scales)-1])
		}
		for k, code := range row.Codes {
			number := float64(i4.Shape{E2M1: true}.Halves(code)) / 2
			w = append(w, number*float64(row.Scales[k/group])*factor)
		}
	}
	return w
}

func floatCases() []columns {
	return []columns{
		{gemvCase{rows: 40, k: 1024, sms: 2, consumers: 4, wide: 2}, 8, 8, 4},
		{gemvCase{rows: 13, k: 352, sms: 1, consumers: 3, wide: 1}, 16, 11, 3},
		{gemvCase{rows: 56, k: 2048, sms: 1, consumers: 8, stage: 9216, wide: 2}, 8, 3, 14},
	}
}

func TestGEMMOfFloatsOfFourBitsWithTheirOwnCodes(t *testing.T) {
	for _, f := range []pipeline.Format{pipeline.FormatMXFP4, pipeline.FormatNVFP4} {
		for _, c := range floatCases() {
			c.format, c.of = f, f
			t.Run(c.String(), func(t *testing.T) {
				rng := rig.Rand(uint64(c.rows))
				c.gemvCase = c.withFloats(rng)
				w := c.meant()
				x, got := c.outputs(t, rng)
				for i := range x {
					c.near(t, w, x[i], got[i])
				}
			})
		}
	}
}

// outputs are random inputs and what the kernel makes of each.
func (c columns) outputs(t *testing.T, rng *rand.Rand) (x, got [][]float64) {
	var inputs [][]half.BF16
	for range c.n {
		inputs = append(inputs, c.input(rng))
		x = append(x, rig.Wide(inputs[len(x)]))
	}
	y, even := rig.F32s(gemmRig(t, c, nil, inputs).Run()["y"]), (c.rows+1)/2*2
	for i := range c.n {
		got = append(got, y[i*even:][:c.rows])
	}
	return x, got
}

// One thing that is another in the image than in the float64 product is in its row, and in no other, more than the
// bound allows.
func TestGEMMOfFloatsOfFourBitsSeesWhatIsOff(t *testing.T) {
	const row = 5
	for name, change := range map[string]func(rows []*pipeline.Int4Row){
		"a neighbouring group's scale": func(rows []*pipeline.Int4Row) { rows[row].Scales[2] = rows[row].Scales[3] },
		"a neighbouring row's scale":   func(rows []*pipeline.Int4Row) { rows[row].Scales[2] = rows[row+1].Scales[2] },
		"two columns' codes": func(rows []*pipeline.Int4Row) {
			codes := rows[row].Codes
			codes[64], codes[65] = codes[65], codes[64]
		},
		"a code's sign": func(rows []*pipeline.Int4Row) { rows[row].Codes[100] -= 8 },
		"another row's factor": func(rows []*pipeline.Int4Row) {
			last := len(rows[row].Scales) - 1
			rows[row].Scales[last] = rows[row+1].Scales[last]
		},
	} {
		for _, f := range []pipeline.Format{pipeline.FormatMXFP4, pipeline.FormatNVFP4} {
			for _, c := range floatCases() {
				rng := rig.Rand(40)
				c.format, c.of = f, f
				c.gemvCase = c.withFloats(rng)
				for _, r := range c.coded[row : row+2] { // of which none is like another that it changes places with
					copy(r.Codes[64:], []int8{3, 5})
					r.Codes[100] = 6
				}
				scales := c.coded[row].Scales
				scales[3], c.coded[row+1].Scales[2] = 2*scales[2], 4*scales[2]
				w := c.meant()
				change(c.coded)
				x, got := c.outputs(t, rng)
				for i := range x {
					first, _ := c.off(w, x[i], got[i])
					require.Equal(t, row, first, "%s, %s, token %d", name, c, i)
				}
			}
		}
	}
}

// exponentCase multiplies one run of mxfp4 whose scales of a kind are all one byte: code 2, which is 1, and input x.
func exponentCase(n int, x float32) (int4Case, *int4Data) {
	c := int4Case{shape: i4.Shape{Group: 32, Run: 2, E2M1: true}, bf16: true, runs: 1, warps: 1, n: n}
	d := c.random(rig.Rand(7))
	alike(2, 0, x)(d, nil)
	return c, d
}

func (d *int4Data) exponents(group int, code uint16) {
	for row := range i4.Rows {
		d.runs[0].Scales[row][group] = code
	}
}

// TestExponentsAreExactToBothEnds multiplies by the least and the largest scales that E8M0 has beside 2⁻¹²⁷.
func TestExponentsAreExactToBothEnds(t *testing.T) {
	for _, n := range []int{1, 2} {
		for code, x := range map[uint16]float32{1: 0x1p40, 2: 0x1p20, 127: 1, 253: 0x1p-30, 254: 0x1p-40} {
			c, d := exponentCase(n, x)
			for group := range c.shape.RowEntries() {
				d.exponents(group, code)
			}
			c.check(t, d)
		}
	}
}

// TestExponentsOfNoScale: byte 0 adds nothing of its group, and 255 makes the rows' sums infinite, or of codes of 0 no
// numbers.
func TestExponentsOfNoScale(t *testing.T) {
	for _, n := range []int{1, 2} {
		for group := range 8 {
			c, d := exponentCase(n, 1)
			for g := range c.shape.RowEntries() {
				d.exponents(g, 127)
			}
			d.exponents(group, 0)
			for _, got := range rig.F32s(int4Rig(t, c, d).Run()["y"]) {
				require.Equal(t, 7*32.0, got, "group %d, %d blocks at once", group, n)
			}
			d.exponents(group, 255)
			for _, got := range rig.F32s(int4Rig(t, c, d).Run()["y"]) {
				require.True(t, math.IsInf(got, 1), "group %d, %d blocks at once", group, n)
			}
			alike(0, 0, 1)(d, nil)
			for _, got := range rig.F32s(int4Rig(t, c, d).Run()["y"]) {
				require.True(t, math.IsNaN(got), "group %d, %d blocks at once", group, n)
			}
		}
	}
}
