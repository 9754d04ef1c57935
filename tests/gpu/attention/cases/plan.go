package cases

import (
	"errors"

	"github.com/mkgen/mkgen/kv"
)

// Request is what a planner is asked for: one step of the case. Without single,
// prefixes that sequences share may be read once for all.
func (c *Case) Request(single bool) kv.Request {
	var r kv.Request
	if c.selected != nil {
		r.Sequences = []kv.Sequence{*c.selected}
	} else {
		r = c.ofRows()
	}
	r.Single = single
	for _, v := range c.Variants {
		r.Classes = append(r.Classes, kv.Class{Window: v.Params.Window, Sinks: v.Params.Sinks, Select: c.selected != nil})
	}
	return r
}

// ofRows is the step that the case's block-sparse rows are.
func (c *Case) ofRows() kv.Request {
	rows := c.BlockRows()
	var fresh []int
	for _, s := range c.Sequences {
		fresh = append(fresh, s.New)
	}
	r, err := rows.Request(fresh)
	if err := errors.Join(err, rows.Check(c.Pages)); err != nil {
		panic("BUG: " + err.Error())
	}
	if c.Rows == nil {
		return r
	}
	t := 0
	for i := range r.Sequences {
		q := &r.Sequences[i]
		for j := range q.New {
			q.Masks = append(q.Masks, uint32(c.Rows[t+j].Mask))
			q.Parents = append(q.Parents, parent(c.Rows[t+j].Tail, j))
		}
		t += q.New
	}
	return r
}

// BlockRows are the case's block-sparse rows in the planner's form.
func (c *Case) BlockRows() *kv.Rows {
	return &kv.Rows{PageSize: c.Page, Indptr: c.Indptr, Indices: c.Indices, LastPageLen: c.LastPageLen}
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
	return kv.Limits{KVHeads: c.KVHeads, Group: c.Heads / c.KVHeads, Rows: max(1, c.T()), PageSize: c.Page, Pages: c.Pages,
		Selection: c.selected != nil}
}
