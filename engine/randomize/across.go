package randomize

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
)

// across writes a matrix that is dealt out by columns, in every layer: 16 bytes are two
// columns of four rows, 16 apart, see pipeline.AcrossOffset.
func (b *builder) across(m matrix) {
	k := b.k
	k.Require(m.K%2 == 0, "randomize: %s has %d columns, want a multiple of 2", m.Name, m.K)
	k.For(k.U32(0), k.U32(b.plan.Layers), func(l u32) {
		first := l.MulC(len(b.perLayer))
		b.eachUnit(m, l, func(u u32, to func(v []pair)) {
			tile, in := u.DivC(m.KPadded), u.RemC(m.KPadded)
			lane := in.AndC(31)
			column := tile.MulC(pipeline.AcrossColumns).Add(lane.AndC(1).MulC(2)).Named("column")
			row := in.DivC(32).MulC(pipeline.AcrossRows).Add(lane.ShrC(1).AndC(1).MulC(8)).Add(lane.ShrC(2)).Named("row")
			var v []pair
			for i := range unit / 2 {
				out := dsl.NewVar(dsl.Lit[dsl.BF16x2](k, 0), "out")
				r := row.AddC(16 * i)
				k.If(r.LtC(m.Rows).And(column.LtC(m.K)), func() {
					source := b.rows.Load(r.AddC(m.firstRow), dsl.CacheHint(dsl.NonCoherent))
					element := source.AndC(1<<rowBits - 1).MulC(m.K).Add(column)
					out.Set(b.two(b.tensor(first.Add(source.ShrC(rowBits))), element, 0))
				})
				v = append(v, out.Get())
			}
			to(v)
		})
	}, dsl.Unroll(1))
}
