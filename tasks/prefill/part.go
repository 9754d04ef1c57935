package prefill

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
)

// Epilogue finishes a thread's part of a tile. All lanes run it together.
type Epilogue func(part *Part)

// Part is a thread's part of a tile: two tokens, 8 apart, and pairs of rows of the packed matrix. The four lanes
// that differ in their last two bits share the tokens. Tokens that pad the step are not left out.
type Part struct {
	Tokens [2]u32
	Tile   u32   // the number of the tile of rows
	GEMM   *GEMM // the product whose tile it is
	e      *grid.Env
	first  u32
	sums   []*dsl.Var[dsl.F32]

	by        [2]f32 // with GEMM.Input: the tokens' scales, and where those of rows begin
	rowScales u64
}

// Pair is the products of rows Row and Row + 1 (Row even) with token Half of a part. In every lane Row lies
// among the 8 rows of the tile from Column on.
type Pair struct {
	Half, Column int
	Row          u32
	Y0, Y1       f32
}

// finish hands out a tile's sums.
func (g *GEMM) finish(e *grid.Env, layer u32, u prefillUnit, sums []*dsl.Var[dsl.F32], epilogue Epilogue) {
	e.K.Note("%s: the tile's sums; a thread has pairs of rows of two tokens", g.Name)
	token := u.token.Add(e.Warp.MulC(16)).Add(e.Lane.DivC(4)).Named("token")
	p := &Part{Tokens: [2]u32{token, token.AddC(8)}, Tile: u.tile, GEMM: g, e: e, sums: sums,
		first: u.tile.MulC(g.Columns).Add(e.Lane.RemC(4).MulC(2)).Named("row")}
	if g.Input != nil {
		p.scales(layer)
	}
	epilogue(p)
}

// scales finds the scales of a part's sums.
func (p *Part) scales(layer u32) {
	g := p.GEMM
	for half, token := range p.Tokens {
		if g.Input.Beside {
			token = token.XorC(1)
		}
		p.by[half] = g.Input.Scales.Load(token).Named("token_scale")
	}
	tile := dsl.Cast[dsl.U64](p.Tile).MulC(g.Columns / pipeline.TileRows * int(g.M.TileBytes()/4))
	p.rowScales = dsl.Cast[dsl.U64](layer).MulC(int(g.Plan.LayerBytes / 4)).
		AddC(int(g.M.Start/4) + g.M.Format.Of(g.M.KPadded)/4).Add(tile).Add(dsl.Cast[dsl.U64](p.first.RemC(8)))
}

// scaled is the products of the two rows j·8 behind the part's first, of one half of its tokens.
func (p *Part) scaled(j, half int, rows []f32) (y0, y1 f32) {
	y0, y1 = p.sums[4*j+2*half].Get(), p.sums[4*j+2*half+1].Get()
	if rows != nil {
		y0, y1 = y0.Mul(p.by[half]).Mul(rows[0]), y1.Mul(p.by[half]).Mul(rows[1])
	}
	return y0, y1
}

// Each calls body for the pairs of the part, but for those that pad the matrix.
func (p *Part) Each(body func(v Pair)) {
	g, e := p.GEMM, p.e
	all := func(guarded bool) {
		for j := range g.Columns / 8 {
			row := dsl.Optional(p.first.AddC(8 * j))
			pairs := func() {
				var rows []f32
				if g.Input != nil {
					rows = g.packed.LoadN(p.rowScales.AddC(j*int(g.M.TileBytes()/4)), 2, dsl.CacheHint(dsl.NonCoherent))
				}
				for half := range 2 {
					y0, y1 := p.scaled(j, half, rows)
					body(Pair{half, 8 * j, row, y0, y1})
				}
			}
			if guarded {
				e.K.If(row.LtC(g.M.Rows), pairs)
			} else {
				pairs()
			}
		}
	}
	switch whole := g.M.Rows / g.Columns; {
	case g.M.Rows%g.Columns != 0:
		all(true)
	case whole < g.Tiles():
		e.K.If(p.Tile.LtC(whole), func() { all(false) })
	default:
		all(false)
	}
}
