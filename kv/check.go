package kv

import (
	"fmt"
	"slices"
)

// Check reads what EncodeWork and EncodeMerge write as the kernel does, for every step
// of the launch, and says what does not fit r, the plan's request, or nil: every query
// row must meet, in every KV head, every key that it may attend to exactly once (with
// a window, those of every chunk in which its tile sees a key), in states that are
// numbered in the order of the keys; every entry, row, page and state must exist. It
// shares no code with the planner but the meaning of an item. It is for tests: its
// time grows with the steps.
func (p *Plan) Check(r Request) error {
	if len(r.Classes) == 0 {
		r.Classes = make([]Class, 1)
	}
	l := &p.Limits
	k := checker{Plan: p, r: &r, work: make([]uint32, l.WorkWords(len(p.Classes))),
		merge: make([]uint32, l.MergeWords(len(p.Classes)))}
	if len(r.Classes) != len(p.Classes) || max(1, r.Steps) != p.Steps {
		return fmt.Errorf("plan of %d classes and %d steps for a request of %d and %d", len(p.Classes), p.Steps,
			len(r.Classes), r.Steps)
	}
	for i := range k.work {
		k.work[i] = ^uint32(0)
	}
	p.EncodeWork(k.work)
	p.EncodeMerge(k.merge)
	if err := k.checkRows(); err != nil {
		return err
	}
	for k.class = range p.Classes {
		for k.step = range p.Steps {
			if err := k.checkStep(); err != nil {
				return fmt.Errorf("class %d, step %d: %w", k.class, k.step, err)
			}
		}
	}
	return nil
}

type checker struct {
	*Plan
	r           *Request
	work, merge []uint32
	rows        []newToken // of every row in use
	class, step int
	cover       []cover // of every (row, KV head)
}

// newToken is the row's sequence and which of its new tokens it is.
type newToken struct {
	s        *Sequence
	i, first int
}

// cover is what a (row, KV head) attends to.
type cover struct {
	states []state
	tail   int // new tokens, and
	tails  int // the items that have some
}

// state is an item's share of a row: tokens of the sequence, or of what the head
// selects, in order.
type state struct {
	partial int // −1: direct
	tile    uint32
	spans   [2]span
}

type span struct{ from, to int }

// checkRows checks the row words against the sequences.
func (k *checker) checkRows() error {
	for i := range k.r.Sequences {
		s := &k.r.Sequences[i]
		first := len(k.rows)
		for j := range s.New {
			k.rows = append(k.rows, newToken{s: s, i: j, first: first})
		}
	}
	if len(k.rows) != k.RowCount {
		return fmt.Errorf("plan of %d rows, the sequences have %d", k.RowCount, len(k.rows))
	}
	page := k.Limits.PageSize
	for t := range k.Limits.Rows {
		w := k.Rows[t*RowWords:][:RowWords]
		if t >= len(k.rows) {
			if w[RowTail] != 0 {
				return fmt.Errorf("row %d has no sequence, but a tail of %#x", t, w[RowTail])
			}
			continue
		}
		n := k.rows[t]
		tail, depth := n.s.ancestors(n.i)
		if w[RowTail] != tail || int(w[RowPosition]) != n.s.Cached+depth || int(w[RowFirst]) != n.first {
			return fmt.Errorf("row %d: tail %#x, position %d, first row %d, want %#x, %d, %d", t, w[RowTail], w[RowPosition],
				w[RowFirst], tail, n.s.Cached+depth, n.first)
		}
		for step := range k.Steps {
			index, at := int(w[RowIndex])+step, n.s.Cached+n.i+step
			entry := int(w[RowEntries]) + index/page
			if entry >= len(k.Entries) || k.Entries[entry] != n.s.Pages[at/page] || index%page != at%page {
				return fmt.Errorf("row %d, step %d: written to entry %d, slot %d, want page %d, slot %d", t, step, entry,
					index%page, n.s.Pages[at/page], at%page)
			}
		}
	}
	return nil
}

// ancestors is which new tokens new token i attends to, and its depth.
func (s *Sequence) ancestors(i int) (tail uint32, depth int) {
	for j := i; j >= 0; depth++ {
		tail |= 1 << j
		if s.Parents != nil {
			j = s.Parents[j]
		} else {
			j--
		}
	}
	return tail, depth - 1
}

