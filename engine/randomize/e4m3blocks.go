package randomize

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/pipeline"
)

// blockTiles is how many tiles a warp writes one after another: where they are of one block it looks for its largest
// magnitude once.
const blockTiles = pipeline.BlockSize / pipeline.TileRows

// e4m3Blocks writes a matrix of e4m3 with blocks in every layer. A warp has the columns of a block in some tiles, and
// writes the even rows of a tile and then the odd ones, a unit of 16 codes a lane (pipeline.E4M3BlockOffset).
func (b *builder) e4m3Blocks(m matrix) {
	k := b.k
	blocks, runs := m.KPadded/pipeline.BlockSize, (m.Tiles+blockTiles-1)/blockTiles
	k.For(k.U32(0), k.U32(b.layers(m)), func(l u32) {
		image := dsl.Cast[dsl.U64](l).MulC(int(b.plan.LayerBytes / 4)).AddC(int((b.plan.Image(m.layer) + m.Start) / 4)).
			Named("image")
		k.ForStep(dsl.Uniform(b.first.ShrC(5), dsl.WarpScope), k.U32(blocks*runs), b.plan.SMs*warps, func(i u32) {
			column, first := i.RemC(blocks).MulC(pipeline.BlockSize).Named("column"),
				i.DivC(blocks).MulC(blockTiles).Named("first_tile")
			for parity := range 2 {
				was, exponent := dsl.NewVar(k.U32(noBlock), "block"), dsl.NewVar(k.U32(0), "exponent")
				k.For(first, first.AddC(blockTiles).MinC(m.Tiles), func(tile u32) {
					row := tile.MulC(pipeline.TileRows).AddC(parity).Named("row")
					k.If(row.LtC(m.Rows), func() {
						source := dsl.Uniform(b.rows.Load(row.AddC(m.firstRow), dsl.CacheHint(dsl.NonCoherent)), dsl.WarpScope)
						block := source.ShrC(blockBits).Named("its_block")
						k.If(block.Ne(was.Get()), func() {
							was.Set(block)
							exponent.Set(b.e4m3Exponent(b.mostOfBlock(m, l, source, column)))
						})
						at := image.Add(dsl.Cast[dsl.U64](tile).MulC(int(m.TileBytes() / 4))).Named("tile")
						b.blockUnit(m, l, at, row, column, exponent.Get())
					})
				}, dsl.Unroll(1))
			}
		}, dsl.Unroll(1))
	}, dsl.Unroll(1))
}

// blockBits are those of a row's number in its block. A row's place above them is its block's; noBlock is none.
const (
	blockBits = 7
	noBlock   = 1<<32 - 1
)

// mostOfBlock is the largest magnitude of the block that a row is of, of columns from column on.
func (b *builder) mostOfBlock(m matrix, l, source, column u32) f32 {
	k, most := b.k, dsl.NewVar(b.k.F32(0), "most")
	number := source.ShrC(rowBits)
	tensor := b.firstTensor(m, l).Add(number)
	first := source.AndC(1<<rowBits - 1<<blockBits)
	end := b.rowsOf(m, number).Min(first.AddC(pipeline.BlockSize)).Named("end")
	lane, units := k.Lane(), pipeline.BlockSize/unit
	k.ForStep(first.Add(lane.DivC(units)), end, dsl.WarpSize/units, func(row u32) {
		at := column.Add(lane.RemC(units).MulC(unit))
		k.If(at.LtC(m.K), func() {
			for _, p := range b.values(tensor, row.MulC(m.K).Add(at)) {
				lo, hi := dsl.Unpack(p)
				most.Set(most.Get().Max(lo.Abs()).Max(hi.Abs()))
			}
		})
	}, dsl.Unroll(1))
	return dsl.WarpMax(most.Get())
}

// rowsOf is how many rows a layer's tensor has.
func (b *builder) rowsOf(m matrix, number u32) u32 {
	if m.layer == pipeline.FinalLayer {
		return b.k.U32(m.Rows)
	}
	rows := map[string]int{}
	for _, s := range b.config.Stored() {
		rows[s.Name] = s.Shape[0]
	}
	n := b.k.U32(0)
	for i, name := range b.perLayer {
		n = dsl.Select(number.EqC(i), b.k.U32(rows[megakernel.TensorName(name, 0)]), n)
	}
	return n
}

// blockUnit writes a lane's unit of every other row of a tile from row first on, and their scale.
func (b *builder) blockUnit(m matrix, l u32, tile dsl.Val[dsl.U64], first, column, exponent u32) {
	k, lane, codes := b.k, b.k.Lane(), dsl.View[dsl.U32](b.weights)
	u := lane.RemC(8)
	row := first.Add(lane.DivC(8).MulC(2))
	column = column.Add(u.DivC(4).MulC(2 * pipeline.GroupK))
	in := column.DivC(m.Format.Columns()).MulC(m.Format.GroupSize() / 4)
	group := in.Add(column.RemC(m.Format.Columns()).DivC(2 * pipeline.GroupK).MulC(pipeline.GroupBytes / 4))
	back := dsl.Bits[dsl.F32](k.U32(254).Sub(exponent).ShlC(23)) // one over the scale
	k.If(row.LtC(m.Rows), func() {
		source := b.rows.Load(row.AddC(m.firstRow), dsl.CacheHint(dsl.NonCoherent))
		tensor := b.firstTensor(m, l).Add(source.ShrC(rowBits))
		element := source.AndC(1<<rowBits - 1).MulC(m.K)
		var words []u32
		for part := range 2 {
			at := column.AddC(part * pipeline.GroupK).Add(u.RemC(4).MulC(unit))
			inside := at.LtC(m.K)
			v := b.values(tensor, element.Add(at))
			for i := 0; i < len(v); i += 2 {
				x0, x1 := dsl.Unpack(v[i])
				x2, x3 := dsl.Unpack(v[i+1])
				word := b.fourE4M3(x0.Mul(back), x1.Mul(back), x2.Mul(back), x3.Mul(back))
				words = append(words, dsl.Select(inside, word, k.U32(0)))
			}
		}
		r := row.RemC(pipeline.TileRows)
		to := group.Add(r.MulC(16)).Add(u.RemC(4).Xor(r.ShrC(1)).MulC(4))
		codes.StoreN(tile.Add(dsl.Cast[dsl.U64](to)), words)
	})
	k.If(lane.EqC(0), func() {
		scale := in.AddC(m.Format.Columns() * pipeline.TileRows / 4).Add(first.AndC(1).MulC(2)).
			Add(column.DivC(pipeline.BlockSize).AndC(1))
		there := column.LtC(m.K) // and not padding alone
		codes.Store(tile.Add(dsl.Cast[dsl.U64](scale)), dsl.Select(there, exponent.ShlC(23), k.U32(0)))
	})
}
