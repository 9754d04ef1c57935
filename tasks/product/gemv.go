package product

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
)

// GEMV is y = W·x for a bf16 matrix in the pipeline's weight format, with f32
// accumulation on tensor cores: the weights are the B operand of m16n8k16 (8
// rows), the input the A operand (16 tokens, of which one is used). Of e4m3 weights
// are A: their two k groups are its rows 0 to 7 and 8 to 15, and those of the input
// two of B's columns in turn, so that a tile group takes half as many products; those of a block are summed on their
// own and then multiplied by its scale.
//
// All consumer warps share every chunk, each taking some of its k groups; their
// partial sums meet in shared memory once per Batch row tiles.
type GEMV struct {
	Name string
	M    *pipeline.MatrixPlan
	X    dsl.Buf[dsl.BF16] // the input vector in shared memory, KPadded long, padding zero, in the order of InputPair
	Part Partials
	// Fixed is where the input is instead of in X where the weights are integers, else nil.
	Fixed *FixedInput
	// Scales are the factors of rows row and row+1, where the format has some: RowScales.
	Scales func(row u32) []f32
	// Prefetch holds chunks in registers before X is there: then Hold must precede every Consume; nil: none.
	Prefetch *RegisterPrefetch

	// Idle is where zeros lie in X, in pairs and a multiple of 4, as many elements as a chunk has columns: see idleLanes.
	// 0: there are none.
	Idle int

	Exchanged bool // plants a fault where weights are integers: high and low bytes of the input

	kept   [][]*Int4Input // of integers: a warp's of each chunk of a tile, where they stay in registers while Consume runs
	tables []u32          // of E2M1: what E2M1Tables says, while Consume runs
}

// batchTiles is the number of row tiles whose partial sums are kept before the
// consumer warps meet: 16 tiles are 128 rows, 64 threads finish a pair each.
const batchTiles = 16

// Partials is the shared memory where the consumer warps' partial sums meet:
// two halves of Consumers × batchTiles·8 f32, used in turn.
type Partials struct{ Buf dsl.Buf[dsl.F32] }

// PartialsLen is the length of a Partials buffer in f32.
func PartialsLen(consumers int) int { return 2 * consumers * batchTiles * pipeline.TileRows }

// Share is one SM's part of a matrix, read from the plan table: the same for
// all threads of a CTA.
type Share struct{ First, Count u32 }

// Produce streams this CTA's tiles through the ring. from is where the matrix begins in the
// packed weights, in 16-byte elements.
func (g *GEMV) Produce(e *grid.Env, p *pipeline.Producer, share Share, w dsl.Buf[dsl.B128], from dsl.Val[dsl.U64]) {
	k := e.K
	k.Note("%s: the chunks of this SM's tiles, one after another", g.Name)
	k.For(k.U32(0), share.Count, func(tile u32) {
		g.eachChunk(k, func(c u32, columns int) {
			fill(e, p, w, g.M.Format.Of(columns), chunkAt(g.M, from, share.First.Add(tile), c))
		})
	})
}

// chunkAt is where chunk c of a tile begins in the packed weights, in 16-byte elements; from
// is where its matrix does.
func chunkAt(m *pipeline.MatrixPlan, from dsl.Val[dsl.U64], tile, c u32) dsl.Val[dsl.U64] {
	at := from.Add(dsl.Cast[dsl.U64](tile).MulC(int(m.TileBytes() / 16)))
	if m.ChunksPerTile == 1 {
		return at
	}
	return at.Add(dsl.Cast[dsl.U64](c.MulC(m.ChunkBytes(0) / 16)))
}

// fill streams a chunk of n bytes from there through the ring.
func fill(e *grid.Env, p *pipeline.Producer, w dsl.Buf[dsl.B128], n int, at dsl.Val[dsl.U64]) {
	bytes := e.K.U32(n)
	p.Fill(bytes, func(base u32) {
		e.K.If(e.Lane.EqC(0), func() { p.Copy(base, w, at, bytes, streamed) })
	})
}

var streamed = dsl.CacheHint(dsl.EvictFirst)

