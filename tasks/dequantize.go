package tasks

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/i4"
)

// Dequantize writes a matrix of a layer in bf16, as PrefillGEMM reads it, from its codes and scales. A weight is its
// code, less the zero point, times the scale in f32, rounded to bf16. Codes that mkgen has rounded weights to lose
// nothing so: RoundRow.
type Dequantize struct {
	M       *pipeline.MatrixPlan // as it is packed, in another format than bf16
	Plan    *pipeline.Plan       // M's
	To      *pipeline.MatrixPlan // M of Plan.InBF16
	Weights dsl.Buf[dsl.B128]    // packed weights
	Dst     dsl.Buf[dsl.BF16]    // the image of one layer in bf16
}

type u64 = dsl.Val[dsl.U64]

// Emit has the grid's consumer warps take pieces of row tiles in turns: runs of blocks of integers, or of e4m3 as many
// tile groups. A lane has codes of one row.
func (d *Dequantize) Emit(e *Env, layer u32) {
	k := e.K
	if p := d.problem(); p != "" {
		k.Require(false, "%s", p)
		return
	}
	columns := d.columns()
	pieces := d.M.KPadded / columns
	from := dsl.Cast[dsl.U64](layer).MulC(int(d.Plan.LayerBytes / 16)).AddC(int(d.M.Start / 16))
	k.ForStep(e.CTA.MulC(e.Consumers).Add(e.Warp), k.U32(d.M.Tiles*pieces), e.Grid*e.Consumers, func(i u32) {
		tile, piece := i.DivC(pieces).Named("tile"), i.RemC(pieces).Named("piece")
		src := from.Add(dsl.Cast[dsl.U64](tile).MulC(int(d.M.TileBytes() / 16))).Named("packed")
		dst := tile.MulC(int(d.To.TileBytes() / 4)).Add(piece.MulC(columns * pipeline.TileRows / 2)).AddC(int(d.To.Start / 4)).Named("pairs")
		var scale f32
		if d.M.Format.ScaleBytes() > 0 {
			row := src.MulC(4).AddC(d.M.Format.Of(d.M.KPadded) / 4).Add(dsl.Cast[dsl.U64](e.Lane.DivC(4)))
			scale = dsl.View[dsl.F32](d.Weights).Load(row, dsl.CacheHint(dsl.NonCoherent))
		}
		src = src.Add(dsl.Cast[dsl.U64](piece.MulC(d.M.Format.Of(columns) / 16)))
		if p := int4Of(d.M.Name, d.M, nil, nil); p != nil {
			p.Data = d.Weights
			d.integers(e, p, src, dst, scale)
		} else {
			d.floats(e, src, dst, d.scales(e, src, scale))
		}
	}, dsl.Unroll(1))
}

func (d *Dequantize) problem() string {
	name, shape := d.M.Name, i4.Shape{}
	if p := int4Of(name, d.M, nil, nil); p != nil {
		shape = p.Shape
	}
	return firstOf(
		need(d.M.Format.Parts() > 1 && !d.M.Across(), "%s: weights of format %q by columns %v, want codes by rows", name,
			d.M.Format, d.M.Across()),
		need(d.To.TileBytes()*int64(d.To.Tiles)+d.To.Start <= 4*math.MaxUint32,
			"%s: an image of %d bytes, want at most %d", name, d.To.Bytes(), uint64(4*math.MaxUint32)),
		need(!shape.Zeros || shape.Group != i4.Whole, "%s: zero points of whole rows, want those of groups", name))
}

// columns are those of a piece.
func (d *Dequantize) columns() int {
	if shape, ok := d.M.Format.Int4(d.M.K); ok {
		return shape.Run * i4.Columns
	}
	if d.M.Format.Blocks() {
		return d.M.Format.Columns()
	}
	groups := 8
	for d.M.KPadded/d.M.Format.Columns()%groups != 0 {
		groups /= 2
	}
	return groups * d.M.Format.Columns()
}

