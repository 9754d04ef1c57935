package attention

import (
	"math/bits"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
)

// prefillGather fetches tokens of pages too small to be permuted as wgmma wants, by 16-byte copies of all lanes of the
// producer warps. Lanes side by side have units of one token, its keys' and its values', so that what lies together in
// the cache is fetched at once; a lane's units lie at the same place of their tokens. A lane knows the pages of a few
// of its warp's tokens, and asks the other lanes for more.
type prefillGather struct {
	*prefillPieces
	c     *pipeline.TileProducer
	units int // of a token, in keys' panels and then in values'
	keys  int // of them in keys' panels
	width int // lanes for a token: units, rounded up to a power of two, at most a warp's
	warp  u32 // of the producer warps
}

// gather streams all pieces, keys and values of a block together. The pages of a block's tokens are looked up a block
// before.
func (p *prefillPieces) gather(c *pipeline.TileProducer) {
	t, k := p.t, p.e.K
	_, keys := t.panels(0)
	_, values := t.panels(1)
	units := (keys + values) * t.rowUnits()
	g := &prefillGather{prefillPieces: p, c: c, units: units, keys: keys * t.rowUnits(),
		width: min(dsl.WarpSize, 1<<bits.Len(uint(units-1))), warp: p.e.Warp.SubC(p.e.Consumers)}
	p.each(func(piece prefillPiece) {
		k.If(piece.blocks.NeC(0), func() {
			next, now := g.variables("next"), g.variables("now")
			g.find(next, p.at(piece, piece.start, 1))
			k.For(piece.start, piece.blocks, func(b u32) {
				for i, x := range now {
					x.Set(next[i].Get())
				}
				g.find(next, p.at(piece, b.AddC(1), 1))
				g.copy(now, piece)
			}, dsl.Unroll(1))
		})
	})
	c.Announce()
}

// each is the tokens of a warp that its lanes have a unit of at once.
func (g *prefillGather) each() int { return dsl.WarpSize / g.width }

// apart is how many tokens further a lane's next unit is.
func (g *prefillGather) apart() int { return g.each() * g.t.Producers }

// times is the number of tokens of a block that a lane has units of.
func (g *prefillGather) times() int { return pipeline.CeilDiv(g.t.block(), g.apart()) }

func (g *prefillGather) variables(name string) []*dsl.Var[dsl.U32] {
	return dsl.NewArray(g.e.K.U32(0), pipeline.CeilDiv(g.times()*g.each(), dsl.WarpSize), name)
}

// find looks up the pages of a block's tokens: lane l has those of its warp's tokens l, l + 32, …. Behind the last
// token it is that one's page.
func (g *prefillGather) find(pages []*dsl.Var[dsl.U32], block u32) {
	for i, x := range pages {
		n := dsl.Opaque(g.e.Lane).AddC(dsl.WarpSize * i)
		token := n.DivC(g.each()).MulC(g.apart()).Add(g.warp.MulC(g.each())).Add(n.RemC(g.each()))
		x.Set(g.page(block.MulC(g.t.block()).Add(token).Min(g.end.SubC(1)).DivC(g.t.KV.Page)))
	}
}

// asked is how many pages a lane asks others for before it starts copies: an answer takes longer than a copy's start.
const asked = 4

// copy fills two stages, with the keys and with the values of the tokens in pages. A producer's thread has 40
// registers: what follows from its place is computed here, and not kept from before the loop.
func (g *prefillGather) copy(pages []*dsl.Var[dsl.U32], piece prefillPiece) {
	lane := dsl.Opaque(g.e.Lane)
	which := lane.DivC(g.width)
	of := dsl.Opaque(g.warp).MulC(g.each()).Add(which).Named("first_token")
	g.c.Gather(func(keys, values u32, data dsl.Buf[dsl.B128]) {
		var parts []*gatherPart
		for first := 0; first < g.units; first += dsl.WarpSize {
			parts = append(parts, g.part(lane.RemC(g.width), first, of, piece, keys, values))
		}
		for i := 0; i < g.times(); i += asked {
			var answers []u32
			for j := i; j < min(i+asked, g.times()); j++ {
				n := j * g.each()
				answers = append(answers, dsl.Shfl(pages[n/dsl.WarpSize].Get(), which.AddC(n%dsl.WarpSize)))
			}
			for j, page := range answers {
				all := func() {
					for _, part := range parts {
						part.start(data, i+j, page)
					}
				}
				if (i+j+1)*g.apart() > g.t.block() { // more lanes than tokens
					g.e.K.If(of.AddC((i+j)*g.apart()).LtC(g.t.block()), all)
				} else {
					all()
				}
			}
		}
	})
}

