package product_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/i4"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/product"
	"github.com/stretchr/testify/require"
)

// int4Case is the product of one row tile of 4-bit weights with a token.
type int4Case struct {
	shape i4.Shape
	bf16  bool
	runs  int // of shape.Run blocks
	warps int
	n     int // blocks that a warp multiplies at once
}

func (c int4Case) k() int { return c.runs * c.shape.Run * i4.Columns }

func (c int4Case) String() string {
	return fmt.Sprintf("%d bits, e2m1 %v, groups of %d, zeros %v, bf16 %v, %d columns, %d warps, %d blocks at once",
		c.shape.Bits(), c.shape.E2M1, c.shape.Group, c.shape.Zeros, c.bf16, c.k(), c.warps, c.n)
}

// int4Data are weights and input: runs as they lie, x [k], and the scales of whole rows.
type int4Data struct {
	runs    []*i4.Run
	x       []float32
	scales  [i4.Rows]float32
	mutated func(packed []byte) // changes what the kernel gets, not what is expected
}

// int4Rig is the kernel: consumer warps stage the input, then take n blocks in turns, and their sums are added in
// the order of the warps.
func int4Rig(t testing.TB, c int4Case, d *int4Data) *rig.Rig {
	r := rig.New(t, rig.Setup{Consumers: c.warps})
	k, e := r.K, r.Env
	packed := make([]byte, c.runs*c.shape.RunBytes())
	for i, run := range d.runs {
		require.NoError(t, c.shape.Pack(packed[i*c.shape.RunBytes():][:c.shape.RunBytes()], run))
	}
	if d.mutated != nil {
		d.mutated(packed)
	}
	w := rig.In[dsl.B128](r, "w", packed, len(packed)/16)
	x := rig.In[dsl.F32](r, "x", rig.F32Bytes(d.x), len(d.x))
	scales := rig.In[dsl.F32](r, "scales", rig.F32Bytes(d.scales[:]), i4.Rows)
	y := rig.Out[dsl.F32](r, "y", i4.Rows)
	words, units, sums := product.FixedLen(c.k())
	f := &product.FixedInput{K: c.k(), Bytes: dsl.Shared[dsl.U32](k, "bytes", words, dsl.Align(16)),
		Units: dsl.Shared[dsl.F32](k, "units", units, dsl.Align(16)), Wide: c.shape.Wide}
	if c.shape.Zeros {
		s := dsl.Shared[dsl.I32](k, "sums", sums, dsl.Align(16))
		f.Sums = &s
	}
	p := &product.Int4{Name: "w", Shape: c.shape, BF16: c.bf16, X: f,
		Data: dsl.Shared[dsl.B128](k, "data", len(packed)/16)}
	parts := dsl.Shared[dsl.F32](k, "parts", c.warps*i4.Rows)
	r.Body(func(*pipeline.Consumer) {
		e.EachConsumer(len(packed)/16, func(i dsl.Val[dsl.U32]) { p.Data.Store(i, w.Load(i)) })
		k.ForStep(e.Warp, k.U32(f.Groups()), c.warps, func(i dsl.Val[dsl.U32]) {
			f.Stage(e, i, [4]dsl.Val[dsl.F32](x.LoadN(i.MulC(128).Add(e.Lane.MulC(4)), 4)), 0)
		})
		e.Sync()
		s := p.Begin(e)
		k.ForStep(e.Warp.MulC(c.n), k.U32(c.runs*c.shape.Run), c.n*c.warps, func(block dsl.Val[dsl.U32]) {
			run := block.DivC(c.shape.Run).MulC(c.shape.RunBytes() / 16)
			input := p.Input(e, block, c.n)
			p.Multiply(e, s, p.Load(e, run, block.RemC(c.shape.Run), c.n), input)
		}, dsl.Unroll(1))
		sum := p.Sum(s)
		k.If(e.Lane.RemC(4).EqC(0), func() { parts.Store(e.Warp.MulC(i4.Rows).Add(e.Lane.DivC(4)), sum) })
		e.Sync()
		e.EachConsumer(i4.Rows, func(i dsl.Val[dsl.U32]) {
			sum := parts.Load(i)
			for w := 1; w < c.warps; w++ {
				sum = sum.Add(parts.Load(i.AddC(w * i4.Rows)))
			}
			if c.shape.Group == i4.Whole {
				sum = sum.Mul(scales.Load(i))
			}
			y.Store(i, sum)
		})
	}, nil)
	return r
}