// eachChunk calls body for the chunks of one row tile: a device loop over the
// whole ones and a copy for a shorter last one.
func (g *GEMV) eachChunk(k *dsl.Kernel, body func(c u32, columns int)) { g.chunksFrom(k, 0, body) }

// chunksFrom is eachChunk from chunk first on, of which there may be none.
func (g *GEMV) chunksFrom(k *dsl.Kernel, first int, body func(c u32, columns int)) {
	whole := g.M.ChunksPerTile
	if g.M.TailK != g.M.ChunkK {
		whole--
	}
	if whole == first+1 {
		body(k.U32(first), g.M.ChunkK)
	} else if whole > first {
		k.For(k.U32(first), k.U32(whole), func(c u32) { body(c, g.M.ChunkK) }, dsl.Unroll(1))
	}
	if g.M.TailK != g.M.ChunkK && first < g.M.ChunksPerTile {
		body(k.U32(whole), g.M.TailK)
	}
}

// Drop drains what Produce streamed for this CTA's tiles without using it.
func (g *GEMV) Drop(e *grid.Env, c *pipeline.Consumer, share Share) {
	e.K.For(e.K.U32(0), share.Count, func(u32) {
		g.eachChunk(e.K, func(u32, int) { c.Skip() })
	}, dsl.Unroll(1))
}

// problem says what the template cannot do, or nothing.
func (g *GEMV) problem(e *grid.Env, r *pipeline.Ring) string {
	bytes := g.M.ChunkBytes(0)
	return rule.First(
		rule.Need(bytes <= r.StageBytes(), "%s: a chunk of %d columns is %d bytes, a stage has %d", g.Name, g.M.ChunkK, bytes,
			r.StageBytes()),
		rule.Need((g.Fixed != nil) == inFixed(g.M.Format), "%s: %s weights and Fixed do not belong together", g.Name,
			g.M.Format),
		rule.Need(g.Fixed == nil || g.Fixed.K == g.M.KPadded && g.Fixed.Wide == (g.M.Format.Bits() == 8),
			"%s: Fixed is not for a token of %d elements and %d bits", g.Name, g.M.KPadded, g.M.Format.Bits()),
		rule.Need(g.Fixed.order() == nil || g.Fixed.Order.Equal(OwnOrder(e.Consumers, g.M)),
			"%s: Fixed is staged in another order than warps multiply it", g.Name),
		rule.Need(g.Fixed != nil || int(g.X.Len()) >= g.M.KPadded,
			"%s: the input X has %d elements, want %d for %d columns padded", g.Name, g.X.Len(), g.M.KPadded, g.M.K),
		rule.Need(g.Idle == 0 || g.Idle%4 == 0 && int(g.X.Len()) >= 2*g.Idle+min(g.M.ChunkK, g.M.KPadded),
			"%s: the input X has %d elements, want %d zeros from element %d on, a multiple of 8", g.Name, g.X.Len(),
			min(g.M.ChunkK, g.M.KPadded), 2*g.Idle),
		rule.Need(int(g.Part.Buf.Len()) >= PartialsLen(e.Consumers),
			"%s: Part has %d elements, want %d for %d consumer warps",
			g.Name, g.Part.Buf.Len(), PartialsLen(e.Consumers), e.Consumers),
		g.heldRule(e))
}

