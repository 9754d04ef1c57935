package tasks

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
)

// The pieces that many tokens are multiplied in.
const (
	prefillK     = 64                  // columns of a stage: two k groups
	prefillAtoms = prefillK / 32       // k groups of a stage
	prefillTile  = prefillAtoms * 512  // bytes of 8 rows of a stage
	groupRows    = 64                  // tokens of a warpgroup
	groupThreads = 4 * dsl.WarpSize    // of a warpgroup
	bytesAtom    = pipeline.GroupBytes // 8 rows of 32 columns
	elementsAtom = pipeline.GroupBytes / 2
)

// PrefillTokens is the number of tokens of a CTA's tile with so many consumer warpgroups.
func PrefillTokens(groups int) int { return groups * groupRows }

// PrefillActivations is a product's input of T tokens (a multiple of 8) and K columns (a multiple of 32) in bf16. It lies as the packed
// weights do, tokens being rows: tiles of 8 tokens, in each the groups of 32 columns, each wgmma's atom of 64-byte rows.
type PrefillActivations struct{ K, T int }

// Len is the number of elements.
func (a PrefillActivations) Len() int { return a.K * a.T }

// Index is the place of element k of token t.
func (a PrefillActivations) Index(t, k int) int {
	return t/8*8*a.K + pipeline.TileOffset(t%8, k)/2
}

// At is Index in the kernel.
func (a PrefillActivations) At(t, k u32) u32 {
	row := t.RemC(8)
	tile := t.DivC(8).MulC(8 * a.K).Add(k.DivC(32).MulC(elementsAtom)).Add(row.MulC(32))
	return tile.Add(k.DivC(8).AndC(3).Xor(row.DivC(2)).MulC(8)).Add(k.RemC(8))
}

// Map declares the tensor map of a buffer of them, of which a copy takes a stage's columns of rows tokens.
func (a PrefillActivations) Map(k *dsl.Kernel, name string, buf dsl.Buf[dsl.BF16], rows int) dsl.TensorMap {
	k.Require(a.K%pipeline.GroupK == 0 && a.T%8 == 0 && rows%8 == 0, "%s: %d tokens of %d columns in boxes of %d tokens, want multiples of 8, %d and 8", name, a.T, a.K, rows, pipeline.GroupK)
	return dsl.NewTensorMap(k, name, buf, 0, [3]int64{elementsAtom, int64(a.K / 32), int64(a.T / 8)}, [2]int64{bytesAtom, int64(16 * a.K)},
		[3]int{elementsAtom, prefillAtoms, rows / 8})
}

// PrefillWeights declares the tensor map of matrix m in all layers of the packed weights, of which a copy takes a stage's columns of rows
// rows. Where a tile ends in the middle of a stage, what follows in memory comes with it, other weights or padding, which an input of zeros meets.
// Layers are dealt with by the second coordinate, k groups from the first layer's on: a layer's are LayerBytes/512 behind those of
// the layer before.
func PrefillWeights(k *dsl.Kernel, name string, weights dsl.Buf[dsl.B128], p *pipeline.Plan, m *pipeline.MatrixPlan, rows int) dsl.TensorMap {
	k.Require(rows%8 == 0, "%s: boxes of %d rows, want a multiple of 8", name, rows)
	groups := int64(p.Layers-1)*(p.LayerBytes/bytesAtom) + int64(m.KPadded/32)
	return dsl.NewTensorMap(k, name, weights, m.Start, [3]int64{elementsAtom, groups, int64(m.Tiles)}, [2]int64{bytesAtom, m.TileBytes()},
		[3]int{elementsAtom, prefillAtoms, rows / 8})
}

// PrefillGEMM is Y = X·Wᵀ for the tokens of a prefill step: tiles of 64 tokens a consumer warpgroup by Columns rows of the matrix, which the clusters
// of the grid take in turns. The CTAs of a cluster take the same rows and neighbouring tiles of tokens, and each fetches its part of the
// rows for all.
type PrefillGEMM struct {
	Name    string
	M       *pipeline.MatrixPlan // of bf16
	Plan    *pipeline.Plan
	Columns int           // rows of the matrix in a tile: 16 to 256, a multiple of 16
	W, X    dsl.TensorMap // of Columns/Cluster rows and of the CTA's tile of tokens
	Groups  int           // consumer warpgroups: 1 or 2
	Cluster int           // CTAs of a cluster: 1 or 2
}

