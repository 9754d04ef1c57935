package product

import (
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/i4"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
)

// RegisterPrefetch is where consumer warps keep the first chunks of a product while its input is not
// there yet: in registers, each warp the weights of its own k groups, so that the chunks'
// stages are free at once and the producer goes on. All products of a kernel share one:
// what one holds it has used up before the next holds.
//
// A chunk takes Registers of a thread, from Hold to the product's first tiles.
type RegisterPrefetch struct {
	// Chunks is how many are held at most, 1 to MaxPrefetch. A share with fewer is held whole.
	Chunks int
	// Registers are what PrefetchRegisters says.
	Registers int

	weights [][]*dsl.Var[dsl.BF16x2] // [chunk][Registers]
}

// MaxPrefetch is how many chunks can be held at most.
const MaxPrefetch = 8

// PrefetchRegisters is how many registers of a thread a chunk of any of a plan's matrices takes beside n
// consumer warps: those of a stage's bytes, or more for scales, which several threads have.
func PrefetchRegisters(p *pipeline.Plan, consumers int) int {
	most := StageRegisters(p.StageBytes, consumers)
	all := slices.Concat(p.Layer, p.Final)
	for i := range all {
		if m := &all[i]; inFixed(m.Format) || m.Format.Blocks() {
			g := &GEMV{M: m}
			for part := range m.ChunksPerTile {
				most = max(most, g.chunkRegisters(consumers, part))
			}
		}
	}
	return most
}

// StageRegisters is how many registers of a thread n bytes take beside n consumer warps.
func StageRegisters(stageBytes, consumers int) int {
	return 4 * pipeline.CeilDiv(stageBytes/pipeline.GroupBytes, consumers)
}

// Start declares the registers; it runs at the top of the
// consumers' role. A nil *RegisterPrefetch holds nothing.
func (h *RegisterPrefetch) Start(e *grid.Env) {
	if h == nil {
		return
	}
	h.weights = nil
	for range h.Chunks {
		var chunk []*dsl.Var[dsl.BF16x2]
		for n := h.Registers; n > 0; n -= 4 {
			chunk = append(chunk, dsl.NewArray(dsl.Lit[dsl.BF16x2](e.K, 0), min(n, 4), "held")...)
		}
		h.weights = append(h.weights, chunk)
	}
}

// Forget clears the registers. It computes nothing: where a path of the program holds
// nothing and others do, it ends what the registers are kept for until there.
func (h *RegisterPrefetch) Forget(e *grid.Env) {
	if h == nil {
		return
	}
	for _, chunk := range h.weights {
		forget(e, chunk)
	}
}

func forget(e *grid.Env, chunk []*dsl.Var[dsl.BF16x2]) {
	for _, w := range chunk {
		w.Set(dsl.Lit[dsl.BF16x2](e.K, 0))
	}
}

// held is how many chunks of a share are held at most.
func (g *GEMV) held() int {
	if g.Prefetch == nil {
		return 0
	}
	return min(g.Prefetch.Chunks, g.M.MaxCount()*g.M.ChunksPerTile)
}

// heldRule is that there are registers for what is held.
func (g *GEMV) heldRule(e *grid.Env) rule.Rule {
	n := 0
	if g.Prefetch != nil {
		n = len(g.Prefetch.weights)
	}
	return rule.Sound(rule.First(
		rule.Need(n >= g.held(), "%s: Prefetch has registers for %d chunks, want %d: Start comes first", g.Name, n, g.held()),
		rule.Need(g.held() == 0 || n == 0 || g.chunkRegisters(e.Consumers, 0) <= g.Prefetch.Registers,
			"%s: a chunk takes more registers than Prefetch has", g.Name)))
}

// chunkRegisters is how many registers of a thread chunk part of a tile takes.
func (g *GEMV) chunkRegisters(consumers, part int) int {
	columns := g.M.ChunkColumns(part)
	if p := g.int4(nil); p != nil {
		n := pieceOf(consumers, p, columns)
		return pipeline.CeilDiv(columns/i4.Columns/n, consumers) * p.Words(n)
	}
	return groupWords(g.M.Format) * pipeline.CeilDiv(columns/g.M.Format.Columns(), consumers)
}

// heldTiles is how many tiles they are of, the last one perhaps in part.
func (g *GEMV) heldTiles() int { return pipeline.CeilDiv(g.held(), g.M.ChunksPerTile) }

// heldOf is how many chunks of tile t of a share are held.
func (g *GEMV) heldOf(t int) int { return min(g.held()-t*g.M.ChunksPerTile, g.M.ChunksPerTile) }