// gatherPart is a lane's unit of a token, one of each warp's worth of them.
type gatherPart struct {
	g    *prefillGather
	at   u32 // of all units of a token; some lanes may be behind the last
	some bool
	to   u32                // where the first token's goes
	same []dsl.Val[dsl.U64] // where it lies in page 0, of the tokens by turns
}

// part is the lane's unit at of those from first on, in the token of and those behind it.
func (g *prefillGather) part(at u32, first int, of u32, piece prefillPiece, keys, values u32) *gatherPart {
	t, l := g.t, g.t.KV
	_, m := l.fullPermutation()
	values0, _ := t.panels(1)
	at = at.AddC(first).Named("unit")
	p := &gatherPart{g: g, at: at, some: first+g.width > g.units}
	base, local, begins := keys, at, g.e.K.U32(0)
	switch ofValues := func() (u32, u32, u32) { return values, at.SubC(g.keys), g.e.K.U32(values0 * m) }; {
	case first >= g.keys:
		base, local, begins = ofValues()
	case first+g.width > g.keys:
		b, n, from := ofValues()
		is := at.LtC(g.keys)
		base, local, begins = dsl.Select(is, base, b), dsl.Select(is, local, n), dsl.Select(is, begins, from)
	}
	p.to = base.Add(local.DivC(m).MulC(t.block() * m)).Add(local.RemC(m)).Add(of.MulC(m)).Named("to")
	for i := range g.turns() {
		unit := begins.Add(local.DivC(m).MulC(m)).Add(local.RemC(m).Xor(g.key(of, i)))
		row := g.layer.Mul(g.s.Pages).MulC(l.Heads).Add(piece.head).MulC(l.Page).Add(of.AddC(i * g.apart()).RemC(l.Page))
		p.same = append(p.same, dsl.Cast[dsl.U64](row).MulC(l.TokenUnits()).Add(dsl.Cast[dsl.U64](unit)).Named("from"))
	}
	return p
}

// start starts the copy of the lane's n-th token.
func (p *gatherPart) start(data dsl.Buf[dsl.B128], n int, page u32) {
	g := p.g
	_, m := g.t.KV.fullPermutation()
	one := func() {
		from := dsl.Cast[dsl.U64](page).MulC(g.t.KV.Heads * g.t.KV.Page * g.t.KV.TokenUnits())
		dsl.CopyAsync(data, p.to.AddC(n*g.apart()*m), g.s.Cache, from.Add(p.same[n%len(p.same)]))
	}
	if p.some {
		g.e.K.If(p.at.LtC(g.units), one)
		return
	}
	one()
}

// key is what the units of a lane's i-th token are permuted by, less what they are in the cache.
func (g *prefillGather) key(of u32, i int) u32 {
	every, m := g.t.KV.fullPermutation()
	_, own := g.t.KV.permutation()
	token := of.AddC(i * g.apart())
	key := token.DivC(every).RemC(m)
	if own > 1 {
		key = key.Xor(token.RemC(g.t.KV.Page).DivC(every).RemC(own))
	}
	return key
}

// turns is after how many tokens a lane's lie at the same place of their pages again, and have the same key.
func (g *prefillGather) turns() int {
	every, m := g.t.KV.fullPermutation()
	return max(1, max(every*m, g.t.KV.Page)/g.apart())
}