// PrefillEpilogue begins to finish a thread's part of a tile: two tokens, 8 apart, and pairs of rows of the packed matrix. each gets row and
// row+1 (row even) of a token, whose dot products are y0 and y1; rows that pad the matrix are left out, tokens that pad the step are
// not. done, which may be nil, comes behind the tile's last, in all lanes together; the four lanes that differ in their last two bits share the
// tokens. tile is the number of the tile of rows.
type PrefillEpilogue func(tokens [2]u32, tile u32) (each func(half int, row u32, y0, y1 f32), done func())

// StageBytes is what a stage must hold.
func (g *PrefillGEMM) StageBytes() int {
	return (g.Columns + g.Groups*groupRows) / 8 * prefillTile
}

// Tiles is the number of tiles of rows.
func (g *PrefillGEMM) Tiles() int { return ceilDiv(g.M.Rows, g.Columns) }

func (g *PrefillGEMM) steps() int { return ceilDiv(g.M.KPadded, prefillK) }

func (g *PrefillGEMM) problem(e *Env, r *pipeline.TileRing, stage int) string {
	return firstOf(
		need(g.Columns >= 16 && g.Columns <= 256 && g.Columns%16 == 0, "%s: tiles of %d rows, want 16 to 256, a multiple of 16", g.Name, g.Columns),
		need(g.Groups == 1 || g.Groups == 2, "%s: %d consumer warpgroups, want 1 or 2", g.Name, g.Groups),
		need(e.Consumers == 4*g.Groups, "%s: %d consumer warps, want %d", g.Name, e.Consumers, 4*g.Groups),
		need(g.M.Format.Parts() == 1, "%s: weights of format %q, want bf16", g.Name, g.M.Format),
		need(g.StageBytes() <= stage, "%s: a stage of %d bytes, want %d", g.Name, stage, g.StageBytes()))
}

// prefillUnit is a tile of the product: which tile of rows, and the first of the CTA's tokens.
type prefillUnit struct{ tile, token u32 }

// eachUnit calls body for the tiles of this CTA, n tokens (at least 1) being in the step.
func (g *PrefillGEMM) eachUnit(e *Env, n u32, body func(u prefillUnit)) {
	k := e.K
	units, together := g.units(n)
	k.ForStep(e.CTA.DivC(g.Cluster), units, e.Grid/g.Cluster, func(u u32) { body(g.unit(e, u, together)) }, dsl.Unroll(1))
}

// units is the number of tiles that a cluster takes at once, and how many of these have the same rows.
func (g *PrefillGEMM) units(n u32) (units, together u32) {
	together = n.AddC(g.Cluster*g.Groups*groupRows - 1).DivC(g.Cluster * g.Groups * groupRows).Named("token_tiles")
	return together.MulC(g.Tiles()).Named("units"), together
}

func (g *PrefillGEMM) unit(e *Env, u, together u32) prefillUnit {
	row := u.Div(together).Named("tile")
	first := u.Sub(row.Mul(together)).MulC(g.Cluster)
	if g.Cluster > 1 {
		first = first.Add(e.CTA.RemC(g.Cluster))
	}
	return prefillUnit{row, first.MulC(g.Groups * groupRows).Named("first_token")}
}

// Produce streams this CTA's tiles, n tokens being in the step: of the first one the weights, as many stages as there are, before ready,
// which waits until the input is there for the async proxy, and then the rest. All lanes of the producer warp run it.
func (g *PrefillGEMM) Produce(e *Env, p *pipeline.TileProducer, layer, n u32, stages int, ready func()) {
	k := e.K
	units, together := g.units(n)
	first := e.CTA.DivC(g.Cluster)
	ahead := min(stages, g.steps())
	stage := func(u prefillUnit, from, to int) {
		k.For(k.U32(from), k.U32(to), func(i u32) {
			p.Fill(g.StageBytes(), func(s pipeline.TileStage) {
				g.weights(e, s, u, layer, i)
				g.input(e, s, u, i)
			})
		}, dsl.Unroll(1))
	}
	k.If(first.Lt(units), func() {
		u := g.unit(e, first, together)
		at := p.At()
		k.For(k.U32(0), k.U32(ahead), func(i u32) {
			p.Fill(g.StageBytes(), func(s pipeline.TileStage) { g.weights(e, s, u, layer, i) })
		}, dsl.Unroll(1))
		ready()
		k.For(k.U32(0), k.U32(ahead), func(i u32) {
			p.Add(at, i, func(s pipeline.TileStage) { g.input(e, s, u, i) })
		}, dsl.Unroll(1))
		if ahead < g.steps() {
			stage(u, ahead, g.steps())
		}
	})
	k.ForStep(first.AddC(e.Grid/g.Cluster), units, e.Grid/g.Cluster, func(u u32) {
		stage(g.unit(e, u, together), 0, g.steps())
	}, dsl.Unroll(1))
}

