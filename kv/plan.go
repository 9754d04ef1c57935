package kv

import "fmt"

// Plan is the work of a launch, dealt out to the CTAs. It belongs to its Planner and
// is valid until the planner plans again; the Encode functions copy.
type Plan struct {
	Limits   Limits
	Steps    int
	RowCount int // query rows in use; the others have RowTail 0
	Prefixes int // shared prefixes that are units of their own

	Rows      []uint32 // buffer "rows": Limits.Rows × RowWords
	Entries   []uint32 // buffer "kv_indices": page numbers, a unit's consecutive
	Positions []uint32 // buffer "kv_positions": of each entry's first token; empty without selection
	Classes   []ClassPlan
}

// ClassPlan is the work of one class of layers.
type ClassPlan struct {
	Class
	Items    int      // work items of all CTAs
	Partials int      // partial states in use
	Phase    bool     // they are merged in a phase of their own: see HeaderPhase
	Merge    []uint32 // of (row t, KV head h) the states Merge[t·KVHeads+h] to Merge[t·KVHeads+h+1]−1
	Load     []int    // of every CTA the cost of its items, in units of Costs, in the last step
	counts   []int    // of every CTA its items
	words    []uint32 // [CTA][ItemsPerCTA+1][ItemWords], what is behind a CTA's items is not set
	limits   *Limits
}

// Count is the number of items of a CTA.
func (c *ClassPlan) Count(cta int) int { return c.counts[cta] }

// Words is item i of a CTA, ItemWords words that must not be changed.
func (c *ClassPlan) Words(cta, i int) []uint32 {
	if i < 0 || i >= c.counts[cta] {
		panic(fmt.Sprintf("BUG: item %d of CTA %d, which has %d", i, cta, c.counts[cta]))
	}
	return c.words[cta*c.limits.recordWords()+(i+1)*ItemWords:][:ItemWords]
}

// EncodeWork writes the buffer "attn_plan": [class][CTA] records of a header, ItemWords
// words of which the first is the number of items, and ItemsPerCTA items. What is
// behind a CTA's items stays as it is. dst has Limits.WorkWords(classes) words.
func (p *Plan) EncodeWork(dst []uint32) {
	record := p.Limits.recordWords()
	if want := p.Limits.WorkWords(len(p.Classes)); len(dst) != want {
		panic(fmt.Sprintf("BUG: attn_plan of %d words, want %d", len(dst), want))
	}
	for i := range p.Classes {
		c := &p.Classes[i]
		for cta, n := range c.counts {
			from := cta * record
			copy(dst[:record], c.words[from:from+(n+1)*ItemWords])
			dst = dst[record:]
		}
	}
}

// EncodeMerge writes the buffer "attn_merge", every class's Merge in turn. dst has
// Limits.MergeWords(classes) words.
func (p *Plan) EncodeMerge(dst []uint32) {
	if want := p.Limits.MergeWords(len(p.Classes)); len(dst) != want {
		panic(fmt.Sprintf("BUG: attn_merge of %d words, want %d", len(dst), want))
	}
	for i := range p.Classes {
		dst = dst[copy(dst, p.Classes[i].Merge):]
	}
}

// Balance is the greatest load of a CTA divided by the mean load, 1 for a plan
// without work.
func (c *ClassPlan) Balance() float64 {
	most, sum := 0, 0
	for _, n := range c.Load {
		most, sum = max(most, n), sum+n
	}
	if sum == 0 {
		return 1
	}
	return float64(most) * float64(len(c.Load)) / float64(sum)
}

// Item is a work item decoded, see the constants of its words.
type Item struct {
	Head, Entries, Cached, Grow int
	First, End, Of              int
	Position                    int
	Rows                        []int // the row list
	Tail, TailRow               int
	Direct                      bool
	Partials                    []int // as many as there are rows
}

// DecodeItem reads the words of an item.
func DecodeItem(w []uint32) Item {
	it := Item{
		Head: int(w[ItemHead]), Entries: int(w[ItemEntries]), Cached: int(w[ItemCached]), Grow: int(w[ItemGrow]),
		First: int(w[ItemFirst]), End: int(w[ItemEnd]), Of: int(w[ItemOf]), Position: int(w[ItemPosition]),
		Tail: int(w[ItemTail]), TailRow: int(w[ItemTailRow]), Direct: w[ItemFlags]&ItemDirect != 0,
	}
	for i := range min(int(w[ItemRows]), MaxRows) {
		it.Rows = append(it.Rows, int(w[ItemRowList+i/8]>>(4*(i%8))&15))
		it.Partials = append(it.Partials, int(w[ItemPartials+i]))
	}
	return it
}

// Chunks is which of the unit's C chunks the item has when there are N:
// from to to−1.
func (it *Item) Chunks(c int) (from, to int) {
	if it.Of == 0 {
		return min(it.First, c), min(it.End, c)
	}
	return it.First * c / it.Of, it.End * c / it.Of
}

// Visible is how a window cuts the chunks of a unit: C chunks are left, and from
// chunk Sinks of them on, chunk c is the unit's chunk c + Skip.
type Visible struct {
	C, Sinks, Skip int
}

// Visible is what class c leaves of a unit's chunks: the unit has n cached
// tokens, the first of them at position, and query is the least position of the
// item's rows. Chunks that lie wholly between the sinks and the window are left out.
func (c *Class) Visible(chunkTokens, cached, position, query int) Visible {
	all := ceilDiv(cached, chunkTokens)
	if c.Window == 0 {
		return Visible{C: all}
	}
	sinks := min(all, ceilDiv(max(0, c.Sinks-position), chunkTokens))
	first := min(all, max(0, query+1-c.Window-position)/chunkTokens)
	if first <= sinks {
		return Visible{C: all, Sinks: sinks}
	}
	return Visible{C: all - (first - sinks), Sinks: sinks, Skip: first - sinks}
}
