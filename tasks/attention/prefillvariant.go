package attention

import "github.com/mkgen/mkgen/dsl"

// What a variant's hooks see in attention of many rows. Query hooks are QKV's, see QKV.Queries; Window and Sinks are
// PrefillAttention's own, so that Mask, Key, Value and Output are not asked.

// hooks is whether the variant changes scores.
func (t *PrefillAttention) hooks() bool { return t.Variant != nil && t.Variant.Logits != nil }

// sums is whether the variant has no softmax.
func (t *PrefillAttention) sums() bool { return t.Variant != nil && t.Variant.Sum }

// prepare makes what the variant's hooks know of this lane's rows.
func (w *prefillTile) prepare() {
	if !w.t.hooks() {
		return
	}
	for half := range w.query {
		q := &Query{Env: w.e, Step: w.p.s, Heads: w.t.Heads, Head: w.heads[half], Row: w.rows[half], Position: w.sees[half]}
		q.prepare(w.t.Variant)
		w.query[half] = q
	}
}

// change applies the variant to the scores of the block at positions from …: this lane has two columns of 8 each of two
// rows. How far a key is ahead of a query differs between columns by a constant. What it returns is still to be added
// to all scores of a row that this lane has; nil is nothing. Scores that are bounded stay as they are, see
// weighBounded.
func (w *prefillTile) change(from u32) (more [2]*f32) {
	if !w.t.hooks() || w.t.bounded() {
		return more
	}
	k, v := w.e.K, w.t.Variant
	c := w.columns(from)
	if v.Slope != nil {
		var slopes [2]f32
		for half := range slopes {
			slopes[half] = v.Slope(w.query[half])
			first := c.ahead[half].Mul(slopes[half]).Named("more")
			more[half] = &first
		}
		for i, s := range w.scores {
			s.Set(dsl.FMA(slopes[i/2%2], k.F32(float64(behind(i))), s.Get()))
		}
		return more
	}
	for i, s := range w.scores {
		s.Set(c.logit(i, s.Get()))
	}
	return more
}

// tileColumns are the keys of the scores that a lane has of a block.
type tileColumns struct {
	w     *prefillTile
	first u32    // of this lane's
	ahead [2]f32 // how far that is ahead of each row
}

// columns are those of the block at positions from ….
func (w *prefillTile) columns(from u32) *tileColumns {
	c := &tileColumns{w: w, first: from.Add(w.e.Lane.RemC(4).MulC(2)).Named("first_key")}
	for half := range c.ahead {
		far := dsl.Bits[dsl.I32](c.first).Sub(dsl.Bits[dsl.I32](w.sees[half]))
		c.ahead[half] = dsl.Optional(dsl.Cast[dsl.F32](far)).Named("ahead")
	}
	return c
}

// behind is how many columns score i of a lane is behind its first.
func behind(i int) int { return i/4*8 + i%2 }

// logit is what the variant makes of score i.
func (c *tileColumns) logit(i int, score f32) f32 {
	w, half := c.w, i/2%2
	position := dsl.Optional(c.first.AddC(behind(i)))
	key := &Key{Env: w.e, Step: w.p.s, Head: w.piece.head, Index: position, Position: position,
		ahead: func() f32 { return c.ahead[half].Add(w.e.K.F32(float64(behind(i)))) }}
	return w.t.Variant.Logits(w.query[half], key, score)
}

// QueryHook is a linear Query hook of a variant: it may be asked before queries are scaled.
type QueryHook func(q *Query, dim u32, lo, hi f32) (f32, f32)

// stores is st with changed queries.
func (h QueryHook) stores(st stores, p place) stores {
	if h == nil {
		return st
	}
	return changedStores{st, p, h}
}

type changedStores struct {
	stores
	place
	hook QueryHook
}

func (s changedStores) query(row, i u32, r turned) {
	q := &Query{Env: s.e, Step: s.s, Heads: s.t.Heads, Head: row.RemC(s.t.Heads),
		Row: dsl.Optional(row.DivC(s.t.Heads)), Position: s.pos}
	r.lo, r.hi = s.hook(q, i, r.lo, r.hi)
	s.stores.query(row, i, r)
}