// words loads n units of 16 bytes of a lane, the i-th of which lies i tile groups behind its first.
func (d *Dequantize) words(e *Env, src u64, n int) (all [][]u32) {
	own := src.Add(dsl.Cast[dsl.U64](e.Lane)).MulC(4)
	for i := range n {
		all = append(all, dsl.View[dsl.U32](d.Weights).LoadN(own.AddC(i*pipeline.GroupBytes/4), 4,
			dsl.CacheHint(dsl.NonCoherent)))
	}
	return all
}

// scales are a lane's of a piece of e4m3: the row's, or of each block.
func (d *Dequantize) scales(e *Env, src u64, row f32) []f32 {
	if !d.M.Format.Blocks() {
		return []f32{row}
	}
	at := src.MulC(4).AddC(d.columns() * pipeline.TileRows / 4).Add(dsl.Cast[dsl.U64](e.Lane.DivC(4).AndC(1).MulC(groupBlocks)))
	return dsl.View[dsl.F32](d.Weights).LoadN(at, groupBlocks, dsl.CacheHint(dsl.NonCoherent))
}

// floats is a piece of e4m3: a unit's columns are those of the same unit of two tile groups of bf16.
func (d *Dequantize) floats(e *Env, src u64, dst u32, scales []f32) {
	to := dst.Add(e.Lane.MulC(4)).Named("unit")
	units := d.words(e, src, d.columns()/(2*pipeline.GroupK))
	for i, unit := range units {
		scale := scales[i*len(scales)/len(units)]
		for half := range 2 {
			var pairs []pair
			for _, w := range unit[2*half : 2*half+2] {
				for _, p := range widen(w) {
					lo, hi := dsl.Unpack(dsl.Bits[dsl.F16x2](p))
					pairs = append(pairs, dsl.Pack[dsl.BF16x2](lo.Mul(scale), hi.Mul(scale)))
				}
			}
			dsl.View[dsl.BF16x2](d.Dst).StoreN(to.AddC((2*i+half)*pipeline.GroupBytes/4), pairs)
		}
	}
}

// integers is a run of integers: lane 4r + t has of row r columns 4t to 4t + 3 of every 16, half a unit of bf16.
// scale is the row's, where it has one.
func (d *Dequantize) integers(e *Env, p *Int4, src u64, dst u32, scale f32) {
	k, shape := e.K, p.Shape
	row, t := e.Lane.DivC(4), e.Lane.RemC(4)
	codes := d.words(e, src, shape.Run*shape.BlockBytes()/pipeline.GroupBytes)
	var scales []f32
	var biases []f32
	if shape.Group != i4.Whole {
		w := &Int4Weights{many: shape.RowEntries()}
		w.entries = [][]u32{entriesAt(p, src, dsl.Cast[dsl.U64](row.MulC(w.many)), w.many)}
		for _, by := range p.scales(w)[0] {
			scales = append(scales, by.scale.Mul(k.F32(1/float64(shape.Times()))))
			if shape.Zeros {
				biases = append(biases, k.F32(byteBias).Sub(dsl.Cast[dsl.F32](by.zero)))
			}
		}
	} else {
		scale = scale.Mul(k.F32(1 / float64(shape.Times())))
	}
	for j := range 2 { // of the two units that a lane has of a tile group of bf16
		unit := t.DivC(2).AddC(2 * j).Xor(row.DivC(2))
		to := dst.Add(row.MulC(16)).Add(unit.MulC(4)).Add(t.RemC(2).MulC(2)).Named("half_unit")
		for group := range 4 * shape.Run {
			block, half := group/4, group%4/2
			w := slicesOf(codes, block, p.codeWords())
			bytes := dsl.Bits[dsl.U32](p.bytes(k, w, group%2*2+j, half))
			by, bias := scale, k.F32(byteBias)
			if shape.Group != i4.Whole {
				at := (shape.Entry(0, (32*group+16*j)/shape.Group) - shape.Run*shape.BlockBytes()) / shape.EntryBytes()
				by = scales[at]
				if shape.Zeros {
					bias = biases[at]
				}
			}
			v := bytesAsFloats(k, bytes, bias, by)
			dsl.View[dsl.BF16x2](d.Dst).StoreN(to.AddC(group*pipeline.GroupBytes/4),
				[]pair{dsl.Pack[dsl.BF16x2](v[0], v[1]), dsl.Pack[dsl.BF16x2](v[2], v[3])})
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
