package product

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
)

// fragments is the input of a warp's k groups of one chunk of columns, and of the
// next chunk, which is under way.
type fragments struct {
	g         *GEMM
	e         *grid.Env
	n         u32
	unit      u32                      // laneUnit
	now, next [][]*dsl.Var[dsl.BF16x2] // [half·groups + group][4]: 8 tokens of a k group
	fixed     [][]*fixedBlock          // [half][tile group] of integers, instead of now
	half      [][]*halfBlock           // of those of 4 bits, instead of fixed
	piece     int                      // tile groups that lie side by side
}

// groups is how many tile groups of a chunk of n a warp takes at most.
func groups(e *grid.Env, chunk int) int { return pipeline.CeilDiv(chunk, e.Consumers) }

func (g *GEMM) newFragments(e *grid.Env, n u32) *fragments {
	x := &fragments{g: g, e: e, n: n, piece: g.piece(e.Consumers)}
	each, p := groups(e, g.M.ChunkK/g.M.Format.Columns()/x.piece)*x.piece, g.int4(nil)
	if p == nil {
		x.unit = laneUnit(e).Named("unit")
	}
	for range g.In.Padded() / 8 {
		if p == nil {
			break
		}
		if p.Half {
			x.half = append(x.half, many(each, func() *halfBlock { return newHalfBlock(e.K, p) }))
		} else {
			x.fixed = append(x.fixed, many(each, func() *fixedBlock { return newFixedBlock(e.K, p.Shape) }))
		}
	}
	zero := dsl.Lit[dsl.BF16x2](e.K, 0)
	for range g.M.Format.Parts() * each * g.In.Padded() / 8 {
		if p == nil {
			x.now = append(x.now, dsl.NewArray(zero, 4, "x"))
		}
		x.next = append(x.next, dsl.NewArray(zero, 4, "x_next"))
	}
	return x
}

func many[T any](n int, of func() T) (all []T) {
	for range n {
		all = append(all, of())
	}
	return all
}

// fetch loads chunk c's fragments. Lanes of tokens that the step does not have
// keep their zeros.
func (x *fragments) fetch(c u32) {
	k, e, m := x.e.K, x.e, x.g.M
	parts := m.Format.Parts()
	whole, total := m.ChunkK/m.Format.Columns(), m.KPadded/m.Format.Columns()
	each := len(x.next) * 8 / x.g.In.Padded() / parts
	first := c.MulC(whole).Add(e.Warp.MulC(x.piece)).MulC(parts)
	from := dsl.Cast[dsl.U64](first.MulC(x.groupPairs()).Add(x.inGroup()))
	for half := range x.g.In.Padded() / 8 {
		token := e.Lane.DivC(4).AddC(8 * half)
		k.If(token.Lt(x.n), func() {
			for i := range each {
				n := x.piece
				in := func() u32 { return e.Warp.AddC(i / n * e.Consumers).MulC(n).AddC(i % n) }
				group := func() u32 { return c.MulC(whole).Add(in()) }
				load := func() {
					for part := range parts {
						behind := ((i/n*e.Consumers*n+i%n)*parts+part)*x.groupPairs() + half*8*pipeline.GroupK/2
						x.load(x.next[(half*each+i)*parts+part], func() u32 { return group().MulC(parts).AddC(part) },
							from.AddC(behind))
					}
				}
				switch inside := (i/n+1)*e.Consumers*n <= whole; {
				case inside && m.TailK == m.ChunkK:
					load()
				case inside:
					k.If(group().LtC(total), load)
				default:
					k.If(in().LtC(whole).And(group().LtC(total)), load)
				}
			}
		})
	}
}

// groupPairs returns the number of pairs of elements of a k group, of all tokens.
func (x *fragments) groupPairs() int { return x.g.In.Padded() * pipeline.GroupK / 2 }

// otherOrder reports whether the input lies in another order than the weights want: the plain one for integers, that of
// integers for others.
func (x *fragments) otherOrder() bool { return inFixed(x.g.In.Format) != inFixed(x.g.M.Format) }

// inGroup returns the place in a k group, in pairs, where the elements of lane l begin: 8 of token l/4 from 8·(l%4) on,
// of integers 4 from 4·(l%4) on and 4 that are 16 behind. In the other order these are in two places.
func (x *fragments) inGroup() u32 {
	lane := x.e.Lane
	if !x.otherOrder() {
		return lane.MulC(4)
	}
	each := 8
	if inFixed(x.g.M.Format) {
		each = 4
	}
	return x.g.In.At(lane.DivC(4), lane.RemC(4).MulC(each)).DivC(2)
}

