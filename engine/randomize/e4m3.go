package randomize

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
)

// e4m3 writes a matrix of e4m3 in every layer, a row a warp: the largest magnitude of a row makes
// its scale (pipeline.E4M3Scale), and each lane codes units of 16 elements (pipeline.E4M3Offset).
func (b *builder) e4m3(m matrix) {
	k := b.k
	codes, tile := dsl.View[dsl.U32](b.weights), int(m.TileBytes()/4)
	k.For(k.U32(0), k.U32(b.layers(m)), func(l u32) {
		image := dsl.Cast[dsl.U64](l).MulC(int(b.plan.LayerBytes / 4)).AddC(int((b.plan.Image(m.layer) + m.Start) / 4)).
			Named("image")
		k.ForStep(dsl.Uniform(b.first.ShrC(5), dsl.WarpScope), k.U32(m.Rows), b.plan.SMs*warps, func(row u32) {
			r := row.RemC(pipeline.TileRows).Named("row_in_tile")
			source := b.rows.Load(row.AddC(m.firstRow), dsl.CacheHint(dsl.NonCoherent))
			tensor := b.firstTensor(m, l).Add(source.ShrC(rowBits)).Named("tensor")
			first := source.AndC(1<<rowBits - 1).MulC(m.K).Named("element")
			units := func(body func(u u32, values []f32)) {
				k.ForStep(k.Lane(), k.U32(m.KPadded/(2*unit)), dsl.WarpSize, func(u u32) {
					column := u.DivC(4).MulC(m.Format.Columns()).Add(u.RemC(4).MulC(unit))
					var all []f32
					for part := range m.Format.Parts() {
						inside := column.AddC(part * pipeline.GroupK).LtC(m.K)
						for _, p := range b.values(tensor, first.Add(column).AddC(part*pipeline.GroupK)) {
							lo, hi := dsl.Unpack(p)
							all = append(all, dsl.Select(inside, lo, k.F32(0)), dsl.Select(inside, hi, k.F32(0)))
						}
					}
					body(u, all)
				}, dsl.Unroll(1))
			}
			most := dsl.NewVar(k.F32(0), "most")
			units(func(_ u32, values []f32) {
				for _, v := range values {
					most.Set(most.Get().Max(v.Abs()))
				}
			})
			exponent := b.e4m3Exponent(dsl.WarpMax(most.Get()))
			at := image.Add(dsl.Cast[dsl.U64](row.DivC(pipeline.TileRows)).MulC(tile)).Named("tile")
			back := dsl.Bits[dsl.F32](k.U32(254).Sub(exponent).ShlC(23)) // one over the scale
			units(func(u u32, values []f32) {
				var words []u32
				for i := 0; i < len(values); i += 4 {
					v := values[i:]
					words = append(words, b.fourE4M3(v[0].Mul(back), v[1].Mul(back), v[2].Mul(back), v[3].Mul(back)))
				}
				in := u.DivC(4).MulC(pipeline.GroupBytes / 4).Add(r.MulC(16)).Add(u.RemC(4).Xor(r.ShrC(1)).MulC(4))
				codes.StoreN(at.Add(dsl.Cast[dsl.U64](in)), words)
			})
			k.If(k.Lane().EqC(0), func() {
				codes.Store(at.AddC(m.Format.Of(m.KPadded)/4).Add(dsl.Cast[dsl.U64](r)), exponent.ShlC(23))
			})
		}, dsl.Unroll(1))
	}, dsl.Unroll(1))
}

// e4m3Exponent is the exponent of a row's scale, biased by 127: see pipeline.E4M3Scale.
func (b *builder) e4m3Exponent(most f32) u32 {
	k, bits := b.k, dsl.Bits[dsl.U32](most).Named("bits")
	above := bits.AndC(1<<23 - 1).GeC(0x600001)
	exponent := bits.ShrC(23).Add(dsl.Select(above, k.U32(1), k.U32(0))).MaxC(9).SubC(8)
	return dsl.Select(bits.EqC(0), k.U32(127), exponent).Named("exponent")
}

// fourE4M3 are four codes in the bytes of a word.
func (b *builder) fourE4M3(v0, v1, v2, v3 f32) u32 {
	two := func(lo, hi f32) u32 { return dsl.Cast[dsl.U32](dsl.Bits[dsl.U16](dsl.Pack[dsl.E4M3x2](lo, hi))) }
	return two(v0, v1).Or(two(v2, v3).ShlC(16))
}