func (k *checker) checkStep() error {
	l := &k.Limits
	k.cover = make([]cover, l.Rows*l.KVHeads)
	for cta := range l.CTAs {
		record := k.work[(k.class*l.CTAs+cta)*l.recordWords():][:l.recordWords()]
		if int(record[0]) > l.ItemsPerCTA {
			return fmt.Errorf("CTA %d has %d items, want at most %d", cta, record[0], l.ItemsPerCTA)
		}
		for i := range int(record[0]) {
			if err := k.checkItem(record[(i+1)*ItemWords:][:ItemWords]); err != nil {
				return fmt.Errorf("CTA %d, item %d: %w", cta, i, err)
			}
		}
	}
	merge := k.merge[k.class*l.mergeWords():][:l.mergeWords()]
	if merge[0] != 0 || int(merge[len(merge)-1]) > l.Partials || !slices.IsSorted(merge) {
		return fmt.Errorf("merge table from %d to %d, want from 0 to at most %d, not decreasing", merge[0],
			merge[len(merge)-1], l.Partials)
	}
	for at := range k.cover {
		if err := k.checkCover(at/l.KVHeads, at%l.KVHeads, int(merge[at]), int(merge[at+1])); err != nil {
			return fmt.Errorf("row %d, KV head %d: %w", at/l.KVHeads, at%l.KVHeads, err)
		}
	}
	return nil
}

// checkStates checks where an item says that the states of its i-th row are.
func (k *checker) checkStates(w []uint32, it *Item, i int) error {
	if i >= SettleRows {
		return nil
	}
	want := uint32(0)
	if at := it.Rows[i]*k.Limits.KVHeads + it.Head; !it.Direct {
		want = (k.Classes[k.class].Merge[at+1]-k.Classes[k.class].Merge[at])<<StateBits | k.Classes[k.class].Merge[at]
	}
	if got := w[ItemStates+i]; got != want {
		return fmt.Errorf("row %d: states %#x, want %#x", it.Rows[i], got, want)
	}
	return nil
}

// checkItem checks an item by itself and adds it to what its rows attend to.
func (k *checker) checkItem(w []uint32) error {
	it, l := DecodeItem(w), &k.Limits
	if n := int(w[ItemRows]); it.Head >= l.KVHeads || n < 1 || n > l.tile() || w[ItemFlags] > 1 || it.Grow > 1 {
		return fmt.Errorf("KV head %d, %d rows, flags %d, grows by %d", it.Head, n, w[ItemFlags], it.Grow)
	}
	mask := uint32(0)
	for _, t := range it.Rows {
		if t >= l.Rows || mask>>t&1 != 0 {
			return fmt.Errorf("rows %v, want different ones below %d", it.Rows, l.Rows)
		}
		mask |= 1 << t
		if k.Rows[t*RowWords+RowPosition] < k.Rows[it.Rows[0]*RowWords+RowPosition] {
			return fmt.Errorf("rows %v, of which %d comes before the first", it.Rows, t)
		}
	}
	st := state{partial: -1, tile: mask, spans: k.spans(&it)}
	var checked *Sequence
	for i, t := range it.Rows {
		c := &k.cover[t*l.KVHeads+it.Head]
		if !it.Direct {
			st.partial = it.Partials[i]
		}
		if err := k.checkStates(w, &it, i); err != nil {
			return err
		}
		if t < len(k.rows) {
			if n := &k.rows[t]; n.s != checked {
				if err := k.checkEntries(&it, st.spans, n); err != nil {
					return err
				}
				checked = n.s
			}
		} else if it.Tail > 0 || st.spans != ([2]span{}) {
			return fmt.Errorf("row %d has no sequence, but keys", t)
		}
		add := st
		for j := range add.spans {
			add.spans[j].from += it.Position
			add.spans[j].to += it.Position
		}
		c.states = append(c.states, add)
		if it.Tail > 0 {
			c.tail = it.Tail
			c.tails++
		}
	}
	return nil
}

// spans is which tokens of the unit an item reads: up to two runs.
func (k *checker) spans(it *Item) [2]span {
	cached, chunk := it.Cached+it.Grow*k.step, k.Limits.ChunkTokens
	query := int(k.Rows[it.Rows[0]*RowWords+RowPosition]) + it.Grow*k.step
	v := k.Classes[k.class].Visible(chunk, cached, it.Position, query)
	from, to := it.Chunks(v.C)
	runs := [2]span{{from, min(to, v.Sinks)}, {max(from, v.Sinks) + v.Skip, to + v.Skip}}
	for i, r := range runs {
		runs[i] = span{}
		if r.from < r.to {
			runs[i] = span{min(r.from*chunk, cached), min(r.to*chunk, cached)}
		}
	}
	return runs
}

// checkEntries checks that the page entries of an item's tokens are those of row n's
// sequence.
func (k *checker) checkEntries(it *Item, runs [2]span, n *newToken) error {
	page := k.Limits.PageSize
	if it.Position%page != 0 {
		return fmt.Errorf("position %d of a unit, want a multiple of the page size", it.Position)
	}
	for _, r := range runs {
		for e := r.from / page; e*page < r.to; e++ {
			if err := k.checkEntry(it, e, n.s); err != nil {
				return err
			}
		}
	}
	if it.Tail == 0 {
		return nil
	}
	if it.Tail > n.s.New || it.TailRow != n.first {
		return fmt.Errorf("%d new tokens from row %d, want up to %d from row %d", it.Tail, it.TailRow, n.s.New, n.first)
	}
	for i := range it.Tail {
		index, at := it.Cached+it.Grow*k.step+i, n.s.Cached+k.step+i
		if index%page != at%page {
			return fmt.Errorf("new token %d in slot %d, want %d", i, index%page, at%page)
		}
		if err := k.checkEntry(it, index/page, n.s); err != nil {
			return err
		}
	}
	return nil
}

