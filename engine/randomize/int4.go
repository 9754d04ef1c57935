package randomize

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/i4"
)

// int4 writes a matrix of integers in every layer, a row a warp: lane l has columns 4l to 4l + 3 of a block, which
// lie in the nibbles of a word that the lane 16 on has the others of, or are a word (package i4). A row's largest
// magnitude makes its scale, where it is one group, and its factor, of nvfp4.
func (b *builder) int4(m matrix) {
	k := b.k
	shape, _ := m.Format.Int4(m.K)
	tile, whole, sixteen := int(m.TileBytes()/4), shape.Group == i4.Whole, m.Format == pipeline.FormatNVFP4
	words := dsl.View[dsl.U32](b.weights)
	k.For(k.U32(0), k.U32(b.layers(m)), func(l u32) {
		image := dsl.Cast[dsl.U64](l).MulC(int(b.plan.LayerBytes / 4)).AddC(int((b.plan.Image(m.layer) + m.Start) / 4)).
			Named("image")
		k.ForStep(dsl.Uniform(b.first.ShrC(5), dsl.WarpScope), k.U32(m.Rows), b.plan.SMs*warps, func(row u32) {
			r := row.RemC(pipeline.TileRows).Named("row_in_tile")
			source := b.rows.Load(row.AddC(m.firstRow), dsl.CacheHint(dsl.NonCoherent))
			tensor := b.tensor(b.firstTensor(m, l).Add(source.ShrC(rowBits)))
			first := source.AndC(1<<rowBits - 1).MulC(m.K).Named("element")
			at := image.Add(dsl.Cast[dsl.U64](row.DivC(pipeline.TileRows)).MulC(tile)).Named("tile")
			four := func(block u32) (v []f32) {
				column := block.MulC(i4.Columns).Add(k.Lane().MulC(4)).Named("column")
				for i := range 2 {
					lo, hi := dsl.Unpack(b.two(tensor, first.Add(column), 2*i))
					v = append(v, dsl.Select(column.AddC(2*i).LtC(m.K), lo, k.F32(0)),
						dsl.Select(column.AddC(2*i+1).LtC(m.K), hi, k.F32(0)))
				}
				return v
			}
			most := dsl.NewVar(k.F32(0), "most")
			var factor u32 // of a row, its exponent
			if whole || sixteen {
				k.For(k.U32(0), k.U32(m.KPadded/i4.Columns), func(block u32) { most.Set(largest(most.Get(), four(block))) },
					dsl.Unroll(1))
				most.Set(dsl.WarpMax(most.Get()))
				bits := k.U32(0)
				if whole {
					bits = b.int4Scale(m.Format, most.Get()).ShlC(16)
				} else {
					factor = b.nvfp4Factor(most.Get())
					bits = factor.ShlC(23)
				}
				k.If(k.Lane().EqC(0), func() {
					words.Store(at.AddC(m.Format.Of(m.KPadded)/4).Add(dsl.Cast[dsl.U64](r)), bits)
				})
			}
			k.For(k.U32(0), k.U32(m.KPadded/i4.Columns), func(block u32) {
				v := four(block)
				if !whole {
					most.Set(dsl.Butterfly(largest(k.F32(0), v), shape.Group/4, f32.Max))
				}
				var scale u32
				if sixteen {
					scale = b.nvfp4Scale(most.Get(), factor)
				} else {
					scale = b.scaleAs(m.Format, b.int4Scale(m.Format, most.Get()))
				}
				zero := k.U32(0)
				if shape.Zeros { // 0 and −1 in turn
					zero = block.MulC(shape.PerBlock()).Add(k.Lane().DivC(shape.Group / 4)).AndC(1).Named("minus_zero")
					there := block.MulC(i4.Columns).Add(k.Lane().MulC(4)).LtC(m.K) // padding has codes of 0
					zero = dsl.Select(there, zero, k.U32(0))
				}
				run := at.Add(dsl.Cast[dsl.U64](block.DivC(shape.Run).MulC(shape.RunBytes() / 4))).Named("run")
				store := func(word u32) {
					in := block.RemC(shape.Run).MulC(shape.BlockBytes() / 4).Add(r.MulC(16)).Add(k.Lane().RemC(4).MulC(4))
					if shape.Wide {
						in = in.Add(k.Lane().DivC(16).MulC(shape.BlockBytes() / 8)).Add(k.Lane().RemC(16).DivC(4))
					} else {
						in = in.Add(k.Lane().DivC(4))
					}
					words.Store(run.Add(dsl.Cast[dsl.U64](in)), word)
				}
				if shape.Wide {
					store(b.bytes(v, scale, zero))
				} else if sixteen {
					b.codes(shape, v, b.fromE4M3(scale).Mul(dsl.Bits[dsl.F32](factor.ShlC(23))), zero, store)
				} else {
					b.codes(shape, v, dsl.Bits[dsl.F32](scale.ShlC(16)), zero, store)
				}
				switch {
				case shape.EntryBytes() == 1:
					b.byteEntries(m, run, block, r, scale)
				case !whole:
					b.scaleEntries(m, run, block, r, scale, zero)
				}
			}, dsl.Unroll(1))
		}, dsl.Unroll(1))
	}, dsl.Unroll(1))
}

