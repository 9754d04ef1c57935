package prefill

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
)

// The pieces that many tokens are multiplied in.
const (
	GroupRows    = 64                  // tokens of a warpgroup
	groupThreads = 4 * dsl.WarpSize    // of a warpgroup
	bytesAtom    = pipeline.GroupBytes // 8 rows of 32 columns
	elementsAtom = pipeline.GroupBytes / 2
)

// Tokens is the number of tokens of a CTA's tile with n consumer warpgroups.
func Tokens(groups int) int { return groups * GroupRows }

// Activations is a product's input of T tokens (a multiple of 8) and K columns (a multiple of 32) in bf16. It
// lies as the packed weights do, tokens being rows: tiles of 8 tokens, in each the groups of 32 columns, each wgmma's
// atom of 64-byte rows.
type Activations struct{ K, T int }

// Len is the number of elements.
func (a Activations) Len() int { return a.K * a.T }

// Index is the place of element k of token t.
func (a Activations) Index(t, k int) int {
	return t/8*8*a.K + pipeline.TileOffset(t%8, k)/2
}

// At is Index in the kernel.
func (a Activations) At(t, k u32) u32 {
	row := t.RemC(8)
	tile := t.DivC(8).MulC(8 * a.K).Add(k.DivC(32).MulC(elementsAtom)).Add(row.MulC(32))
	return tile.Add(k.DivC(8).AndC(3).Xor(row.DivC(2)).MulC(8)).Add(k.RemC(8))
}

// GEMM is Y = X·Wᵀ for the tokens of a prefill step: tiles of 64 tokens a consumer warpgroup by Columns rows of
// the matrix, which the clusters of the grid take in turns. The CTAs of a cluster take the same rows and neighbouring
// tiles of tokens, and each fetches its part of the rows for all; or, Apart, the same tokens and neighbouring tiles of
// rows, and each fetches its part of the tokens for all.
type GEMM struct {
	Name    string
	M       *pipeline.MatrixPlan // of bf16, or with Input of e4m3
	Plan    *pipeline.Plan
	Final   bool // M is one behind the layers
	Columns int  // rows of the matrix in a tile: 16 to 256, a multiple of 16
	Depth   int  // columns of the matrix in a stage: a multiple of 64
	Groups  int  // consumer warpgroups: 1 or 2
	Cluster int  // CTAs of a cluster: 1 or 2
	Apart   bool
	// Late is whether the step itself writes the matrix, as an image of one layer, in front of the barrier that the input
	// waits for.
	Late bool
	// Input is the input in e4m3, which weights of e4m3 are multiplied by as they are packed; nil: it is in bf16. Sums
	// are multiplied by the scales of their token and of their row.
	Input *Codes
	// Parts is how many parts of the columns are multiplied apart from each other, as tiles of their own whose sums go to
	// Sums; Finish adds them, in order, behind a sync. 0 and 1 are one part, which Consume finishes.
	Parts int
	Sums  dsl.Buf[dsl.F32] // SumsLen long

	w, x   dsl.TensorMap // see Maps
	packed dsl.Buf[dsl.F32]
}

// atom is how many columns lie together in 512 bytes.
func (g *GEMM) atom() int { return g.M.Format.Columns() }

// bytes is the size of n columns of a row.
func (g *GEMM) bytes(n int) int { return n * g.M.Format.Bits() / 8 }