// Consume multiplies this CTA's tiles as they arrive and hands neighbouring rows to the epilogue. X must be complete
// and visible to all consumer threads, Fixed with an Order to the warps of each part. Between the end of one Consume
// and the next use of X or Part a barrier of the consumer warps must lie; a sync has one.
func (g *GEMV) Consume(e *grid.Env, c *pipeline.Consumer, r *pipeline.Ring, share Share, epilogue Finisher) {
	k := e.K
	each := epilogue.Each()
	if p := rule.First(rule.Sound(g.problem(e, r)), rule.Need(g.M.Rows%each == 0 || each == 2,
		"%s: %d rows, want a multiple of the %d that a thread finishes", g.Name, g.M.Rows, each)); p != "" {
		k.Require(false, "%s", p)
		return
	}
	g.keepInputs(e)
	g.heldFirst(e, c, r, share)
	half := dsl.NewVar(k.U32(0), "half")
	k.ForStep(k.U32(0), share.Count, batchTiles, func(batch u32) {
		tiles := share.Count.Sub(batch).MinC(batchTiles).Named("tiles")
		scales := g.scalesAhead(e, share, batch, tiles, each)
		base := half.Get().MulC(e.Consumers * batchTiles * pipeline.TileRows)
		mine := base.Add(e.Warp.MulC(batchTiles * pipeline.TileRows))
		k.Note("%s: a tile is %d rows; each warp multiplies its share of the columns as chunks arrive", g.Name,
			pipeline.TileRows)
		k.For(g.behindHeld(k, batch), tiles, func(t u32) {
			g.keep(e, mine, t, g.tile(e, c, r, noTile))
		}, dsl.Unroll(1))
		k.Note("%s: sums of all warps, %d rows a thread", g.Name, each)
		e.Sync()
		e.EachConsumer(batchTiles*pipeline.TileRows/each, func(i u32) {
			k.If(i.Lt(tiles.MulC(pipeline.TileRows/each)), func() {
				row := i.MulC(each)
				y := g.sum(e, base.Add(row), each)
				row = share.First.Add(batch).MulC(pipeline.TileRows).Add(row).Named("row")
				y = g.scaled(k, scales, row, y)
				if g.M.Rows%pipeline.TileRows == 0 {
					epilogue.Finish(row, y)
				} else { // the last tile is padded
					k.If(row.LtC(g.M.Rows), func() { epilogue.Finish(row, y) })
				}
			})
		})
		half.Set(half.Get().XorC(1))
	}, dsl.Unroll(1))
}

// keep stores this warp's part of the dot products of a batch's tile t.
func (g *GEMV) keep(e *grid.Env, mine, t u32, y []f32) {
	if g.Fixed != nil || inHalf(g.M.Format) {
		e.K.If(e.Lane.RemC(4).EqC(0),
			func() { g.Part.Buf.Store(mine.Add(t.MulC(pipeline.TileRows)).Add(e.Lane.DivC(4)), y[0]) })
		return
	}
	e.K.If(e.Lane.LtC(4), func() {
		row := t.MulC(pipeline.TileRows).Add(e.Lane.MulC(2))
		g.Part.Buf.StoreN(mine.Add(row), y)
	})
}

// maxInputsAhead is how many k groups of a chunk have their input read before the chunk is there
// at most.
const maxInputsAhead = 4

// tile multiplies one row tile: lane l < 4 returns this warp's part of the dot
// products of rows 2l and 2l+1, or of integers and e4m3 lane 4l of row l. held is the tile's number among those of
// which chunks are held, or noTile.
//
// What a warp does from a chunk's landing to its stage's release is short: the weights'
// addresses are computed before, and the input of the first groups is read. What is widened is loaded first and
// multiplied behind the release.
func (g *GEMV) tile(e *grid.Env, c *pipeline.Consumer, r *pipeline.Ring, held int) []f32 {
	if g.Fixed != nil {
		return g.tileInt4(e, c, r, held)
	}
	k := e.K
	acc := g.accumulators(k)
	first := 0
	if held != noTile {
		first = g.useHeld(e, acc, held)
	}
	place := g.inputPlace(e)
	g.chunksFrom(k, first, func(chunk u32, columns int) {
		var inputs [][]pair
		for i := range min(maxInputsAhead, g.pieces(e, columns)/e.Consumers) { // those that all warps have
			inputs = append(inputs, g.input(e, place, chunk, i))
		}
		all := inHalf(g.M.Format) && len(inputs)*e.Consumers == g.pieces(e, columns)
		var loaded [][]pair // all that the warp has of the chunk, multiplied behind the stage's release
		c.DrainAt(func(base u32) u32 { return g.weightsAt(e, base) }, func(at u32) {
			g.eachGroup(e, columns, func(i int, _ u32) {
				switch w := g.weights(e, r, at, i); {
				case all:
					loaded = append(loaded, w)
				case i < len(inputs):
					g.multiply(e.K, acc, inputs[i], w)
				default:
					g.multiply(e.K, acc, g.input(e, place, chunk, i), w)
				}
			})
		})
		for i, w := range loaded {
			g.multiply(e.K, acc, inputs[i], w)
		}
	})
	if g.M.Format.Blocks() {
		return []f32{acc[0][0].Get()}
	}
	if inHalf(g.M.Format) {
		return []f32{acc[0][0].Get().Add(acc[0][3].Get()).Add(acc[1][0].Get().Add(acc[1][3].Get()))}
	}
	return []f32{acc[0][0].Get().Add(acc[1][2].Get()), acc[0][1].Get().Add(acc[1][3].Get())}
}