// laneGroup returns the scale group in its run that the lane's four columns of a block are of, and whether they are not
// padding alone.
func (b *builder) laneGroup(m matrix, block u32) (group u32, there dsl.Pred) {
	shape, _ := m.Format.Int4(m.K)
	group = block.RemC(shape.Run).MulC(shape.PerBlock()).Add(b.k.Lane().DivC(shape.Group / 4))
	return group, block.MulC(i4.Columns).Add(b.k.Lane().MulC(4)).LtC(m.K)
}

// byteEntries stores the scales of a block of row r of a tile, an entry of a byte each: the lane's is scale. 16 lanes
// have half of a block, whose entries are a word in groups of 16 and half of one in groups of 32.
func (b *builder) byteEntries(m matrix, run dsl.Val[dsl.U64], block, r, scale u32) {
	k := b.k
	shape, _ := m.Format.Int4(m.K)
	group, there := b.laneGroup(m, block)
	if shape.Exponents() {
		scale = scale.ShrC(7)
	}
	together := shape.PerBlock() / 2
	word := dsl.Butterfly(dsl.Select(there, scale, k.U32(0)).Shl(group.RemC(together).MulC(8)), 16, u32.Or)
	k.If(k.Lane().RemC(16).EqC(0), func() {
		entry := dsl.Cast[dsl.U64](b.entryAt(shape, r, group).AddC(shape.Run * shape.BlockBytes()).DivC(together))
		if together == 4 {
			dsl.View[dsl.U32](b.weights).Store(run.Add(entry), word)
		} else {
			half := dsl.Bits[dsl.BF16](dsl.Cast[dsl.U16](word))
			dsl.View[dsl.BF16](b.weights).Store(run.MulC(2).Add(entry), half)
		}
	})
}

// scaleEntries stores the scales of a block of row r of a tile, an entry of 16 bits each, or with zero points of a
// word: the lane's are of scale and zero.
func (b *builder) scaleEntries(m matrix, run dsl.Val[dsl.U64], block, r, scale, zero u32) {
	k := b.k
	shape, _ := m.Format.Int4(m.K)
	group, there := b.laneGroup(m, block)
	k.If(k.Lane().RemC(shape.Group/4).EqC(0), func() {
		bits := scale
		if m.Format.F16Scales() {
			bits = dsl.Bits[dsl.U32](dsl.Pack[dsl.F16x2](dsl.Bits[dsl.F32](scale.ShlC(16)), k.F32(0)))
		}
		if shape.Zeros {
			at := b.entryAt(shape, r, group).AddC(shape.Run * shape.BlockBytes() / 4)
			bits = bits.Or(zero.MulC(shape.Times()).ShlC(16))
			dsl.View[dsl.U32](b.weights).Store(run.Add(dsl.Cast[dsl.U64](at)), dsl.Select(there, bits, k.U32(0)))
			return
		}
		entry := run.MulC(2).Add(dsl.Cast[dsl.U64](b.entryAt(shape, r, group).AddC(shape.Run * shape.BlockBytes() / 2)))
		bits = dsl.Select(there, bits, k.U32(0))
		dsl.View[dsl.BF16](b.weights).Store(entry, dsl.Bits[dsl.BF16](dsl.Cast[dsl.U16](bits)))
	})
}

// largest is the largest magnitude of v and most.
func largest(most f32, v []f32) f32 {
	for _, x := range v {
		most = most.Max(x.Abs())
	}
	return most
}

// scaleAs is a scale's bits as a bf16 that the format's scales can hold: pipeline's rule for binary16, of what is under
// 2¹⁶.
func (b *builder) scaleAs(f pipeline.Format, scale u32) u32 {
	if f.F16Scales() {
		scale = scale.MaxC((127 - 14) << 7)
	}
	return scale.Named("scale")
}

// entryAt is the number of i4.Shape.Entry among a run's entries.
func (b *builder) entryAt(s i4.Shape, row, group u32) u32 {
	block, in := group.DivC(s.PerBlock()), group.RemC(s.PerBlock())
	at := row.MulC(s.RowEntries())
	switch s.Group {
	case 64:
		at = at.Add(in.MulC(s.Run)).Add(block)
	case 16, 32:
		half := s.PerBlock() / 2
		at = at.Add(in.DivC(half).MulC(s.Run).Add(block).MulC(half)).Add(in.RemC(half))
	default:
		at = at.Add(block)
	}
	return at
}

