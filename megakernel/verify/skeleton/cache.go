package skeleton

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl/interp"
)

// cache counts what a launch copies of the KV cache and what it stores there.
type cache struct {
	d     *device
	first int       // position of the first step
	times uint8     // how often a token of a KV head comes to the SMs in a step
	all   bool      // every token must; with a window only those in it
	read  [][]uint8 // [step][(layer·heads + head)·positions + token]
	fresh [][]bool  // [step][(layer·heads + head)·bytes of a token]: what has been stored
}

func newCache(d *device, first, steps int) *cache {
	mk := d.mk
	kv, group := mk.KV, mk.Config.Heads/mk.Config.KVHeads
	c := &cache{d: d, first: first, times: uint8((group + rowsOfItem - 1) / rowsOfItem), all: mk.Options.Attention == ""}
	for s := range steps {
		c.read = append(c.read, make([]uint8, kv.Layers*kv.Heads*(first+s)))
		c.fresh = append(c.fresh, make([]bool, kv.Layers*kv.Heads*kv.TokenBytes()))
	}
	return c
}

// rowsOfItem is how many query heads share a copy of the cache.
const rowsOfItem = 16

// place is a token of a KV head in the cache.
type place struct{ layer, head, token, within int }

// at is what lies at a byte of the cache, by the page table.
func (c *cache) at(offset int64) (p place, err error) {
	kv := c.d.mk.KV
	row := int(offset / int64(kv.TokenBytes()))
	p.within = int(offset % int64(kv.TokenBytes()))
	slot, row := row%kv.Page, row/kv.Page
	p.head, row = row%kv.Heads, row/kv.Heads
	page := row % c.d.pages
	p.layer = row / c.d.pages
	i, ok := c.d.page[uint32(page)]
	if !ok {
		return p, fmt.Errorf("page %d of layer %d, which the page table of this sequence does not name", page, p.layer)
	}
	p.token = i*kv.Page + slot
	return p, nil
}

// cached checks a copy of cached tokens: they must be those of the page table, before the
// step's position, not copied before in this step, in the layer that the SM is at, and lie
// in their chunk where their position says.
func (w *watch) cached(a interp.Access, dst string, to int64) error {
	c, s := w.cache, &w.streams[a.CTA]
	p, err := c.at(a.Offset)
	if err != nil {
		return fmt.Errorf("SM %d copies from %w", a.CTA, err)
	}
	step := w.stepOf(s, w.shares[a.CTA], p)
	if step < 0 {
		return fmt.Errorf("SM %d copies token %d of layer %d, KV head %d, with %s", a.CTA, p.token, p.layer, p.head,
			s.where(w.shares[a.CTA]))
	}
	what := fmt.Sprintf("SM %d copies token %d of layer %d, KV head %d, in step %d", a.CTA, p.token, p.layer, p.head, step)
	bytes := c.d.mk.KV.TokenBytes()
	if p.within != 0 || a.Bytes%int64(bytes) != 0 || p.token%c.d.mk.KV.Page+int(a.Bytes)/bytes > c.d.mk.KV.Page {
		return fmt.Errorf("%s: %d bytes from byte %d of the token on, want whole tokens of one page", what, a.Bytes, p.within)
	}
	within := int64(p.token%c.d.mk.ChunkTokens()) * int64(bytes)
	if err := w.rings[a.CTA].fill(c.d.mk.Plan, dst, to, a.Bytes, within); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return c.count(p, step, int(a.Bytes)/bytes, what)
}

// stepOf is the step whose attention a copy of p that an SM makes now belongs to, by how far
// it is with its weights: the first that lacks the token, -1 if it is at another layer.
func (w *watch) stepOf(s *stream, shares []share, p place) int {
	last := -1
	for step := range w.steps {
		if s.between(shares, step*len(shares)+p.layer*len(w.d.mk.Plan.Layer)) {
			if last = step; !w.cache.whole(p, step) {
				return step
			}
		}
	}
	return last
}

// whole reports whether p has come as often as it must in a step.
func (c *cache) whole(p place, step int) bool {
	pos := c.first + step
	return p.token < pos && c.read[step][(p.layer*c.d.mk.KV.Heads+p.head)*pos+p.token] >= c.times
}

// count notes n tokens from p on as copied in a step.
func (c *cache) count(p place, step, n int, what string) error {
	pos := c.first + step
	if p.token+n > pos {
		return fmt.Errorf("%s, and %d in all, of %d that are cached", what, n, pos)
	}
	seen := c.read[step][(p.layer*c.d.mk.KV.Heads+p.head)*pos:]
	for i := range n {
		if seen[p.token+i]++; seen[p.token+i] > c.times {
			return fmt.Errorf("%s, and %d in all: token %d comes for the %s, want %d", what, n, p.token+i,
				nth(int(seen[p.token+i])), c.times)
		}
	}
	return nil
}

// unread says which token was not copied as often as it must be, "" if all were.
func (c *cache) unread() string {
	if !c.all {
		return ""
	}
	for step, seen := range c.read {
		pos := c.first + step
		for i, n := range seen {
			if n == c.times {
				continue
			}
			missing := 0
			for _, m := range seen {
				if m != c.times {
					missing++
				}
			}
			layer, head := i/pos/c.d.mk.KV.Heads, i/pos%c.d.mk.KV.Heads
			return fmt.Sprintf("token %d of layer %d, KV head %d was copied %d times in step %d at position %d, want %d; %d tokens of all layers and heads are missing", i%pos, layer, head, n, step, pos, c.times, missing)
		}
	}
	return ""
}

// stored checks a store to the cache: it must be to the token of a step of this launch, and
// to bytes that nobody has stored in the step.
func (c *cache) stored(a interp.Access) error {
	p, err := c.at(a.Offset)
	if err != nil {
		return fmt.Errorf("SM %d stores to %w", a.CTA, err)
	}
	step := p.token - c.first
	if step < 0 || step >= len(c.fresh) {
		return fmt.Errorf("SM %d stores to token %d of layer %d, KV head %d: the launch's new tokens are %d to %d", a.CTA,
			p.token, p.layer, p.head, c.first, c.first+len(c.fresh)-1)
	}
	bytes := c.d.mk.KV.TokenBytes()
	if p.within+int(a.Bytes) > bytes {
		return fmt.Errorf("SM %d stores %d bytes from byte %d of a token on, which has %d", a.CTA, a.Bytes, p.within, bytes)
	}
	at := c.fresh[step][(p.layer*c.d.mk.KV.Heads+p.head)*bytes+p.within:]
	for i := range a.Bytes {
		if at[i] {
			return fmt.Errorf("SM %d stores byte %d of token %d of layer %d, KV head %d a second time", a.CTA, p.within+int(i),
				p.token, p.layer, p.head)
		}
		at[i] = true
	}
	return nil
}

// unwritten says what part of a new token was not stored, "" if all were.
func (c *cache) unwritten() string {
	bytes := c.d.mk.KV.TokenBytes()
	for step, done := range c.fresh {
		for i, ok := range done {
			if !ok {
				row := i / bytes
				return fmt.Sprintf("byte %d of token %d of layer %d, KV head %d was not stored in step %d", i%bytes, c.first+step,
					row/c.d.mk.KV.Heads, row%c.d.mk.KV.Heads, step)
			}
		}
	}
	return ""
}

// nth is "1st time", "2nd time".
func nth(n int) string {
	suffix := "th"
	if tens := n / 10 % 10; tens != 1 && n%10 > 0 && n%10 < 4 {
		suffix = []string{"st", "nd", "rd"}[n%10-1]
	}
	return fmt.Sprintf("%d%s time", n, suffix)
}
