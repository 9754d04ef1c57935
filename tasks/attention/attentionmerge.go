package attention

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
)

// Phase is whether the class's partial states are merged in a phase of their own.
func (t *Attention) Phase() dsl.Pred {
	head := t.Class * (t.Work.PerCTA + 1) * kv.ItemWords
	return dsl.Uniform(t.Work.Items.Load(dsl.At(head+kv.HeaderPhase)), dsl.GPUScope).NeC(0)
}

// mergeStates merges this CTA's share of the rows that its items have partial states of: of
// a row and KV head's S states the SM that wrote the j-th merges the j-th S-th of the
// output, as soon as the others' packets are there. All of this CTA's own have been
// written, so that nobody waits for somebody who waits.
func (t *Attention) mergeStates(e *grid.Env, s Step) {
	if t.Work == nil {
		t.ifSplit(e, s, func() { t.eachSplit(e, func(it *item) { t.mergeShare(e, s, it) }) })
		return
	}
	k, w := e.K, t.Work
	head := t.Class * (w.PerCTA + 1) * kv.ItemWords
	count := dsl.Uniform(w.Items.Load(dsl.At(head)), dsl.CTAScope)
	k.If(t.Phase().Not(), func() {
		k.For(k.U32(0), count, func(i u32) {
			it := &item{t: t, e: e, at: i.AddC(1).MulC(kv.ItemWords).AddC(head).Named("item")}
			k.If(it.direct().Not(), func() {
				k.Claim("merge: an item of more rows than its words say the states of",
					func() dsl.Pred { return it.word(kv.ItemRows).LtC(kv.SettleRows + 1) })
				k.For(k.U32(0), it.word(kv.ItemRows), func(row u32) { t.mergeRow(e, s, it, row) }, dsl.Unroll(1))
			})
		}, dsl.Unroll(1))
	})
}

// mergeShare merges the item's share of its group of query heads.
func (t *Attention) mergeShare(e *grid.Env, s Step, it *item) {
	k, d := e.K, t.KV.D
	first, heads := t.queries(e, it)
	all := gather{from: first.MulC(d / 2), words: heads.MulC(d / 2), unit: shareUnit, own: it.split, n: k.U32(t.Splits),
		at: func(state, word u32) u32 { return state.MulC(t.Heads * d / 2).Add(word) }}
	t.gather(e, all, func(word u32, mine dsl.Pred, lo, hi f32) { t.Merge.store(e, s, word, lo, hi, &mine) })
}

// mergeRow merges the item's share of its row-th row, all heads of the group.
func (t *Attention) mergeRow(e *grid.Env, s Step, it *item, row u32) {
	k, group, d := e.K, t.Group(), t.KV.D
	states := dsl.Uniform(it.words(row.AddC(kv.ItemStates)), dsl.CTAScope)
	first := states.AndC(1<<kv.StateBits - 1).Named("first")
	token, head := it.row(row), it.words(k.U32(kv.ItemHead))
	own := dsl.Uniform(it.words(row.AddC(kv.ItemPartials)), dsl.CTAScope).Sub(first)
	n := states.ShrC(kv.StateBits).Named("states")
	k.Claim("merge: an item's state is not among its row's", func() dsl.Pred { return own.Lt(n) })
	all := gather{from: k.U32(0), words: k.U32(group * d / 2), unit: 1, own: own, n: n,
		at: func(state, word u32) u32 { return first.Add(state).MulC(group * d / 2).Add(word) }}
	t.gather(e, all, func(word u32, mine dsl.Pred, lo, hi f32) {
		k.If(mine, func() {
			of, dim := head.MulC(group).Add(word.DivC(d/2)), word.RemC(d/2).MulC(2)
			lo, hi = t.Variant.outputs(e, s, t.Heads, of, token, t.Work)(dim, lo, hi)
			t.Final(token, of.MulC(d).Add(dim), lo, hi)
		})
	})
}

// gather is the own-th of n shares of an output whose n states are to be merged: it has
// words packets from packet from on, which a state has where at says. Shares begin at multiples of unit, which words
// and from are, too.
type gather struct {
	from, words u32
	unit        int
	own, n      u32
	at          func(state, word u32) u32
}

