package kv

import "fmt"

// MaxChunks bounds the chunks of a unit that is cut by shares, so that a·C fits into a word.
const MaxChunks = 1<<16 - 8

// Limits is what a kernel was built with. All but those that say otherwise must be
// positive.
type Limits struct {
	CTAs        int // CTAs of the grid
	KVHeads     int
	Group       int // query heads of a KV head
	Rows        int // query rows of a step at most, up to MaxRows
	PageSize    int // tokens of a page, a power of two up to MaxPageSize
	ChunkTokens int // tokens of a KV head that a stage of the ring holds
	ItemsPerCTA int // work items of a CTA and class at most
	Partials    int // partial states of a class at most; 0: no KV can be split
	Pages       int // pages of the cache; 0: page numbers are not checked
	Entries     int // words of the page table at most; 0: not checked
	MaxTile     int // query rows of an item at most; 0: TileRows(Group)

	Selection bool  // sequences may select pages, and page entries have positions
	Costs     Costs // zero: DefaultCosts(Group)
}

// TileRows is how many query rows an item has at most by itself: 128 rows of
// queries, all heads of a group counted, at least 1 and at most MaxRows.
func TileRows(group int) int { return max(1, min(MaxRows, 128/group)) }

// Costs weighs work: an item of l_q rows and l_kv tokens costs
// Item + Row·l_q + Token·l_kv, and Part more where its unit is cut. Row and Token are α
// and β of FlashInfer's algorithm 1.
// State is what a partial state more costs a row and decides, with the others,
// whether a shared prefix becomes a unit of its own. Phase is what a row costs whose partial states
// a phase merges, its share of the sync included: items have SettleRows rows at most where that is
// dearer. None may be negative.
type Costs struct {
	Item, Part, Row, Token, State, Phase int
}

// DefaultCosts counts in tokens of KV: a query row or a state is Group vectors, a
// token two; a state is float32 and is written and read once. What an item's beginning
// and end cost, and the merge of parts, was tried out on batches of 16 sequences; what a phase
// costs is measured on 8 and 16 rows of one sequence (docs/RATIONALE.md).
func DefaultCosts(group int) Costs {
	return Costs{Item: 60, Part: 200, Row: max(1, group/2), Token: 1, State: 2 * group, Phase: 15 * group}
}

// EagerCosts make the planner cut and share wherever tokens alone speak for it: for
// checks, in which merges and prefixes are to occur in short sequences, too.
func EagerCosts() Costs { return Costs{Item: 16, Row: 1, Token: 1, State: 4, Phase: 3} }

// WorkWords is the size of the buffer "attn_plan" in words.
func (l *Limits) WorkWords(classes int) int {
	return classes * l.CTAs * l.recordWords()
}

// MergeWords is the size of the buffer "attn_merge" in words.
func (l *Limits) MergeWords(classes int) int { return classes * l.mergeWords() }

func (l *Limits) recordWords() int { return (l.ItemsPerCTA + 1) * ItemWords }
func (l *Limits) mergeWords() int  { return l.Rows*l.KVHeads + 1 }

func (l *Limits) tile() int {
	if l.MaxTile > 0 {
		return l.MaxTile
	}
	return TileRows(l.Group)
}

// Check says what is wrong with l, or nil.
func (l *Limits) Check() error {
	for _, f := range []struct {
		name       string
		v, min, up int
	}{
		{"CTAs", l.CTAs, 1, 1 << 12}, {"KVHeads", l.KVHeads, 1, 1 << 10}, {"Group", l.Group, 1, 1 << 10},
		{"Rows", l.Rows, 1, MaxRows}, {"ChunkTokens", l.ChunkTokens, 1, 1 << 16},
		{"ItemsPerCTA", l.ItemsPerCTA, 1, 1 << 12}, {"Partials", l.Partials, 0, 1 << StateBits},
		{"Pages", l.Pages, 0, maxTokens}, {"Entries", l.Entries, 0, maxTokens}, {"MaxTile", l.MaxTile, 0, MaxRows},
		{"Costs.Item", l.Costs.Item, 0, 1 << 16}, {"Costs.Part", l.Costs.Part, 0, 1 << 16},
		{"Costs.Row", l.Costs.Row, 0, 1 << 16},
		{"Costs.Token", l.Costs.Token, 0, 1 << 10}, {"Costs.State", l.Costs.State, 0, 1 << 16},
		{"Costs.Phase", l.Costs.Phase, 0, 1 << 16},
	} {
		if f.v < f.min || f.v > f.up {
			return fmt.Errorf("kv: limits: %s is %d, want %d to %d", f.name, f.v, f.min, f.up)
		}
	}
	return checkPageSize(l.PageSize)
}