// Maps declares the tensor maps of the packed weights and of the input x, of which a copy takes this CTA's part of a
// stage. Where a tile ends in the middle of a stage, what follows in memory comes with it, other weights or padding,
// which an input of zeros meets. Layers are dealt with by the second coordinate, k groups from the first layer's on: a
// layer's are LayerBytes/512 behind those of the layer before.
func (g *GEMM) Maps(k *dsl.Kernel, weights dsl.Buf[dsl.B128], a Activations, x dsl.Buf[dsl.BF16]) {
	if g.Input != nil {
		a = Activations{K: g.Input.K, T: g.Input.T}
		x = dsl.View[dsl.BF16](g.Input.Codes)
		g.packed = dsl.View[dsl.F32](weights)
	}
	rows, tokens := g.parts()
	k.Require(a.K%pipeline.GroupK == 0 && a.T%8 == 0 && rows%8 == 0 && tokens%8 == 0,
		"%s: %d tokens of %d columns in boxes of %d tokens and %d rows, want multiples of 8, %d, 8 and 8", g.Name, a.T, a.K,
		tokens, rows, pipeline.GroupK)
	m, atoms := g.M, g.Depth/g.atom()
	start, groups := m.Start, int64(g.Plan.Layers-1)*(g.Plan.LayerBytes/bytesAtom)+int64(m.KPadded/g.atom())
	if g.Final {
		start, groups = g.Plan.Image(pipeline.FinalLayer)+m.Start, int64(m.KPadded/g.atom())
	}
	g.w = dsl.NewTensorMap(k, "map_"+g.Name, weights, start, [3]int64{elementsAtom, groups, int64(m.Tiles)},
		[2]int64{bytesAtom, m.TileBytes()}, [3]int{elementsAtom, atoms, rows / 8},
		dsl.Doc(fmt.Sprintf("tensor map of the weights: [tile of 8 rows][group of %d columns][512 bytes]; a copy takes %d × %d",
			g.atom(), rows/8, atoms)))
	g.x = dsl.NewTensorMap(k, "map_"+g.Name+"_in", x, 0, [3]int64{elementsAtom, int64(a.K / g.atom()), int64(a.T / 8)},
		[2]int64{bytesAtom, int64(8 * g.bytes(a.K))}, [3]int{elementsAtom, atoms, tokens / 8},
		dsl.Doc(fmt.Sprintf("tensor map of the input: [8 tokens][group of %d columns][512 bytes]; a copy takes %d × %d",
			g.atom(), tokens/8, atoms)))
}

// parts is how many rows and how many tokens of a stage a CTA fetches.
func (g *GEMM) parts() (rows, tokens int) {
	if g.Apart {
		return g.Columns, Tokens(g.Groups) / g.Cluster
	}
	return g.Columns / g.Cluster, Tokens(g.Groups)
}

// StageBytes is what a stage must hold.
func (g *GEMM) StageBytes() int {
	return (g.Columns + g.Groups*GroupRows) * g.bytes(g.Depth)
}

// Tiles is the number of tiles of rows, a multiple of those that a cluster takes at once.
func (g *GEMM) Tiles() int {
	if g.Apart {
		return pipeline.CeilDiv(g.M.Rows, g.Columns*g.Cluster) * g.Cluster
	}
	return pipeline.CeilDiv(g.M.Rows, g.Columns)
}

// Together is the number of tokens that a cluster takes at once.
func (g *GEMM) Together() int {
	if g.Apart {
		return Tokens(g.Groups)
	}
	return Tokens(g.Groups) * g.Cluster
}

func (g *GEMM) steps() int { return pipeline.CeilDiv(g.M.KPadded, g.Depth) }

// rowBytes is what 8 rows or tokens take in a stage.
func (g *GEMM) rowBytes() int { return 8 * g.bytes(g.Depth) }

func (g *GEMM) problem(e *grid.Env, r *pipeline.TileRing, stage int) string {
	return rule.First(
		rule.Need(g.Columns >= 16 && g.Columns <= 256 && g.Columns%16 == 0,
			"%s: tiles of %d rows, want 16 to 256, a multiple of 16", g.Name, g.Columns),
		rule.Need(g.Depth > 0 && g.Depth%64 == 0, "%s: stages of %d columns, want a multiple of 64", g.Name, g.Depth),
		rule.Need(g.Groups == 1 || g.Groups == 2, "%s: %d consumer warpgroups, want 1 or 2", g.Name, g.Groups),
		rule.Need(e.Consumers == 4*g.Groups, "%s: %d consumer warps, want %d", g.Name, e.Consumers, 4*g.Groups),
		rule.Need(g.Input != nil && g.M.Format == pipeline.FormatE4M3 || g.Input == nil && g.M.Format.Parts() == 1,
			"%s: weights of format %q, want bf16, or for an input in e4m3 that", g.Name, g.M.Format),
		rule.Need(g.Input == nil || g.M.KPadded%g.Depth == 0 && g.Input.K == g.M.KPadded,
			"%s: %d columns in stages of %d by an input of %d, want a multiple, and as many", g.Name, g.M.KPadded, g.Depth,
			g.inputColumns()),
		g.splitRule(),
		rule.Need(g.StageBytes() <= stage, "%s: a stage of %d bytes, want %d", g.Name, stage, g.StageBytes()))
}