// load reads the lane's pairs of a k group from pair at on. Elements beyond K, which nobody has written, are zeros.
// Callers pass places that are a constant apart: nvcc cannot derive that from numbers of groups in 32 bits, which might
// wrap.
func (x *fragments) load(to []*dsl.Var[dsl.BF16x2], group func() u32, at dsl.Val[dsl.U64]) {
	k, e, in := x.e.K, x.e, x.g.In
	get := func() {
		pairs := dsl.View[dsl.BF16x2](x.g.X)
		var words []pair
		switch {
		case !x.otherOrder():
			words = pairs.LoadN(at, 4)
		case inFixed(x.g.M.Format):
			words = append(pairs.LoadN(at, 2), pairs.LoadN(at.AddC(8), 2)...)
		default:
			words = append(pairs.LoadN(at, 2), pairs.LoadN(at.AddC(4), 2)...)
		}
		for i, v := range words {
			to[i].Set(inputAs(k, in.Format, x.g.M.Format, v))
		}
	}
	if in.K%x.g.M.Format.Columns() == 0 {
		get()
		return
	}
	there := func() dsl.Pred {
		if in.K%pipeline.GroupK == 0 {
			return group().LtC(in.K / pipeline.GroupK)
		}
		return group().MulC(pipeline.GroupK).Add(e.Lane.AndC(3).MulC(8)).LtC(in.K)
	}
	k.IfElse(there(), get, func() {
		for _, v := range to {
			v.Set(dsl.Lit[dsl.BF16x2](k, 0))
		}
	})
}

// advance makes the fetched chunk, c, the one to multiply with and fetches the next:
// behind the last chunk the first again, for the next batch.
func (x *fragments) advance(c u32) {
	k, m := x.e.K, x.g.M
	for half, blocks := range x.fixed {
		for i, b := range blocks {
			b.set(k, x.next[(half*len(blocks)+i)*m.Format.Parts():][:m.Format.Parts()])
		}
	}
	for half, blocks := range x.half {
		for i, b := range blocks {
			b.set(x.next[(half*len(blocks)+i)*m.Format.Parts():][:m.Format.Parts()])
		}
	}
	for i, four := range x.next[:len(x.now)] {
		for j, v := range four {
			x.now[i][j].Set(v.Get())
		}
	}
	if !x.g.sumsInStage() {
		x.sum()
	}
	if m.ChunksPerTile == 1 {
		return // every batch multiplies with the same
	}
	next := c.AddC(1)
	if m.Batches() > 1 {
		x.fetch(dsl.Select(next.EqC(m.ChunksPerTile), k.U32(0), next))
		return
	}
	k.If(next.LtC(m.ChunksPerTile), func() { x.fetch(next) })
}

// sum makes the sums of the chunk's input, of 4 bits.
func (x *fragments) sum() {
	for _, blocks := range x.half {
		for _, b := range blocks {
			b.sum(x.e.K, x.e.Lane)
		}
	}
}

// of is what mma h of the warp's i-th k group takes of 8 tokens; its k groups are those of its
// tile groups, one after another.
func (x *fragments) of(half, i, h int) (lo, hi pair) {
	v := x.now[half*len(x.now)*8/x.g.In.Padded()+i]
	return v[2*h].Get(), v[2*h+1].Get()
}

// tilePair is the accumulators of two row tiles: 8 columns are one mma's for both
// tiles, 16 columns one of each. Of integers each tile has its own, of a lane's two rows and the tokens of each set.
type tilePair [][]*dsl.Var[dsl.F32]

// accumulators are zeros for all tiles of a batch.
func (g *GEMM) accumulators(k *dsl.Kernel) []tilePair {
	out := make([]tilePair, pipeline.CeilDiv(g.M.Batch, 2))
	for i := range out {
		n, each := 1, 4
		switch {
		case inNibbles(g.M.Format):
			n = g.In.Padded() / 8
		case g.In.Padded() == 16 || inFixed(g.M.Format):
			n, each = min(2, g.M.Batch-2*i), g.In.Padded()/4
		}
		for range n {
			out[i] = append(out[i], dsl.NewArray(k.F32(0), each, "acc"))
		}
	}
	return out
}

// multiply drains the chunks of tiles first and first+1 of the batch, as far as it
// has them, and adds their products. Both are multiplied together: the mmas of a
// tile wait for each other, those of another do not.
func (g *GEMM) multiply(e *grid.Env, c *pipeline.Consumer, r *pipeline.Ring, x *fragments, acc tilePair, tiles u32,
	first,
	chunk int) {
	if inFixed(g.M.Format) {
		g.multiplyInt4(e, c, r, x, acc, tiles, first, chunk)
		return
	}
	inTurn(g, e.K, tiles, first, func() (w [][]pair) {
		c.Drain(func(base u32) { w = g.weights(e, r, base, x.unit, chunk) })
		return w
	}, func(w [][][]pair) { g.products(e, x, acc, w, chunk) })
}