// int4Cases are a few kernels of each kind.
func int4Cases() (all []int4Case) {
	for _, group := range []int{128, 64, 32, 16, i4.Whole} {
		for i := range 6 {
			c := int4Case{shape: i4.Shape{Group: group, Run: 4}, bf16: i%2 == 1, runs: 1 + i%2, warps: 1 + 2*(i%2),
				n: []int{4, 1, 2}[i%3]}
			if group == 32 || group == 16 { // as mxfp4 and nvfp4
				e2m1 := c
				e2m1.shape.E2M1, e2m1.bf16 = true, group == 32
				all = append(all, e2m1)
			}
			if group == 16 {
				continue
			}
			for _, zeros := range []bool{false, true} {
				if c.shape.Zeros = zeros; zeros && group == i4.Whole {
					continue
				}
				wide := c
				wide.shape.Wide = true
				all = append(all, c, wide)
			}
		}
	}
	return all
}

// scaleOf is the value of a scale's bits.
func (c int4Case) scaleOf(bits uint16) float32 {
	if c.shape.Group == 16 {
		return pipeline.FromE4M3(byte(bits))
	}
	if c.shape.Exponents() {
		return math.Float32frombits(uint32(bits) << 23)
	}
	if c.bf16 {
		return math.Float32frombits(uint32(bits) << 16)
	}
	exp, man := int(bits>>10&31), float64(bits&1023)
	if exp == 0 {
		return float32(math.Ldexp(man, -24))
	}
	return float32(math.Ldexp(man+1024, exp-25))
}

// random are codes of all values, scales of 2⁻⁷ to 2⁻³, and an input whose groups differ much in size.
func (c int4Case) random(rng *rand.Rand) *int4Data {
	d := &int4Data{}
	_, _, half := c.shape.Range()
	zeroPoint := func() int8 { return int8(min(rng.IntN(2*half+1)-half, 127)) }
	scaleBits := func() uint16 { // positive
		if c.shape.Group == 16 {
			if rng.IntN(16) == 0 {
				return uint16(1 + rng.IntN(7)) // subnormal
			}
			return uint16(40 + rng.IntN(32))
		}
		if c.shape.Exponents() {
			return uint16(116 + rng.IntN(8))
		}
		if c.bf16 {
			return uint16(120+rng.IntN(4))<<7 | uint16(rng.IntN(128))
		}
		return uint16(8+rng.IntN(4))<<10 | uint16(rng.IntN(1024))
	}
	for range c.runs {
		run := &i4.Run{}
		for row := range i4.Rows {
			for range c.shape.Run * i4.Columns {
				run.Codes[row] = append(run.Codes[row], int8(rng.IntN(2*half)-half))
			}
			for range c.shape.RowEntries() {
				run.Scales[row] = append(run.Scales[row], scaleBits())
				run.Zeros[row] = append(run.Zeros[row], zeroPoint())
			}
		}
		d.runs = append(d.runs, run)
	}
	for row := range i4.Rows {
		d.scales[row] = float32(math.Ldexp(1+rng.Float64(), -6))
	}
	for range c.k() / i4.Columns {
		size := math.Ldexp(1, rng.IntN(21)-10)
		if c.shape.Group == 16 { // whose scales differ enough
			size = math.Ldexp(1, rng.IntN(6)+5)
		}
		for range i4.Columns {
			d.x = append(d.x, float32(rng.NormFloat64()*size))
		}
	}
	return d
}

// weight is a code less its zero point, and its scale, of a row and column; of E2M1 two times the number and half the
// scale.
func (c int4Case) weight(d *int4Data, row, column int) (int64, float32) {
	run, in := d.runs[column/c.shape.Run/i4.Columns], column%(c.shape.Run*i4.Columns)
	code := int64(run.Codes[row][in])
	if c.shape.E2M1 {
		code = int64([]float64{0, 1, 2, 3, 4, 6, 8, 12}[code&7]) * (1 - 2*(code>>3&1))
		return code, c.scaleOf(run.Scales[row][in/c.shape.Group]) / 2
	}
	if c.shape.Group == i4.Whole {
		return code, d.scales[row]
	}
	g := in / c.shape.Group
	if c.shape.Zeros {
		code -= int64(run.Zeros[row][g])
	}
	return code, c.scaleOf(run.Scales[row][g])
}