// accumulators are zeros: of the two mma of a k group, or one sum where blocks are summed on their own.
func (g *GEMV) accumulators(k *dsl.Kernel) (acc [][]*dsl.Var[dsl.F32]) {
	if g.M.Format.Blocks() {
		return append(acc, dsl.NewArray(k.F32(0), 1, "acc"))
	}
	for range 2 {
		acc = append(acc, dsl.NewArray(k.F32(0), 4, "acc"))
	}
	return acc
}

// place is where a lane's input lies, in units of 16 bytes: of its warp's first group of a chunk, and how much
// further it is a chunk later.
type place struct{ first, chunk u32 }

// HasIdleLanes reports whether products of one row with weights of a format have lanes whose part of B nobody needs,
// and which read zeros where there are some (GEMV.Idle). So it is of weights that are widened to f16, whose kernels
// take so much power that the SMs' clock falls. Other formats have such lanes, too; theirs read copies.
func HasIdleLanes(f pipeline.Format) bool { return inHalf(f) }

// inputPlace is a lane's place. As B its column is lane/4, and even columns have the first k group of e4m3; as A its
// row is lane/4, and all rows are the same vector.
func (g *GEMV) inputPlace(e *grid.Env) place {
	mask, lanes := 3, 4
	if inHalf(g.M.Format) {
		mask, lanes = 7, 8
	}
	first := dsl.Optional(e.Warp.MulC(g.M.Format.Columns() / 8).Add(e.Lane.AndC(mask)))
	own := place{first, e.K.U32(g.M.ChunkK / 8)}
	return idleLanes(e, lanes, g.Idle, own)
}

// idleLanes returns own in the first lanes of a warp, and in the others the place of the zeros, at word idle, where
// there are some. The others have columns or rows of an operand of which the products are not used. Zeros take less
// power there than copies of the first lanes' input, and at the limit of power the SMs' clock falls.
func idleLanes(e *grid.Env, lanes, idle int, own place) place {
	if idle == 0 {
		return own
	}
	mine := e.Lane.LtC(lanes)
	return place{dsl.Optional(dsl.Select(mine, own.first, e.K.U32(idle/4)).Named("input")),
		dsl.Optional(dsl.Select(mine, own.chunk, e.K.U32(0)).Named("further"))}
}

// eachGroup calls body for a warp's k groups of a chunk of n columns: with how many
// it is the i-th, and with its number in the chunk.
func (g *GEMV) eachGroup(e *grid.Env, columns int, body func(i int, group u32)) {
	e.OwnGroups(columns/g.M.Format.Columns(), body)
}

// weightsAt is where this lane's weights of its warp's first k group are, in pairs, in the
// chunk at base of the ring.
func (g *GEMV) weightsAt(e *grid.Env, base u32) u32 {
	at := base.MulC(4).Add(e.Warp.MulC(g.M.Format.GroupSize() / 4))
	if g.M.Format.Blocks() { // where scales lie does not depend on the lane's unit
		return at
	}
	return at.Add(laneUnit(e))
}

// laneUnit is where a lane's 16 bytes of a tile group are, in pairs: lane l has unit l%4 of row
// l/4, see package pipeline.
func laneUnit(e *grid.Env) u32 { return e.Lane.Xor(e.Lane.ShrC(3)).MulC(4) }