// inTurn drains the weights of tiles first and first + 1 of a batch, as far as it has them, and then multiplies with
// both.
func inTurn[W any](g *GEMM, k *dsl.Kernel, tiles u32, first int, drain func() W, products func(w []W)) {
	has := func(tile int) dsl.Pred { return k.Bool(tile == 0).Or(tiles.Gt(k.U32(tile))) } // a batch has a tile
	k.If(has(first), func() {
		w := []W{drain()}
		if first+1 == g.M.Batch {
			products(w)
			return
		}
		k.IfElse(has(first+1), func() { products(append(w, drain())) }, func() { products(w) })
	})
}

// weights loads the warp's k groups of a chunk of n from the ring, where the chunk
// begins at base, and the lane's words are unit behind that of a group. Groups that it does not have are zeros.
func (g *GEMM) weights(e *grid.Env, r *pipeline.Ring, base, unit u32, chunk int) (w [][]pair) {
	k := e.K
	data, n, at := dsl.View[dsl.BF16x2](r.Data), 4, base.MulC(4)
	if !g.M.Format.Blocks() {
		at = at.Add(unit)
	} else {
		n = blockPairs + g.blockScales()
	}
	for i := range groups(e, chunk) {
		group := e.Warp.AddC(i * e.Consumers)
		load := func() []pair {
			if g.M.Format.Blocks() {
				return g.blockWords(e, r, at.Add(group.MulC(g.M.Format.GroupSize()/4)), unit)
			}
			return data.LoadN(at.Add(group.MulC(pipeline.GroupBytes/4)), 4)
		}
		if (i+1)*e.Consumers <= chunk {
			w = append(w, load())
			continue
		}
		vars := dsl.NewArray(dsl.Lit[dsl.BF16x2](k, 0), n, "w")
		k.If(group.LtC(chunk), func() {
			for j, v := range load() {
				vars[j].Set(v)
			}
		})
		var four []pair
		for _, v := range vars {
			four = append(four, v.Get())
		}
		w = append(w, four)
	}
	return w
}

// products adds the products of one or two tiles' weights with the input, in the
// order of the k groups. The order of the elements within a group does not matter,
// as it is the same for both operands: see package pipeline.
func (g *GEMM) products(e *grid.Env, x *fragments, acc tilePair, w [][][]pair, chunk int) {
	parts := g.M.Format.Parts()
	for i := range groups(e, chunk) {
		step := func() {
			if g.M.Format.Blocks() {
				g.blockProducts(e, x, acc, w, i)
				return
			}
			var wide [][][]pair // [tile][k group]
			for t := range w {
				wide = append(wide, operands(g.M.Format, w[t][i]))
			}
			for h := range 2 * parts {
				part, h := h/2, h%2
				a0, a2 := x.of(0, i*parts+part, h)
				if g.In.Padded() == 8 {
					g.asRows(e, [2]pair{a0, a2}, acc[0], wide, part, h)
					continue
				}
				a1, a3 := x.of(1, i*parts+part, h)
				for t := range wide {
					add(g.M.Format, acc[t], [4]pair{a0, a1, a2, a3}, [2]pair{wide[t][part][2*h], wide[t][part][2*h+1]})
				}
			}
		}
		if (i+1)*e.Consumers <= chunk {
			step()
		} else {
			e.K.If(e.Warp.AddC(i*e.Consumers).LtC(chunk), step)
		}
	}
}

// asRows multiplies with the weights of two tiles as the 16 rows of operand A, and 8
// tokens as the columns of B.
func (g *GEMM) asRows(e *grid.Env, x [2]pair, acc []*dsl.Var[dsl.F32], w [][][]pair, i, h int) {
	zero := dsl.Lit[dsl.BF16x2](e.K, 0)
	a := [4]pair{w[0][i][2*h], zero, w[0][i][2*h+1], zero}
	if len(w) == 2 {
		a[1], a[3] = w[1][i][2*h], w[1][i][2*h+1]
	}
	add(g.M.Format, acc, a, x)
}

// add is acc += a·b.
func add(f pipeline.Format, acc []*dsl.Var[dsl.F32], a [4]pair, b [2]pair) {
	for i, v := range productOf(f, a, b, [4]f32{acc[0].Get(), acc[1].Get(), acc[2].Get(), acc[3].Get()}) {
		acc[i].Set(v)
	}
}
