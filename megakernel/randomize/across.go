package randomize

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
)

// across writes this CTA's share of a matrix that is dealt out by columns, in every layer:
// 16 bytes are two columns of four rows, 16 apart, see pipeline.AcrossOffset.
func (b *builder) across(m matrix, share []u32) {
	k := b.k
	k.Require(m.K%2 == 0, "randomize: %s has %d columns, want a multiple of 2", m.Name, m.K)
	start := dsl.Cast[dsl.U64](share[2]).Or(dsl.Cast[dsl.U64](share[3]).ShlC(32))
	k.For(k.U32(0), k.U32(b.plan.Layers), func(l u32) {
		image := dsl.Cast[dsl.U64](l).MulC(int(b.plan.LayerBytes / 16)).Add(start).Named("image")
		first := l.MulC(len(b.perLayer))
		k.ForStep(k.Tid(), share[1].MulC(m.KPadded), 32*warps, func(u u32) {
			tile, in := u.DivC(m.KPadded), u.RemC(m.KPadded)
			lane := in.AndC(31)
			column := share[0].Add(tile).MulC(pipeline.AcrossColumns).Add(lane.AndC(1).MulC(2)).Named("column")
			row := in.DivC(32).MulC(pipeline.AcrossRows).Add(lane.ShrC(1).AndC(1).MulC(8)).Add(lane.ShrC(2)).Named("row")
			var v []pair
			for i := range unit / 2 {
				out := dsl.NewVar(dsl.Lit[dsl.BF16x2](k, 0), "out")
				r := row.AddC(16 * i)
				k.If(r.LtC(m.Rows).And(column.LtC(m.K)), func() {
					source := b.rows.Load(r.AddC(m.firstRow), dsl.CacheHint(dsl.NonCoherent))
					element := source.AndC(1<<rowBits - 1).MulC(m.K).Add(column)
					out.Set(b.two(b.tensor(first.Add(source.ShrC(rowBits))), element, 0, normal))
				})
				v = append(v, out.Get())
			}
			b.weights.StoreN(image.Add(dsl.Cast[dsl.U64](u)).MulC(unit/2), v)
		}, dsl.Unroll(1))
	}, dsl.Unroll(1))
}