// Class is what tells the work of some layers from that of others.
type Class struct {
	Window int  // a query at q sees keys behind q − Window; 0: all
	Sinks  int  // and the first Sinks tokens; 0 without a window
	Select bool // heads attend to the pages that sequences select; without a window
}

// Request is what a plan is made for: the sequences of a launch.
type Request struct {
	Sequences []Sequence
	Steps     int     // steps of the launch; 0: 1
	Ahead     int     // more steps that it is cut for and does not run: a step alone is then cut as within a longer launch
	Classes   []Class // nil: one, without a window

	// PinTokens, a multiple of ChunkTokens, cuts every sequence at its multiples, whatever
	// else the batch holds, and shares nothing; 0: the planner cuts.
	PinTokens int

	Single bool // the single format: no prefix becomes a unit of its own

	// FillRows gives rows behind the sequences' an item of nothing, so that their output
	// is zeros; without it they get none.
	FillRows bool
}

func (r *Request) check(l *Limits) error {
	if r.Steps < 1 || r.Steps > maxTokens {
		return fmt.Errorf("kv: %d steps, want 1 to %d", r.Steps, maxTokens)
	}
	if r.Ahead < 0 || r.Ahead > maxTokens {
		return fmt.Errorf("kv: cut for %d more steps, want 0 to %d", r.Ahead, maxTokens)
	}
	if r.PinTokens < 0 || r.PinTokens%l.ChunkTokens != 0 {
		return fmt.Errorf("kv: parts pinned at multiples of %d tokens, want a multiple of the %d of a stage", r.PinTokens,
			l.ChunkTokens)
	}
	for i, c := range r.Classes {
		if c.Window < 0 || c.Sinks < 0 || c.Window > maxTokens || c.Sinks > maxTokens {
			return fmt.Errorf("kv: class %d: window %d with %d sinks, want 0 to %d", i, c.Window, c.Sinks, maxTokens)
		}
		if c.Window == 0 && c.Sinks > 0 || c.Window > 0 && c.Select {
			return fmt.Errorf("kv: class %d: window %d with %d sinks, selection %t; sinks want a window, selection none", i,
				c.Window, c.Sinks, c.Select)
		}
		if c.Select && !l.Selection {
			return fmt.Errorf("kv: class %d selects pages, but the kernel is built without selection", i)
		}
	}
	rows := 0
	for i := range r.Sequences {
		s := &r.Sequences[i]
		if err := s.check(l, r.Steps); err != nil {
			return fmt.Errorf("kv: sequence %d: %w", i, err)
		}
		rows += s.New
	}
	if rows > l.Rows {
		return fmt.Errorf("kv: %d query rows in %d sequences, the kernel takes %d", rows, len(r.Sequences), l.Rows)
	}
	return nil
}

// CheckWrites says which page some sequence will write in the launch that another one
// has too, or nil. The planner does not look: pages have owners where they are handed
// out. For tests; it allocates.
func (r *Request) CheckWrites(pageSize int) error {
	steps, writer := max(1, r.Steps), map[uint32]int{}
	for i := range r.Sequences {
		s := &r.Sequences[i]
		if s.New == 0 {
			continue
		}
		for _, page := range s.Pages[s.Cached/pageSize : s.pages(pageSize, steps)] {
			if other, ok := writer[page]; ok {
				return fmt.Errorf("kv: sequence %d writes page %d, and so does sequence %d", i, page, other)
			}
			writer[page] = i
		}
	}
	for i := range r.Sequences {
		s := &r.Sequences[i]
		for _, page := range s.Pages[:s.Cached/pageSize] {
			if w, ok := writer[page]; ok && s.New > 0 {
				return fmt.Errorf("kv: sequence %d reads page %d, which sequence %d writes", i, page, w)
			}
		}
	}
	return nil
}