// int4Scale is pipeline.Int4Scale, or of 8 bits Int8Scale, of a finite number.
func (b *builder) int4Scale(f pipeline.Format, most f32) u32 {
	k, bits := b.k, dsl.Bits[dsl.U32](most).ShrC(16).Named("most")
	if f.Bits() == 8 || f == pipeline.FormatMXFP4 {
		digits, over := 6, 1
		if f == pipeline.FormatMXFP4 {
			digits, over = 2, pipeline.E2M1Over
		}
		return bits.AddC(over).ShrC(7).MaxC(pipeline.LeastInt4Exponent + digits).SubC(digits).ShlC(7)
	}
	exponent, m := bits.ShrC(7), bits.AndC(0x7f).Or(k.U32(0x80))
	seventh := func(n u32) u32 { return n.MulC(9363).ShrC(16) } // ⌊n/7⌋ up to 261
	small := seventh(m.AddC(6))
	large := seventh(m.AddC(13).ShrC(1)) // ⌊⌊n/2⌋/7⌋ is ⌊n/14⌋
	above := small.GeC(32)
	digits := dsl.Select(above, large, small)
	exponent = exponent.MaxC(3).SubC(3).Add(dsl.Select(above, k.U32(1), k.U32(0)))
	of := exponent.ShlC(7).Or(digits.SubC(16).ShlC(3))
	return dsl.Select(exponent.LtC(pipeline.LeastInt4Exponent), k.U32(pipeline.LeastInt4Exponent<<7), of)
}

// nvfp4Factor is the exponent of pipeline.NVFP4Factor, biased by 127.
func (b *builder) nvfp4Factor(most f32) u32 {
	k, bits := b.k, dsl.Bits[dsl.U32](most).Named("bits")
	above := dsl.Select(bits.AndC(1<<23-1).GeC(pipeline.NVFP4Most+1), k.U32(1), k.U32(0))
	return bits.ShrC(23).Add(above).MaxC(pipeline.LeastInt4Exponent + 11).SubC(11).Named("factor")
}

// nvfp4Scale is the code of the scale of a group with that largest magnitude, in a row whose factor has an exponent.
func (b *builder) nvfp4Scale(most f32, factor u32) u32 {
	k := b.k
	back := dsl.Bits[dsl.F32](k.U32(254).Sub(factor).ShlC(23))
	sixth := most.Mul(k.F32(float64(pipeline.Sixth))).Mul(back)
	return b.fourE4M3(sixth, k.F32(0), k.F32(0), k.F32(0)).MaxC(1).Named("scale")
}

// fromE4M3 is the number of a code.
func (b *builder) fromE4M3(code u32) f32 {
	low, _ := dsl.Halves(code)
	lo, hi := dsl.Unpack(dsl.Cast[dsl.F16x2](dsl.Bits[dsl.E4M3x2](low)))
	dsl.Optional(hi)
	return lo
}

// bytes are the codes of a lane's four columns in a word, less a number, of 8 bits: scale is the bits of a power of two
// as a bf16.
func (b *builder) bytes(v []f32, scale, less u32) u32 {
	k, word := b.k, b.k.U32(0)
	const round = 0x1.8p23 // adding it to what is small leaves the nearest integer in the low bits
	back := dsl.Bits[dsl.F32](k.U32(254 << 23).Sub(scale.ShlC(16))).Named("back")
	for i, x := range v {
		code := dsl.Bits[dsl.U32](dsl.FMA(x, back, k.F32(round))).Sub(less).AndC(0xff)
		word = word.Or(code.ShlC(8 * i))
	}
	return word
}

// codes are those of a lane's four columns, less a number: the lanes below 16 store the word of theirs and the other
// lanes'.
//
// A code's magnitude is counted in parts of the scale, which are exact: it is at least j where that is above
// j − 1/2, or of E2M1 what is halfway to j, or just that, where the even one of two is j.
func (b *builder) codes(shape i4.Shape, v []f32, scale f32, less u32, store func(word u32)) {
	k, word := b.k, b.k.U32(0)
	for i, x := range v {
		magnitude := k.U32(0)
		for j := 1; j <= 7; j++ {
			middle := float64(j) - 0.5
			if shape.E2M1 {
				middle = float64(pipeline.E2M1Middles[j-1])
			}
			half := scale.Mul(k.F32(middle))
			is := f32.Gt
			if j%2 == 0 {
				is = f32.Ge
			}
			magnitude = magnitude.Add(dsl.Select(is(x.Abs(), half), k.U32(1), k.U32(0)))
		}
		if shape.E2M1 {
			sign := dsl.Select(x.Lt(k.F32(0)).And(magnitude.GeC(1)), k.U32(8), k.U32(0))
			word = word.Or(magnitude.Or(sign).ShlC(4 * i))
			continue
		}
		code := dsl.Select(x.Lt(k.F32(0)), k.U32(0).Sub(magnitude), magnitude).Sub(less).AndC(15)
		word = word.Or(code.ShlC(8 * i))
	}
	other := 4 // bits that the other lanes' codes are further up
	if shape.E2M1 {
		other = 16
	}
	word = dsl.Select(k.Lane().LtC(16), word, word.ShlC(other))
	word = word.Or(dsl.ShflXor(word, 16))
	k.If(k.Lane().LtC(16), func() { store(word) })
}