// checkEntry checks entry e of an item's unit: its page, and its position.
func (k *checker) checkEntry(it *Item, e int, s *Sequence) error {
	page, at := k.Limits.PageSize, it.Entries+e
	want := it.Position/page + e // index of the page in the sequence
	if selected := k.selected(s, it.Head); selected != nil {
		if want = s.Cached/page + e - len(selected); e < len(selected) {
			want = selected[e]
		}
		if it.Position != 0 {
			return fmt.Errorf("position %d of selected pages", it.Position)
		}
	}
	if at >= len(k.Entries) || want < 0 || want >= len(s.Pages) || k.Entries[at] != s.Pages[want] {
		return fmt.Errorf("entry %d of %d is not page %d of the sequence", at, len(k.Entries), want)
	}
	if k.Limits.Selection && int(k.Positions[at]) != want*page {
		return fmt.Errorf("entry %d has position %d, want %d", at, k.Positions[at], want*page)
	}
	return nil
}

// selected is what a KV head selects of s in this class, or nil.
func (k *checker) selected(s *Sequence, head int) []int {
	if !k.r.Classes[k.class].Select || s.Select == nil {
		return nil
	}
	if s.Select[head] == nil {
		return []int{}
	}
	return s.Select[head]
}

// checkCover checks what one row and KV head attends to against what it must, and its
// states against its range of the merge table.
func (k *checker) checkCover(t, head, from, to int) error {
	c := &k.cover[t*k.Limits.KVHeads+head]
	if t >= len(k.rows) {
		want := 0
		if k.r.FillRows {
			want = 1
		}
		if len(c.states) != want || want == 1 && c.states[0].partial != -1 || from != to {
			return fmt.Errorf("no sequence, %d items and %d states, want %d and 0", len(c.states), to-from, want)
		}
		return nil
	}
	direct := from == to
	if direct && (len(c.states) != 1 || c.states[0].partial != -1) {
		return fmt.Errorf("%d items for a result without states, want one that is direct", len(c.states))
	}
	slices.SortFunc(c.states, func(a, b state) int { return a.partial - b.partial })
	var got []span
	for i, s := range c.states {
		if !direct && s.partial != from+i || s.tile != c.states[0].tile && k.Classes[k.class].Window > 0 {
			return fmt.Errorf("item %d has state %d of rows %#x, want %d of %#x", i, s.partial, s.tile, from+i, c.states[0].tile)
		}
		for _, r := range s.spans {
			got = join(got, r)
		}
	}
	if !direct && len(c.states) != to-from {
		return fmt.Errorf("%d items for %d states", len(c.states), to-from)
	}
	if want := k.wanted(&k.rows[t], head, c.states[0].tile); !slices.Equal(got, want) {
		return fmt.Errorf("attends to tokens %v, want %v", got, want)
	}
	if tail, _ := k.rows[t].s.ancestors(k.rows[t].i); c.tails != 1 || tail>>c.tail != 0 {
		return fmt.Errorf("%d items with new tokens, of %d, want 1 that has all of %#x", c.tails, c.tail, tail)
	}
	return nil
}

// join appends a run of tokens, to the last one if it goes on where that ends.
func join(runs []span, r span) []span {
	if r.from >= r.to {
		return runs
	}
	if last := len(runs) - 1; last >= 0 && runs[last].to == r.from {
		runs[last].to = r.to
		return runs
	}
	return append(runs, r)
}

// wanted is which tokens, without the new ones, a row of a tile must attend to.
func (k *checker) wanted(n *newToken, head int, tile uint32) (runs []span) {
	c := &k.r.Classes[k.class]
	tokens := n.s.Cached + k.step
	if selected := k.selected(n.s, head); selected != nil {
		tokens = len(selected)*k.Limits.PageSize + n.s.Cached%k.Limits.PageSize + k.step
	}
	query := maxTokens
	for t := range k.rows {
		if tile>>t&1 != 0 {
			query = min(query, int(k.Rows[t*RowWords+RowPosition])+k.step)
		}
	}
	for at, chunk := 0, k.Limits.ChunkTokens; at < tokens; at += chunk {
		if last := at + chunk - 1; c.Window == 0 || at < c.Sinks || last > query-c.Window {
			runs = join(runs, span{at, min(at+chunk, tokens)})
		}
	}
	return runs
}
