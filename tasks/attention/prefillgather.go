package attention

import (
	"math/bits"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
)

// prefillGather fetches tokens of pages too small to be permuted as wgmma wants, by 16-byte copies of all lanes of the
// producer warps. Lanes side by side have units of one token, so that a row of a panel is fetched at once; a lane's
// units lie at the same place of their tokens. A lane knows the pages of a few of its warp's tokens, and asks the other
// lanes for more.
type prefillGather struct {
	*prefillPieces
	c     *pipeline.TileProducer
	width int // lanes for a token: its units in keys' or values' panels, rounded up to a power of two
	warp  u32 // of the producer warps
}

// gather streams all pieces, keys a block ahead. The pages of a block's tokens are looked up a block before.
func (p *prefillPieces) gather(c *pipeline.TileProducer) {
	t, k := p.t, p.e.K
	_, keys := t.panels(0)
	_, values := t.panels(1)
	width := 1 << bits.Len(uint(max(keys, values)*t.rowUnits()-1))
	g := &prefillGather{prefillPieces: p, c: c, width: width, warp: p.e.Warp.SubC(p.e.Consumers)}
	p.each(func(piece prefillPiece) {
		k.If(p.some(piece), func() {
			next, now, before := g.variables("next"), g.variables("now"), g.variables("before")
			g.find(next, p.at(piece, piece.begin, 1))
			k.For(piece.begin, piece.blocks, func(b u32) {
				for i, x := range now {
					before[i].Set(x.Get())
					x.Set(next[i].Get())
				}
				g.find(next, p.at(piece, b.AddC(1), 1))
				g.copy(now, piece, 0)
				k.If(b.Ne(piece.begin), func() { g.copy(before, piece, 1) })
			}, dsl.Unroll(1))
			g.copy(now, piece, 1)
		})
	})
	c.Announce()
}

// each is the tokens of a warp that its lanes have a unit of at once.
func (g *prefillGather) each() int { return dsl.WarpSize / g.width }

// apart is how many tokens further a lane's next unit is.
func (g *prefillGather) apart() int { return g.each() * g.t.Producers }

// times is the number of units of a lane, of keys or of values of a block.
func (g *prefillGather) times() int { return pipeline.CeilDiv(g.t.Block(), g.apart()) }

func (g *prefillGather) variables(name string) []*dsl.Var[dsl.U32] {
	return dsl.NewArray(g.e.K.U32(0), pipeline.CeilDiv(g.times()*g.each(), dsl.WarpSize), name)
}

// find looks up the pages of a block's tokens: lane l has those of its warp's tokens l, l + 32, …. Behind the last
// token it is that one's page.
func (g *prefillGather) find(pages []*dsl.Var[dsl.U32], block u32) {
	for i, x := range pages {
		n := dsl.Opaque(g.e.Lane).AddC(dsl.WarpSize * i)
		token := n.DivC(g.each()).MulC(g.apart()).Add(g.warp.MulC(g.each())).Add(n.RemC(g.each()))
		x.Set(g.page(block.MulC(g.t.Block()).Add(token).Min(g.end.SubC(1)).DivC(g.t.KV.Page)))
	}
}

// asked is how many pages a lane asks others for before it starts copies: an answer takes longer than a copy's start.
const asked = 4

// copy fills a stage with the keys (v = 0) or values of the tokens in pages. A producer's thread has 40 registers: what
// follows from its place is computed here, and not kept from before the loop.
func (g *prefillGather) copy(pages []*dsl.Var[dsl.U32], piece prefillPiece, v int) {
	t, l := g.t, g.t.KV
	first, panels := t.panels(v)
	_, m := l.fullPermutation()
	lane := dsl.Opaque(g.e.Lane)
	at := lane.RemC(g.width).Named("unit")
	which := lane.DivC(g.width)
	of := dsl.Opaque(g.warp).MulC(g.each()).Add(which).Named("first_token")
	g.c.Gather(func(base u32, data dsl.Buf[dsl.B128]) {
		to := base.Add(at.DivC(m).MulC(t.Block() * m)).Add(at.RemC(m)).Add(of.MulC(m)).Named("to")
		from := func(i int) dsl.Val[dsl.U64] { // in page 0
			unit := at.DivC(m).AddC(first).MulC(m).Add(at.RemC(m).Xor(g.key(of, i)))
			row := g.layer.Mul(g.s.Pages).MulC(l.Heads).Add(piece.head).MulC(l.Page).Add(of.AddC(i * g.apart()).RemC(l.Page))
			return dsl.Cast[dsl.U64](row).MulC(l.TokenUnits()).Add(dsl.Cast[dsl.U64](unit)).Named("from")
		}
		var same dsl.Val[dsl.U64]
		if g.alike() {
			same = from(0)
		}
		for i := 0; i < g.times(); i += asked {
			var answers []u32
			for j := i; j < min(i+asked, g.times()); j++ {
				n := j * g.each()
				answers = append(answers, dsl.Shfl(pages[n/dsl.WarpSize].Get(), which.AddC(n%dsl.WarpSize)))
			}
			for j, page := range answers {
				n := i + j
				own := same
				if !g.alike() {
					own = from(n)
				}
				start := func() {
					dsl.CopyAsync(data, to.AddC(n*g.apart()*m), g.s.Cache,
						dsl.Cast[dsl.U64](page).MulC(l.Heads*l.Page*l.TokenUnits()).Add(own))
				}
				if (n+1)*g.apart() > t.Block() { // more lanes than tokens
					all := start
					start = func() { g.e.K.If(of.AddC(n*g.apart()).LtC(t.Block()), all) }
				}
				if panels*m < g.width {
					g.e.K.If(at.LtC(panels*m), start)
				} else {
					start()
				}
			}
		}
	})
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

// alike is whether all tokens of a lane lie at the same place of their pages, and have one key.
func (g *prefillGather) alike() bool {
	every, m := g.t.KV.fullPermutation()
	return g.apart()%(every*m) == 0 && g.apart()%g.t.KV.Page == 0
}
