package kv

import "fmt"

// Bounds on the workspace count partial states: a state is one query row's in one KV
// head, so Group outputs of a head dimension D and as many log-sum-exps, which FlashInfer
// stores in Group·(D + 1) numbers and a kernel of ours in Group·D/2 words of 16 bytes.

// SingleFormatPartials is FlashInfer's bound, 2·CTAs items that are parts of something
// that is cut, of as many rows as an item has at most: the chunk limit is no less than
// the mean load of a CTA, and what is cut is longer than the limit, so that n parts of
// it are more than n/2 limits. It holds for every class that is not pinned and shares
// no prefix.
func (l *Limits) SingleFormatPartials() int { return 2 * l.CTAs * min(l.tile(), l.Rows) }

// SharedPartials is the bound for a class that shares n prefixes among n
// rows: that of the single format, since prefixes are cut by the same limit, and what
// is not cut: a state of every prefix and of the rest, were every row below them all.
func (l *Limits) SharedPartials(rows, prefixes int) int {
	return l.SingleFormatPartials() + l.KVHeads*rows*(prefixes+1)
}

// PinnedPartials is the bound for a request with PinTokens, which the number of CTAs has
// no part in: a state for every part of a row's cached tokens, those of the launch's last
// step, and at least one. A class without window and selection has exactly as many.
func (l *Limits) PinnedPartials(r *Request) int {
	n := 0
	for i := range r.Sequences {
		s := &r.Sequences[i]
		cached := s.Cached
		if s.Grow {
			cached += max(1, r.Steps) - 1
		}
		n += s.New * max(1, ceilDiv(cached, r.PinTokens))
	}
	return n * l.KVHeads
}

// PinnedTokens returns for how many tokens of a sequence that is cut at multiples of pin there is room where it runs
// alone, a row a launch, in a class without window. Below 1 there is no room.
func (l *Limits) PinnedTokens(pin int) int {
	items := l.CTAs*l.ItemsPerCTA - ceilDiv(l.Rows-1, l.tile())*l.KVHeads // tiles of rows without a sequence, FillRows
	return min(l.Partials, items) / l.KVHeads * pin
}

// bound is the one of these that a class has.
func (p *Planner) bound(r *Request, c *Class) (n int, whose string) {
	switch l := &p.limits; {
	case r.PinTokens > 0:
		return l.PinnedPartials(r), "pinned parts'"
	case p.share && c.Window == 0 && p.plan.Prefixes > 0:
		return l.SharedPartials(p.plan.RowCount, p.plan.Prefixes), "shared prefixes'"
	default:
		return l.SingleFormatPartials(), "FlashInfer's"
	}
}

func (p *Planner) assertBound(r *Request, c *ClassPlan) {
	if n, whose := p.bound(r, &c.Class); c.Partials > n {
		panic(fmt.Sprintf("BUG: %d partial states, over %s bound of %d", c.Partials, whose, n))
	}
}
