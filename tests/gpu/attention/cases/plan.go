package cases

import "github.com/mkgen/mkgen/kv"

// Request is what a planner is asked for: one step of the case. Without single,
// prefixes that sequences share may be read once for all.
func (c *Case) Request(single bool) kv.Request {
	r := kv.Request{Single: single}
	for _, v := range c.Variants {
		r.Classes = append(r.Classes, kv.Class{Window: v.Params.Window, Sinks: v.Params.Sinks, Select: c.selected != nil})
	}
	if c.selected != nil {
		r.Sequences = []kv.Sequence{*c.selected}
		return r
	}
	t := 0
	for i, s := range c.Sequences {
		q := kv.Sequence{Pages: c.PagesOf(i), Cached: s.Cached, New: s.New}
		for j := range s.New {
			if c.Rows != nil {
				q.Masks = append(q.Masks, uint32(c.Rows[t+j].Mask))
				q.Parents = append(q.Parents, parent(c.Rows[t+j].Tail, j))
			}
		}
		t += s.New
		r.Sequences = append(r.Sequences, q)
	}
	return r
}

// parent is the last new token that token i attends to beside itself; −1: none.
func parent(tail uint32, i int) int {
	for p := i - 1; p >= 0; p-- {
		if tail>>p&1 == 1 {
			return p
		}
	}
	return -1
}

// Limits are a kernel's for the case, but for what the kernel decides: CTAs,
// ChunkTokens, ItemsPerCTA and Partials.
func (c *Case) Limits() kv.Limits {
	return kv.Limits{KVHeads: c.KVHeads, Group: c.Heads / c.KVHeads, Rows: max(1, c.T()), PageSize: c.Page, Pages: c.Pages, Selection: c.selected != nil}
}
