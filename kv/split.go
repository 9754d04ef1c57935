package kv

import (
	"fmt"
	"math"
	"slices"
)

// tile is up to MaxTile query rows of a unit, and how its KV is cut for them.
type tile struct {
	unit   int
	rows   [MaxRows]uint8 // the one of least position first
	n      int
	tail   int // new tokens that they attend to
	first  int // row of the first of those
	chunks int // that the unit has in the launch's last step
	parts  int
}

// piece is a part of a tile: an item of every one of its unit's heads.
type piece struct {
	cost           int
	tile, part     int
	first, end, of int // words of the item
	tail           bool
}

// makeTiles sets p.tiles to the work of class c, in tiles of up to most rows and in the order of its units: a prefix
// before what follows it.
func (p *Planner) makeTiles(r *Request, c *Class, most int) error {
	p.tiles = p.tiles[:0]
	for i := range r.Sequences {
		s, place := &r.Sequences[i], &p.places[i]
		if s.New == 0 {
			continue
		}
		switch p.form(r, c, s) {
		case formFull:
			p.tileUnit(r, c, place.full, most)
		case formSelected:
			for h := range p.limits.KVHeads {
				p.tileUnit(r, c, place.selected+h, most)
			}
		}
	}
	if p.share && r.PinTokens == 0 && c.Window == 0 {
		for u := p.firstTree; u < len(p.units); u++ {
			p.tileUnit(r, c, u, most)
		}
	}
	for t := range p.tiles {
		if n := p.tiles[t].chunks; n > MaxChunks && r.PinTokens == 0 {
			return fmt.Errorf("%d chunks of %d tokens in sequence %d, want at most %d; larger stages would do, or PinTokens",
				n, p.limits.ChunkTokens, p.units[p.tiles[t].unit].seq, MaxChunks)
		}
	}
	return nil
}

func (p *Planner) tileUnit(r *Request, c *Class, index, most int) {
	u := &p.units[index]
	t := tile{unit: index}
	for row := range p.limits.Rows {
		if u.rows>>row&1 == 0 {
			continue
		}
		t.rows[t.n] = uint8(row)
		t.n++
		if t.n == most {
			p.addTile(r, c, t)
			t.n = 0
		}
	}
	if t.n > 0 {
		p.addTile(r, c, t)
	}
}

// addTile completes a tile that has its unit and rows.
func (p *Planner) addTile(r *Request, c *Class, t tile) {
	u := &p.units[t.unit]
	rows := t.rows[:t.n]
	least := 0
	for i, row := range rows {
		if p.rowWord(row, RowPosition) < p.rowWord(rows[least], RowPosition) {
			least = i
		}
		if u.seq >= 0 {
			t.tail = max(t.tail, bitLen(p.rowWord(row, RowTail)))
		}
	}
	rows[0], rows[least] = rows[least], rows[0]
	t.first = int(p.rowWord(rows[0], RowFirst))
	grown := u.grow * (r.Steps + r.Ahead - 1)
	v := c.Visible(p.limits.ChunkTokens, u.cached+grown, u.position, int(p.rowWord(rows[0], RowPosition))+grown)
	t.chunks = v.C
	if r.PinTokens > 0 && v.Skip > 0 && grown > 0 {
		t.chunks++ // an earlier step may see one chunk more, never two
	}
	p.tiles = append(p.tiles, t)
}

func (p *Planner) rowWord(row uint8, word int) uint32 {
	return p.plan.Rows[int(row)*RowWords+word]
}

// cut chooses the chunk limit L_kv, cuts the tiles into pieces and numbers the partial
// states. When the kernel's limits do not hold as many, it cuts at twice the length.
func (p *Planner) cut(r *Request, class int, c *ClassPlan) error {
	if r.PinTokens > 0 {
		limit := min(r.PinTokens/p.limits.ChunkTokens, 2*maxTokens) // chunks that no unit has, and a word holds
		p.count(r, c, limit)
		if err := p.checkLimits(r, class, c); err != nil {
			return err
		}
		p.makePieces(r, limit)
		return nil
	}
	work := 0
	for i := range p.tiles {
		work += p.tiles[i].chunks * p.units[p.tiles[i].unit].heads
	}
	limit := max(1, ceilDiv(work, p.limits.CTAs))
	for {
		most := p.count(r, c, limit)
		err := p.checkLimits(r, class, c)
		if err == nil {
			p.makePieces(r, limit)
			p.refine(r, class, c, limit, most)
			return nil
		}
		if most <= 1 {
			return err
		}
		limit *= 2
	}
}

// longer are the chunk limits that refine tries, in sixteenths of the mean length
// more than that, beside one chunk more.
var longer = [...]int{0, 1, 2, 3, 4, 6, 8, 12, 16}