// weights are those of the warp's i-th k group, at being weightsAt.
func (g *GEMV) weights(e *grid.Env, r *pipeline.Ring, at u32, i int) []pair {
	if g.M.Format.Blocks() {
		return blockWords(e, r, at.AddC(i*e.Consumers*g.M.Format.GroupSize()/4), laneUnit(e),
			e.Lane.DivC(4).AndC(1).MulC(2), 2)
	}
	return dsl.View[dsl.BF16x2](r.Data).LoadN(at.AddC(i*e.Consumers*pipeline.GroupBytes/4), 4)
}

// input is the lane's input of the i-th tile group of its warp in a chunk.
func (g *GEMV) input(e *grid.Env, from place, chunk u32, i int) []pair {
	at := chunk.Mul(from.chunk).Add(from.first).MulC(4).AddC(i * e.Consumers * g.M.Format.Columns() / 2)
	if g.M.Format.Blocks() {
		return e4m3Words(dsl.View[dsl.BF16x2](g.X), at, pipeline.GroupK)
	}
	return dsl.View[dsl.BF16x2](g.X).LoadN(at, 4)
}

// multiply adds a tile group's products. Of e4m3 the sums that count are those of A's rows 0 to 7 in B's even columns,
// and of its rows 8 to 15 in the odd ones. Pairs of the input are multiplied together that are neighbours in registers,
// as operands must be: pairs 0 and 2 of a unit, then 1 and 3 (InputPair).
func (g *GEMV) multiply(k *dsl.Kernel, acc [][]*dsl.Var[dsl.F32], x, w []pair) {
	if g.M.Format.Blocks() {
		g.multiplyBlocks(k, acc[0][0], x, w)
		return
	}
	all := operands(g.M.Format, w)
	if !inHalf(g.M.Format) {
		multiply(g.M.Format, acc, x, all[0])
		return
	}
	for h, v := range acc {
		a := [4]pair{all[0][h], all[1][h], all[0][2+h], all[1][2+h]}
		add(g.M.Format, v, a, [2]pair(x[2*h:]))
	}
}

// multiply adds a k group's products: lane l holds 8 consecutive elements of
// row l/4, and the same 8 elements of x, whose four pairs lie as InputPair says: so
// A's rows 0 to 7 are elements 0 to 3 of each lane, and its rows 8 to 15 elements 4 to
// 7. The first mma multiplies by elements 0 to 3 of the weights, and its rows 0 to 7
// count; the second by elements 4 to 7, and its rows 8 to 15 count. Every row of a
// half is the same vector.
func multiply(f pipeline.Format, acc [][]*dsl.Var[dsl.F32], x, w []pair) {
	a := [4]pair(x)
	for h, v := range acc {
		d := productOf(f, a, [2]pair(w[2*h:]), [4]f32{v[0].Get(), v[1].Get(), v[2].Get(), v[3].Get()})
		for i := range d {
			v[i].Set(d[i])
		}
	}
}

// InputPair is where pair i of a GEMV's input vector (elements 2i and 2i + 1) lies in
// shared memory: of the four pairs of 16 bytes the middle two have changed places.
func InputPair(i int) int { return i&^3 + i&1*2 + i>>1&1 }

// inputPair is InputPair on the device.
func inputPair(i u32) u32 {
	return i.AndC(0xfffffffc).Or(i.AndC(1).ShlC(1)).Or(i.ShrC(1).AndC(1))
}

// sum adds the consumer warps' parts of n rows in the order of the warps.
func (g *GEMV) sum(e *grid.Env, at u32, n int) (y []f32) {
	for w := range e.Consumers {
		for i := 0; i < n; i += 4 {
			for j, v := range g.Part.Buf.LoadN(at.AddC(w*batchTiles*pipeline.TileRows+i), min(n, 4)) {
				if w == 0 {
					y = append(y, v)
				} else {
					y[i+j] = y[i+j].Add(v)
				}
			}
		}
	}
	return y
}