// weights starts the copy of this CTA's part of the rows.
func (g *PrefillGEMM) weights(e *Env, s pipeline.TileStage, u prefillUnit, layer, step u32) {
	group := layer.MulC(int(g.Plan.LayerBytes / bytesAtom)).Add(step.MulC(prefillAtoms))
	row := u.tile.MulC(g.Columns / 8)
	if g.Cluster == 1 {
		s.Copy(e.K.U32(0), g.W, coordinates(e.K, group, row), 0)
		return
	}
	rank := e.CTA.RemC(g.Cluster)
	part := g.Columns / 8 / g.Cluster
	s.Copy(rank.MulC(part*prefillTile), g.W, coordinates(e.K, group, row.Add(rank.MulC(part))), 1<<g.Cluster-1)
}

func (g *PrefillGEMM) input(e *Env, s pipeline.TileStage, u prefillUnit, step u32) {
	s.Copy(e.K.U32(g.Columns/8*prefillTile), g.X, coordinates(e.K, step.MulC(prefillAtoms), u.token.DivC(8)), 0)
}

func coordinates(k *dsl.Kernel, group, row u32) [3]dsl.Val[dsl.I32] {
	return [3]dsl.Val[dsl.I32]{k.I32(0), dsl.Bits[dsl.I32](group), dsl.Bits[dsl.I32](row)}
}

// Consume multiplies this CTA's tiles as they arrive. All consumer warps run it.
func (g *PrefillGEMM) Consume(e *Env, c *pipeline.TileConsumer, r *pipeline.TileRing, n u32, stage int, epilogue PrefillEpilogue) {
	k := e.K
	if p := g.problem(e, r, stage); p != "" {
		k.Require(false, "%s", p)
		return
	}
	tile := dsl.Tile{Swizzle: 64, Stride: prefillTile}
	g.eachUnit(e, n, func(u prefillUnit) {
		sums := dsl.NewArray(k.F32(0), g.Columns/2, "sum")
		own := e.Warp.DivC(4).MulC(groupRows / 8 * prefillTile / 16)
		c.Steps(g.steps(), func(base u32) {
			x := base.AddC(g.Columns / 8 * prefillTile / 16).Add(own)
			k.WGMMAFence()
			for part := range prefillK / 16 {
				at := part/2*(bytesAtom/16) + part%2*2
				dsl.WGMMA[dsl.BF16x2](sums, r.Data, x.AddC(at), tile, r.Data, base.AddC(at), tile)
			}
		})
		g.finish(e, u, sums, epilogue)
	})
}

// finish hands out a tile's sums.
func (g *PrefillGEMM) finish(e *Env, u prefillUnit, sums []*dsl.Var[dsl.F32], epilogue PrefillEpilogue) {
	token := u.token.Add(e.Warp.MulC(16)).Add(e.Lane.DivC(4)).Named("token")
	each, done := epilogue([2]u32{token, token.AddC(8)}, u.tile)
	first := u.tile.MulC(g.Columns).Add(e.Lane.RemC(4).MulC(2)).Named("row")
	for j := range g.Columns / 8 {
		row := first.AddC(8 * j)
		pairs := func() {
			for half := range 2 {
				each(half, row, sums[4*j+2*half].Get(), sums[4*j+2*half+1].Get())
			}
		}
		if g.M.Rows%g.Columns == 0 {
			pairs()
		} else {
			e.K.If(row.LtC(g.M.Rows), pairs)
		}
	}
	if done != nil {
		done()
	}
}