// heldChunk is where chunk part of a share's tile t is held: 4 registers for each k group of the warp, or of 4
// bits for each piece as many as it takes.
func (g *GEMV) heldChunk(e *grid.Env, t, part int) []*dsl.Var[dsl.BF16x2] {
	return g.Prefetch.weights[t*g.M.ChunksPerTile+part][:g.chunkRegisters(e.Consumers, part)]
}

// owned runs body where the CTA's share has a tile t: everywhere, or where Count says so.
func (g *GEMV) owned(k *dsl.Kernel, share Share, t int, body func()) {
	if slices.Min(g.M.Count) > t {
		body()
		return
	}
	k.If(share.Count.GeC(t+1), body)
}

// Hold takes the first chunks of this CTA's share out of the ring, as they land, before the
// product's input is there: Consume begins with them. All consumer warps run it, behind all
// that they drain before, and none waits for another here. Without Prefetch it does nothing.
func (g *GEMV) Hold(e *grid.Env, c *pipeline.Consumer, r *pipeline.Ring, share Share) {
	if g.held() == 0 {
		return
	}
	if p := g.problem(e, r); p != "" {
		e.K.Require(false, "%s", p)
		return
	}
	e.K.Assert(share.Count.GeC(slices.Min(g.M.Count)), g.Name+": a share of fewer tiles than the plan has")
	e.K.Note("%s: its first chunks, from the ring to registers while the input is on its way", g.Name)
	e.Part("holds chunks", func() {
		for t := range g.heldTiles() {
			g.forget(e, t)
			g.owned(e.K, share, t, func() {
				for part := range g.heldOf(t) {
					g.take(e, c, r, t, part)
				}
			})
		}
	})
}

// forget clears the registers of tile t where not all lanes or shares fill them: else what
// they held of another product would seem to be of use until now.
func (g *GEMV) forget(e *grid.Env, t int) {
	for part := range g.heldOf(t) {
		if slices.Min(g.M.Count) > t && g.pieces(e, g.M.ChunkColumns(part))%e.Consumers == 0 {
			continue
		}
		forget(e, g.heldChunk(e, t, part))
	}
}

// take drains the next chunk, part of a share's tile t, into the registers.
func (g *GEMV) take(e *grid.Env, c *pipeline.Consumer, r *pipeline.Ring, t, part int) {
	held := g.heldChunk(e, t, part)
	if g.Fixed != nil {
		g.takeInt4(e, c, r, part, held)
		return
	}
	c.DrainAt(func(base u32) u32 { return g.weightsAt(e, base) }, func(at u32) {
		g.eachGroup(e, g.M.ChunkColumns(part), func(i int, _ u32) {
			for n, w := range g.weights(e, r, at, i) {
				held[groupWords(g.M.Format)*i+n].Set(w)
			}
		})
	})
}

// heldFirst multiplies the tiles of which chunks are held, before Consume's first batch.
func (g *GEMV) heldFirst(e *grid.Env, c *pipeline.Consumer, r *pipeline.Ring, share Share) {
	if g.held() == 0 {
		return
	}
	e.K.Note("%s: tiles whose first chunks are in registers", g.Name)
	mine := e.Warp.MulC(batchTiles * pipeline.TileRows) // of half 0
	for t := range g.heldTiles() {
		g.owned(e.K, share, t, func() { g.keep(e, mine, e.K.U32(t), g.tile(e, c, r, t)) })
	}
}

// behindHeld is the first tile of a batch that heldFirst has not multiplied.
func (g *GEMV) behindHeld(k *dsl.Kernel, batch u32) u32 {
	if g.held() == 0 {
		return k.U32(0)
	}
	return dsl.Select(batch.EqC(0), k.U32(g.heldTiles()), k.U32(0))
}

// noTile is the number of a tile of which no chunk is held.
const noTile = -1

// useHeld multiplies what is held of a share's tile t, as tile would if it still lay in the
// ring. It returns how many chunks that were.
func (g *GEMV) useHeld(e *grid.Env, acc [][]*dsl.Var[dsl.F32], t int) int {
	place := g.inputPlace(e)
	for part := range g.heldOf(t) {
		held := g.heldChunk(e, t, part)
		g.eachGroup(e, g.M.ChunkColumns(part), func(i int, _ u32) {
			var w []pair
			for _, v := range held[groupWords(g.M.Format)*i:][:groupWords(g.M.Format)] {
				w = append(w, v.Get())
			}
			g.multiply(e.K, acc, g.input(e, place, e.K.U32(part), i), w)
		})
	}
	return g.heldOf(t)
}