func (g *GEMM) inputColumns() int {
	if g.Input == nil {
		return g.M.K
	}
	return g.Input.K
}

// prefillUnit is a tile of the product: which tile of rows, the first of the CTA's tokens, and the first stage of
// columns, which is not given where a tile has all of them.
type prefillUnit struct{ tile, token, first u32 }

// step is the number of the tile's i-th stage of columns.
func (u prefillUnit) step(i u32) u32 {
	if !u.first.Given() {
		return i
	}
	return u.first.Add(i)
}

// prefillUnits are the tiles of a product in a step.
type prefillUnits struct {
	n                  u32
	all, count, tokens u32 // pieces of tokens: of the step, of these that are worked on, and the first of them
}

func (g *GEMM) units(e *grid.Env, s Span) prefillUnits {
	all, count, first := s.tiles(e.K, g.Together())
	of := g.Tiles()
	if g.Apart {
		of /= g.Cluster
	}
	return prefillUnits{count.MulC(of * g.split()).Named("units"), all.Named("token_tiles"), count, dsl.Optional(first)}
}

func (g *GEMM) unit(e *grid.Env, u u32, of prefillUnits, s Span) prefillUnit {
	if n := g.split(); n > 1 {
		unit := g.whole(e, u.DivC(n), of, s)
		unit.first = u.RemC(n).MulC(g.ownSteps()).Named("first_stage")
		return unit
	}
	return g.whole(e, u, of, s)
}

// whole is the u-th tile, with all of its columns.
func (g *GEMM) whole(e *grid.Env, u u32, of prefillUnits, s Span) prefillUnit {
	row, token := u.Div(of.count), u.Rem(of.count)
	if s.Last != nil {
		token = token.Add(of.tokens).Min(of.all.SubC(1))
	}
	if rank := func() u32 { return e.CTA.RemC(g.Cluster) }; g.Cluster > 1 && g.Apart {
		row = row.MulC(g.Cluster).Add(rank())
	} else if g.Cluster > 1 {
		token = token.MulC(g.Cluster).Add(rank())
	}
	return prefillUnit{tile: row.Named("tile"), token: token.MulC(g.Groups * GroupRows).Named("first_token")}
}

// Produce streams this CTA's tiles: of the first one the weights, as many stages as there are and unless they are Late,
// before ready, which waits until the input is there for the async proxy, and then the rest. All lanes of the
// producer warp run it.
func (g *GEMM) Produce(e *grid.Env, p *pipeline.TileProducer, layer u32, span Span, stages int, ready func()) {
	k := e.K
	k.Note("%s: this CTA's tiles, stage after stage; of the first one the weights before the input is there", g.Name)
	units := g.units(e, span)
	first := e.CTA.DivC(g.Cluster)
	ahead := min(stages, g.ownSteps())
	stage := func(u prefillUnit, from, to int) {
		k.For(k.U32(from), k.U32(to), func(i u32) {
			p.Fill(g.StageBytes(), func(s pipeline.TileStage) {
				g.weights(e, s, u, layer, i)
				g.input(e, s, u, i)
			})
		}, dsl.Unroll(1))
	}
	k.If(first.Lt(units.n), func() {
		u := g.unit(e, first, units, span)
		if g.Late {
			ready()
			stage(u, 0, g.ownSteps())
			return
		}
		at := p.At()
		k.For(k.U32(0), k.U32(ahead), func(i u32) {
			p.Fill(g.StageBytes(), func(s pipeline.TileStage) { g.weights(e, s, u, layer, i) })
		}, dsl.Unroll(1))
		ready()
		k.For(k.U32(0), k.U32(ahead), func(i u32) {
			p.Add(at, i, func(s pipeline.TileStage) { g.input(e, s, u, i) })
		}, dsl.Unroll(1))
		if ahead < g.ownSteps() {
			stage(u, ahead, g.ownSteps())
		}
	})
	k.ForStep(first.AddC(e.Grid/g.Cluster), units.n, e.Grid/g.Cluster, func(u u32) {
		stage(g.unit(e, u, units, span), 0, g.ownSteps())
	}, dsl.Unroll(1))
}

