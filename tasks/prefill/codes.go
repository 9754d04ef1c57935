package prefill

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/i4"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
	"github.com/mkgen/mkgen/tasks/product"
)

// laneCodes reads a matrix as it is packed, a piece of a row tile at a time: a run of
// blocks of integers, or of e4m3 as many tile groups. A lane has weights of row lane/4 of the tile: in f32 a code,
// less the zero point, times the scale.
type laneCodes struct {
	m       *pipeline.MatrixPlan
	weights dsl.Buf[dsl.B128]
}

// laneWeights takes 2·n weights of a lane, neighbours in a row, of k group number group of a piece. pair(i) is the i-th
// two of them.
type laneWeights func(group, n int, pair func(i int) (lo, hi f32))

type u64 = dsl.Val[dsl.U64]

func (c *laneCodes) problem() string {
	name, shape := c.m.Name, i4.Shape{}
	if p := c.int4(); p != nil {
		shape = p.Shape
	}
	return rule.First(
		rule.Need(!c.m.Across(), "%s: weights by columns, want rows", name),
		rule.Need(!shape.Zeros || shape.Group != i4.Whole, "%s: zero points of whole rows, want those of groups", name))
}

// int4 is nil unless the codes are integers.
func (c *laneCodes) int4() *product.Int4 {
	p := product.Int4Of(c.m.Name, c.m, nil, nil)
	if p != nil {
		p.Data = c.weights
	}
	return p
}

// columns are those of a piece.
func (c *laneCodes) columns() int {
	if shape, ok := c.m.Format.Int4(c.m.K); ok {
		return shape.Run * i4.Columns
	}
	if c.m.Format.Blocks() {
		return c.m.Format.Columns()
	}
	groups := 8
	for c.m.KPadded/c.m.Format.Columns()%groups != 0 {
		groups /= 2
	}
	return groups * c.m.Format.Columns()
}

// pieces are those of a row tile.
func (c *laneCodes) pieces() int { return c.m.KPadded / c.columns() }

// pieceBytes is what a piece takes, its scales included.
func (c *laneCodes) pieceBytes() int { return c.m.Format.Of(c.columns()) }

// rowScale is the scale of a lane's row of the tile at src, where rows have scales.
func (c *laneCodes) rowScale(e *grid.Env, src u64) (scale f32) {
	if c.m.Format.ScaleBytes() > 0 {
		row := src.MulC(4).AddC(c.m.Format.Of(c.m.KPadded) / 4).Add(dsl.Cast[dsl.U64](e.Lane.DivC(4)))
		scale = dsl.View[dsl.F32](c.weights).Load(row, dsl.CacheHint(dsl.NonCoherent))
	}
	return scale
}

// each hands a lane's weights of the piece at src to what at returns. Of integers a lane has two parts of each k group:
// at(j) is for columns 16j + 4t to 16j + 4t + 3, where t is lane mod 4. Of e4m3 it has one, at(0): the 16-byte unit
// that lies lane mod 4 units from the row's first, see pipeline.TileOffset.
func (c *laneCodes) each(e *grid.Env, src u64, rowScale f32, at func(j int) laneWeights) {
	if p := c.int4(); p != nil {
		c.integers(e, p, src, rowScale, at)
		return
	}
	if c.m.Format.Bits() == 16 {
		for i, unit := range c.words(e, src, c.columns()/pipeline.GroupK) {
			at(0)(i, 4, func(n int) (lo, hi f32) { return dsl.Unpack(dsl.Bits[dsl.BF16x2](unit[n])) })
		}
		return
	}
	scales := []f32{rowScale}
	if c.m.Format.Blocks() {
		from := src.MulC(4).AddC(c.columns() * pipeline.TileRows / 4).
			Add(dsl.Cast[dsl.U64](e.Lane.DivC(4).AndC(1).MulC(product.GroupBlocks)))
		scales = dsl.View[dsl.F32](c.weights).LoadN(from, product.GroupBlocks, dsl.CacheHint(dsl.NonCoherent))
	}
	c.floats(e, src, scales, at(0))
}