// fusedOnce is a·b + c with one rounding. The product is exact in float64; of the sum the last bit is made odd where it
// is not exact, so that rounding it again to 24 bits rounds as the exact sum would.
func fusedOnce(a, b, c float32) float32 {
	p, z := float64(a)*float64(b), float64(c)
	sum := p + z
	back := sum - p
	left := (p - (sum - back)) + (z - back)
	if bits := math.Float64bits(sum); left != 0 && bits&1 == 0 {
		if (left > 0) == (sum > 0) {
			bits++
		} else {
			bits--
		}
		sum = math.Float64frombits(bits)
	}
	return float32(sum)
}

// exact is what the kernel must give in every bit: integer sums of up to 64 columns, in int64, turned to f32 and
// added by fma in order, each half of a block for itself, a warp's blocks, then the warps.
func (c int4Case) exact(d *int4Data) (y []float32) {
	for row := range i4.Rows {
		sum := c.warpSum(d, row, 0)
		for w := 1; w < c.warps; w++ {
			sum += c.warpSum(d, row, w)
		}
		if c.shape.Group == i4.Whole {
			sum *= d.scales[row]
		}
		y = append(y, sum)
	}
	return y
}

// spread is whether all four lanes that share a row have sums of its scale groups.
func (c int4Case) spread() bool {
	return c.shape.Group == 16 || c.shape.Group == 32 && !c.shape.Zeros
}

func (c int4Case) warpSum(d *int4Data, row, warp int) float32 {
	var halves [4]float32
	const together = 64 // columns that are added up to one sum
	span := together
	if c.shape.Group != i4.Whole {
		span = min(span, c.shape.Group)
	}
	for block := range c.k() / i4.Columns {
		if block/c.n%c.warps != warp {
			continue
		}
		q, unit := i4.Fixed(d.x[block*i4.Columns:][:i4.Columns])
		for first := 0; first < i4.Columns; first += span {
			var sum int64
			_, scale := c.weight(d, row, block*i4.Columns+first)
			for i := first; i < first+span; i++ {
				w, _ := c.weight(d, row, block*i4.Columns+i)
				sum += int64(c.shape.Times()) * w * int64(q[i])
			}
			if sum != int64(int32(sum)) {
				panic("a sum has no room in 32 bits")
			}
			by := unit / float32(c.shape.Times())
			if c.shape.Group != i4.Whole {
				by *= scale
			}
			h := &halves[first/together]
			if c.spread() && first/span%2 == 1 { // every other group's sum is another lane's
				h = &halves[2+first/together]
			}
			*h = fusedOnce(float32(sum), by, *h)
		}
	}
	return halves[0] + halves[1] + (halves[2] + halves[3])
}

// check runs the kernel and compares every bit with exact, and values with float64's of the weights times the
// input itself.
//
// The bound: an element's fixed point is off by 2^(e−1) at most. What is in f32 is off by 2⁻²⁴ of the sum of magnitudes
// for each of: the sum turned to f32, the scale times the unit, an fma a group of the half, one sum of halves, the
// warps', and the row's scale.
func (c int4Case) check(t *testing.T, d *int4Data) {
	t.Helper()
	y := rig.F32s(int4Rig(t, c, d).Run()["y"])
	exact := c.exact(d)
	var units []float64
	for group := range slices.Chunk(d.x, i4.Columns) {
		_, unit := i4.Fixed(group)
		units = append(units, float64(unit))
	}
	for row, got := range y {
		require.Equal(t, float64(exact[row]), got, "%s: row %d", c, row)
		var want, abs, fixed float64
		for i, v := range d.x {
			w, s := c.weight(d, row, i)
			product := float64(w) * float64(s)
			want, abs = want+product*float64(v), abs+math.Abs(product*float64(v))
			fixed += math.Abs(product) * units[i/i4.Columns] / 2
		}
		steps := float64(c.k()/16 + c.warps + 4)
		require.LessOrEqual(t, math.Abs(want-got), fixed+steps*0x1p-24*(abs+fixed), "%s: row %d", c, row)
	}
}

func TestInt4IsExactInEveryShape(t *testing.T) {
	for i, c := range int4Cases() {
		c.check(t, c.random(rand.New(rand.NewPCG(uint64(i), 4))))
	}
}