// gather merges a share and calls body for its packets in all threads; mine holds in those that own one, the others
// have some word. All packets of a batch of states are polled at once, each by a thread
// of its own as long as there are enough, and come together in Scratch, where a thread merges all of an output's in
// their order: polled one after another they would cost a round trip each.
func (t *Attention) gather(e *grid.Env, g gather, body func(word u32, mine dsl.Pred, lo, hi f32)) {
	k, units := e.K, g.words.DivC(g.unit)
	begin := g.own.Mul(units).Div(g.n).MulC(g.unit).Named("share")
	end := g.own.AddC(1).Mul(units).Div(g.n).MulC(g.unit).Named("share_end")
	k.Claim("merge: a share beyond the output's words", func() dsl.Pred { return end.Lt(g.words.AddC(1)) })
	k.ForStep(begin, end, e.Threads(), func(block u32) {
		words := end.Sub(block).MinC(e.Threads()).Named("words")
		block = block.Add(g.from)
		mine := e.Tid.Lt(words)
		m := t.Merge.running(e)
		k.ForStep(k.U32(0), g.n, statesAtOnce, func(from u32) {
			n := g.n.Sub(from).MinC(statesAtOnce).Named("states_now")
			k.Claim("merge: more words than Scratch has room for",
				func() dsl.Pred { return n.Mul(words).LtC(t.gatheredLen() + 1) })
			e.Wait("partial states", func() {
				t.poll(e, n.Mul(words), func(i u32) u32 {
					k.Claim("merge: a word of no state", func() dsl.Pred { return i.Div(words).Lt(n) })
					return g.at(from.Add(i.Div(words)), block.Add(i.Rem(words)))
				})
				e.Sync()
			})
			k.If(mine, func() {
				m.add(from, g.n, n, func(j u32) dsl.Val[dsl.B128] { return t.gathered().Load(j.Mul(words).Add(e.Tid)) })
			})
			e.Sync() // what comes next writes Scratch again
		}, dsl.Unroll(1))
		lo, hi := m.done()
		body(block.Add(e.Tid.Min(words.SubC(1))), mine, lo, hi)
	}, dsl.Unroll(1))
}

// poll brings n packets of states to Scratch, the i-th from where at says: as many to a thread at once as a thread
// has where every item has as many states.
func (t *Attention) poll(e *grid.Env, n u32, at func(i u32) u32) {
	k, what := e.K, "waits for a partial state of attention, word %d"
	each := 1
	if t.Work == nil {
		states := min(t.Splits, statesAtOnce)
		share := shareUnit * pipeline.CeilDiv(StatePackets(t.part(), t.KV.D)/shareUnit, t.Splits)
		each = pipeline.CeilDiv(states*share, e.Threads())
	}
	k.ForStep(e.Tid, n, each*e.Threads(), func(first u32) {
		if each == 1 {
			t.gathered().Store(first, t.LL.Load(e, t.States, at(first), what))
			return
		}
		is, places := []u32{first}, []u32{at(first)}
		for j := 1; j < each; j++ {
			is = append(is, first.AddC(j*e.Threads()))
			places = append(places, at(is[j].Min(n.SubC(1))))
		}
		for j, packet := range t.LL.All(e, t.States, places, what) {
			if j == 0 {
				t.gathered().Store(first, packet)
			} else {
				k.If(is[j].Lt(n), func() { t.gathered().Store(is[j], packet) })
			}
		}
	}, dsl.Unroll(1))
}

// gathered is Scratch as the packets of states that are merged.
func (t *Attention) gathered() dsl.Buf[dsl.B128] { return dsl.View[dsl.B128](t.Scratch) }

// gatheredLen is its length: packets of a share and a batch of states. A share has no more packets
// of more states than an output has packets, and its unit more a state.
func (t *Attention) gatheredLen() int {
	if t.Work == nil {
		return StatePackets(t.part(), t.KV.D) + shareUnit*statesAtOnce
	}
	return StatePackets(t.Group(), t.KV.D) + statesAtOnce
}

// shareUnit is what shares of an output without Work are multiples of: states' packets that a packet of the output is
// made of.
const shareUnit = 2
