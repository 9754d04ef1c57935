package kv

import (
	"fmt"
	"math/bits"
	"slices"
)

// deal gives every item, longest first, to the CTA with the least work so far, the
// first of those; a CTA that has all items it may have takes part no longer.
func (p *Planner) deal(c *ClassPlan) {
	l := &p.limits
	c.words = resize(c.words, l.CTAs*l.recordWords())
	c.counts, c.Load = resize(c.counts, l.CTAs), resize(c.Load, l.CTAs)
	clear(c.counts)
	clear(c.Load)
	c.Phase = false
	p.idle()
	for i := range p.order {
		k := p.longest(i)
		u := &p.units[p.tiles[k.tile].unit]
		var w [ItemWords]uint32
		p.encode(k, &w)
		for h := u.head; h < u.head+u.heads; h++ {
			p.place(c, k, u, &w, h)
		}
	}
	p.dealNothing(c)
	for cta, n := range c.counts {
		header := c.words[cta*l.recordWords():][:ItemWords]
		clear(header)
		header[HeaderItems] = uint32(n)
		if c.Phase {
			header[HeaderPhase] = 1
		}
	}
}

// idle fills the heap with all CTAs, none of which has work.
func (p *Planner) idle() {
	p.heap = p.heap[:p.limits.CTAs]
	for i := range p.heap {
		p.heap[i] = uint64(i)
	}
}

// level is how many CTAs have a load.
type level struct{ load, ctas int }

// spread is the load of the busiest CTA when the pieces are dealt out, were there no
// limit to a CTA's items; or enough, where it is no less than that. Only loads matter
// here, and CTAs of one load take items of one cost together.
func (p *Planner) spread(enough int) int {
	levels := append(p.levels[:0], level{0, p.limits.CTAs}) // the least load last
	most := 0
	for i := range p.order {
		k := p.longest(i)
		for n := p.units[p.tiles[k.tile].unit].heads; n > 0; {
			least := &levels[len(levels)-1]
			up := level{least.load + k.cost, min(least.ctas, n)}
			n -= up.ctas
			if most = max(most, up.load); most >= enough {
				return enough
			}
			if least.ctas -= up.ctas; least.ctas == 0 {
				levels = levels[:len(levels)-1]
			}
			at := len(levels)
			for at > 0 && levels[at-1].load < up.load {
				at--
			}
			if at > 0 && levels[at-1].load == up.load {
				levels[at-1].ctas += up.ctas
				continue
			}
			levels = slices.Insert(levels, at, up)
		}
	}
	p.levels = levels
	return most
}

// place writes a piece's item of head h to the next CTA.
func (p *Planner) place(c *ClassPlan, k *piece, u *unit, w *[ItemWords]uint32, h int) {
	t := &p.tiles[k.tile]
	dst := p.next(c, k.cost)
	copy(dst, w[:])
	dst[ItemHead] = uint32(h)
	state := uint32(u.before + k.part)
	for i, row := range t.rows[:t.n] {
		at := int(row)*p.limits.KVHeads + h
		from, to := c.Merge[at], c.Merge[at+1]
		if from == to {
			dst[ItemFlags] = ItemDirect
			return
		}
		dst[ItemPartials+i] = from + state
		if i < SettleRows {
			dst[ItemStates+i] = (to-from)<<StateBits | from
		}
	}
	c.Phase = c.Phase || t.n > SettleRows
}

// phaseRows is how many rows' partial states a phase has to merge: all that there are, where some item of more than
// SettleRows rows has any.
func (p *Planner) phaseRows(c *ClassPlan) int {
	merged, phase := uint32(0), false
	for i := range p.tiles {
		t := &p.tiles[i]
		for _, row := range t.rows[:t.n] {
			if at := int(row)*p.limits.KVHeads + p.units[t.unit].head; c.Merge[at] < c.Merge[at+1] {
				merged |= 1 << row
				phase = phase || t.n > SettleRows
			}
		}
	}
	if !phase {
		return 0
	}
	return count(merged)
}

// next is the place of the next item, one of that cost: the words of the CTA with the
// least load. The heap holds load and CTA in one word, so that ties go to the lower CTA.
func (p *Planner) next(c *ClassPlan, cost int) []uint32 {
	if len(p.heap) == 0 {
		panic("BUG: more items than the CTAs may have")
	}
	cta := int(p.heap[0] & (1<<ctaBits - 1))
	c.counts[cta]++
	c.Load[cta] += cost
	if c.counts[cta] == p.limits.ItemsPerCTA {
		last := len(p.heap) - 1
		p.heap[0] = p.heap[last]
		p.heap = p.heap[:last]
	} else {
		p.heap[0] += uint64(cost) << ctaBits
	}
	sink(p.heap)
	return c.words[cta*p.limits.recordWords()+c.counts[cta]*ItemWords:][:ItemWords]
}

const ctaBits = 12

// sink restores the order of a heap whose first element has grown.
func sink(heap []uint64) {
	if len(heap) == 0 {
		return
	}
	v, at := heap[0], 0
	for {
		child := 2*at + 1
		if child >= len(heap) {
			break
		}
		if child+1 < len(heap) && heap[child+1] < heap[child] {
			child++
		}
		if v <= heap[child] {
			break
		}
		heap[at], at = heap[child], child
	}
	heap[at] = v
}

// encode writes the words that a piece's items have in common.
func (p *Planner) encode(k *piece, w *[ItemWords]uint32) {
	t := &p.tiles[k.tile]
	u := &p.units[t.unit]
	w[ItemEntries] = uint32(u.entries)
	w[ItemCached] = uint32(u.cached)
	w[ItemGrow] = uint32(u.grow)
	w[ItemFirst], w[ItemEnd], w[ItemOf] = uint32(k.first), uint32(k.end), uint32(k.of)
	w[ItemPosition] = uint32(u.position)
	encodeRowList(w, t.rows[:t.n])
	if k.tail {
		w[ItemTail] = uint32(t.tail)
	}
	if w[ItemTail] > 0 {
		w[ItemTailRow] = uint32(t.first)
	}
}

func encodeRowList(w *[ItemWords]uint32, rows []uint8) {
	w[ItemRows] = uint32(len(rows))
	for i, row := range rows {
		w[ItemRowList+i/8] |= uint32(row) << (4 * (i % 8))
	}
}

// dealNothing deals items of nothing out to the rows that have no sequence, where the
// request asks for them: c.Items counts them.
func (p *Planner) dealNothing(c *ClassPlan) {
	dealt := 0
	for _, n := range c.counts {
		dealt += n
	}
	if dealt == c.Items {
		return
	}
	for row := p.plan.RowCount; row < p.limits.Rows; row += p.tileRows {
		var w [ItemWords]uint32
		var rows [MaxRows]uint8
		n := min(p.tileRows, p.limits.Rows-row)
		for i := range n {
			rows[i] = uint8(row + i)
		}
		encodeRowList(&w, rows[:n])
		w[ItemOf], w[ItemEnd], w[ItemFlags] = 1, 1, ItemDirect
		for h := range p.limits.KVHeads {
			w[ItemHead] = uint32(h)
			copy(p.next(c, p.limits.Costs.Item+p.limits.Costs.Row*n), w[:])
			dealt++
		}
	}
	if dealt != c.Items {
		panic(fmt.Sprintf("BUG: %d items dealt out of %d", dealt, c.Items))
	}
}

func bitLen(w uint32) int { return bits.Len32(w) }