// refine cuts longer pieces than limit where the busiest CTA then has less to do: at
// the mean length whole pieces fill every CTA and what remains comes on top, and every
// item costs something beside its tokens.
func (p *Planner) refine(r *Request, class int, c *ClassPlan, limit, most int) {
	if most <= 1 {
		return
	}
	best, at, last := p.spread(math.MaxInt), limit, limit
	for _, part := range longer {
		try := max(last+1, limit+limit*part/16)
		if best <= p.limits.Costs.Item+p.limits.Costs.Token*p.limits.ChunkTokens*limit {
			break
		}
		last = try
		most := p.count(r, c, try)
		if p.checkLimits(r, class, c) == nil {
			p.makePieces(r, try)
			if load := p.spread(best); load < best {
				best, at = load, try
			}
		}
		if most <= 1 {
			break
		}
	}
	p.count(r, c, at)
	p.makePieces(r, at)
}

// count cuts all tiles into parts of n chunks, fills c.Merge and counts items and
// partial states. It returns the parts of the tile that has most.
func (p *Planner) count(r *Request, c *ClassPlan, limit int) (most int) {
	clear(p.states)
	c.Items = 0
	for i := range p.tiles {
		t := &p.tiles[i]
		u := &p.units[t.unit]
		t.parts = max(1, ceilDiv(t.chunks, limit))
		most = max(most, t.parts)
		u.parts, u.before = t.parts, 0
		if u.parent >= 0 {
			u.before = p.units[u.parent].before + p.units[u.parent].parts
		}
		c.Items += t.parts * u.heads
		for _, row := range t.rows[:t.n] {
			at := p.states[int(row)*p.limits.KVHeads+u.head:][:u.heads]
			for h := range at {
				at[h] += int32(t.parts)
			}
		}
	}
	if r.FillRows {
		c.Items += ceilDiv(p.limits.Rows-p.plan.RowCount, p.tileRows) * p.limits.KVHeads
	}
	c.Merge = resize(c.Merge, p.limits.mergeWords())
	sum := uint32(0)
	for i, n := range p.states {
		c.Merge[i] = sum
		if n > 1 || r.PinTokens > 0 {
			sum += uint32(n)
		}
	}
	c.Merge[len(p.states)] = sum
	c.Partials = int(sum)
	return most
}

func (p *Planner) checkLimits(r *Request, class int, c *ClassPlan) error {
	hint := "fewer rows"
	if r.PinTokens > 0 {
		hint = "a greater PinTokens"
	}
	if c.Partials > p.limits.Partials {
		return LimitError(fmt.Sprintf(
			"kv: class %d: %d partial states, the kernel has room for %d; Limits.Partials of %d would do, or %s",
			class, c.Partials, p.limits.Partials, c.Partials, hint))
	}
	if places := p.limits.CTAs * p.limits.ItemsPerCTA; c.Items > places {
		return LimitError(fmt.Sprintf(
			"kv: class %d: %d work items, the kernel has room for %d on %d CTAs; Limits.ItemsPerCTA of %d would do, or %s",
			class, c.Items, places, p.limits.CTAs, ceilDiv(c.Items, p.limits.CTAs), hint))
	}
	return nil
}

// A word of Planner.order is a piece's cost, upside down, and its index.
const (
	costBits  = 40
	pieceBits = 24
)

// longest is the i-th piece of those that cost most; equal ones in the order of tiles
// and parts.
func (p *Planner) longest(i int) *piece { return &p.pieces[p.order[i]&(1<<pieceBits-1)] }

// makePieces lists the parts of all tiles.
func (p *Planner) makePieces(r *Request, limit int) {
	p.pieces, p.order = p.pieces[:0], p.order[:0]
	costs := &p.limits.Costs
	for i := range p.tiles {
		t := &p.tiles[i]
		for part := range t.parts {
			from, to := part*limit, min((part+1)*limit, t.chunks)
			k := piece{tile: i, part: part, first: from, end: to, of: max(1, t.chunks), tail: part == t.parts-1}
			if r.PinTokens > 0 {
				k.end, k.of, k.tail = from+limit, 0, part == 0
			} else if k.tail {
				k.end = k.of
			}
			tokens := min((to-from)*p.limits.ChunkTokens, maxTokens)
			if k.tail {
				tokens += t.tail
			}
			k.cost = costs.Item + costs.Row*t.n + costs.Token*tokens
			if t.parts > 1 {
				k.cost += costs.Part
			}
			p.order = append(p.order, uint64(1<<costBits-1-min(k.cost, 1<<costBits-1))<<pieceBits|uint64(len(p.pieces)))
			p.pieces = append(p.pieces, k)
		}
	}
	slices.Sort(p.order)
}