// words loads n units of 16 bytes of a lane, the i-th of which lies i tile groups behind its first.
func (c *laneCodes) words(e *grid.Env, src u64, n int) (all [][]u32) {
	own := src.Add(dsl.Cast[dsl.U64](e.Lane)).MulC(4)
	for i := range n {
		all = append(all, dsl.View[dsl.U32](c.weights).LoadN(own.AddC(i*pipeline.GroupBytes/4), 4,
			dsl.CacheHint(dsl.NonCoherent)))
	}
	return all
}

// floats is a piece of e4m3: a unit's columns are those of the same unit of two tile groups of bf16.
func (c *laneCodes) floats(e *grid.Env, src u64, scales []f32, take laneWeights) {
	units := c.words(e, src, c.columns()/(2*pipeline.GroupK))
	for i, unit := range units {
		scale := scales[i*len(scales)/len(units)]
		for half := range 2 {
			var two [2]pair
			take(2*i+half, 4, func(n int) (lo, hi f32) {
				if n%2 == 0 {
					two = product.Widen(unit[2*half+n/2])
				}
				lo, hi = dsl.Unpack(dsl.Bits[dsl.F16x2](two[n%2]))
				return lo.Mul(scale), hi.Mul(scale)
			})
		}
	}
}

// integers is a run of integers. scale is the row's, where it has one.
func (c *laneCodes) integers(e *grid.Env, p *product.Int4, src u64, scale f32, at func(j int) laneWeights) {
	k, shape := e.K, p.Shape
	codes := c.words(e, src, shape.Run*shape.BlockBytes()/pipeline.GroupBytes)
	var scales []f32
	var biases []f32
	if shape.Group != i4.Whole {
		w := &product.Int4Weights{Many: shape.RowEntries()}
		w.Entries = [][]u32{product.EntriesAt(p, src, dsl.Cast[dsl.U64](e.Lane.DivC(4).MulC(w.Many)), w.Many)}
		for _, by := range p.Scales(e, w)[0] {
			each := by.Scale.Mul(k.F32(1 / float64(shape.Times())))
			if p.Sixteen() {
				each = each.Mul(scale) // the row's factor
			}
			scales = append(scales, each)
			if shape.Zeros {
				biases = append(biases, k.F32(byteBias).Sub(dsl.Cast[dsl.F32](by.Zero)))
			}
		}
	} else {
		scale = scale.Mul(k.F32(1 / float64(shape.Times())))
	}
	for j := range 2 { // of the two units that a lane has of a tile group of bf16
		take := at(j)
		for group := range 4 * shape.Run {
			block, half := group/4, group%4/2
			w := slicesOf(codes, block, p.CodeWords())
			bytes := dsl.Bits[dsl.U32](p.Bytes(k, w, group%2*2+j, half))
			by, bias := scale, k.F32(byteBias)
			if shape.Group != i4.Whole {
				at := (shape.Entry(0, (32*group+16*j)/shape.Group) - shape.Run*shape.BlockBytes()) / shape.EntryBytes()
				by = scales[at]
				if shape.Zeros {
					bias = biases[at]
				}
			}
			v := bytesAsFloats(k, bytes, bias, by)
			take(group, 2, func(i int) (lo, hi f32) { return v[2*i], v[2*i+1] })
		}
	}
}

// slicesOf are the words of a block among units of four.
func slicesOf(units [][]u32, block, words int) (all []u32) {
	for _, unit := range units[block*words/4:][:words/4] {
		all = append(all, unit...)
	}
	return all
}

// byteBias is what a byte with its top bit turned is more than the byte when it lies in the low bits of the float
// 2²³.
const byteBias = 1<<23 + 1<<7

// bytesAsFloats are the four signed bytes of a word: what they are more than bias − byteBias, times scale. Without
// conversions, of which an SM makes a quarter as many a clock.
func bytesAsFloats(k *dsl.Kernel, w u32, bias, scale f32) (v [4]f32) {
	for b := range v {
		x := w
		if b > 0 {
			x = w.ShrC(8 * b)
		}
		if b < 3 {
			x = x.AndC(0xff)
		}
		v[b] = dsl.Bits[dsl.F32](x.XorC(0x4b000080)).Sub(bias).Mul(scale)
	}
	return v
}