// weights starts the copy of this CTA's part of the rows.
func (g *GEMM) weights(e *grid.Env, s pipeline.TileStage, u prefillUnit, layer, step u32) {
	group := layer.MulC(int(g.Plan.LayerBytes / bytesAtom)).Add(u.step(step).MulC(g.Depth / g.atom()))
	rows, _ := g.parts()
	g.part(e, s, g.w, 0, group, u.tile.MulC(g.Columns/8), rows, !g.Apart)
}

// input starts the copy of this CTA's part of the tokens.
func (g *GEMM) input(e *grid.Env, s pipeline.TileStage, u prefillUnit, step u32) {
	_, tokens := g.parts()
	g.part(e, s, g.x, g.Columns, u.step(step).MulC(g.Depth/g.atom()), u.token.DivC(8), tokens, g.Apart)
}

// part starts the copy of rows rows, from tile first on, to where the stage's row at is; in a cluster that shares them
// of this CTA's part, for all.
func (g *GEMM) part(e *grid.Env, s pipeline.TileStage, m dsl.TensorMap, at int, group, first u32, rows int,
	shared bool) {
	to := e.K.U32(at / 8 * g.rowBytes())
	if g.Cluster == 1 || !shared {
		s.Copy(to, m, coordinates(e.K, group, first), 0)
		return
	}
	rank := e.CTA.RemC(g.Cluster)
	s.Copy(to.Add(rank.MulC(rows/8*g.rowBytes())), m, coordinates(e.K, group, first.Add(rank.MulC(rows/8))),
		1<<g.Cluster-1)
}

func coordinates(k *dsl.Kernel, group, row u32) [3]dsl.Val[dsl.I32] {
	return [3]dsl.Val[dsl.I32]{k.I32(0), dsl.Bits[dsl.I32](group), dsl.Bits[dsl.I32](row)}
}

// Consume multiplies this CTA's tiles of a layer as they arrive. All consumer warps run it. The epilogue is not used
// where there are several Parts.
func (g *GEMM) Consume(e *grid.Env, c *pipeline.TileConsumer, r *pipeline.TileRing, layer u32, span Span,
	stage int, epilogue Epilogue) {
	k := e.K
	if p := g.problem(e, r, stage); p != "" {
		k.Require(false, "%s", p)
		return
	}
	k.Note("%s: this CTA's tiles of %d rows by %d tokens a warpgroup, multiplied as stages arrive",
		g.Name, g.Columns, GroupRows)
	tile := dsl.Tile{Swizzle: 64, Stride: g.rowBytes()}
	units := g.units(e, span)
	k.ForStep(e.CTA.DivC(g.Cluster), units.n, e.Grid/g.Cluster, func(i u32) {
		u := prefillUnit{}
		if g.split() == 1 {
			u = g.unit(e, i, units, span)
		}
		sums := dsl.NewArray(k.F32(0), g.Columns/2, "sum")
		own := e.Warp.DivC(4).MulC(GroupRows / 8 * g.rowBytes() / 16)
		c.Steps(g.ownSteps(), func(base u32) {
			x := base.AddC(g.Columns / 8 * g.rowBytes() / 16).Add(own)
			k.WGMMAFence()
			for part := range g.bytes(g.Depth) / 32 {
				at := part/2*(bytesAtom/16) + part%2*2
				if g.Input != nil {
					dsl.WGMMA[dsl.E4M3x2](sums, r.Data, x.AddC(at), tile, r.Data, base.AddC(at), tile)
				} else {
					dsl.WGMMA[dsl.BF16x2](sums, r.Data, x.AddC(at), tile, r.Data, base.AddC(at), tile)
				}
			}
		})
		if g.split() > 1 {
			g.keep(e, i, sums)
		} else {
			g.finish(e, layer, u, sums, epilogue)
		}
	}, dsl.Unroll(1))
}
