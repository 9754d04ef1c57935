package kv

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlanRefuses(t *testing.T) {
	type change = func(l *Limits, r *Request)
	for _, c := range []struct {
		want string
		do   change
	}{
		{"kv: sequence 1: 3 pages of 16 tokens for 100 cached and 1 new ones, 0 after the first step; want 7 pages",
			func(l *Limits, r *Request) { r.Sequences[1].Pages = r.Sequences[1].Pages[:3] }},
		{"kv: sequence 0: 7 pages of 16 tokens for 100 cached and 1 new ones, 99 after the first step; want 13 pages",
			func(l *Limits, r *Request) { r.Steps = 100 }},
		{"kv: sequence 1: does not grow in a launch of 5 steps; want Grow, or 1 step",
			func(l *Limits, r *Request) { r.Sequences[1].Grow, r.Steps = false, 5 }},
		{"kv: sequence 0: 2 new tokens of a sequence that grows in a launch of 1 steps, want 1",
			func(l *Limits, r *Request) { r.Sequences[0].New = 2 }},
		{"kv: sequence 0: -1 cached and 1 new tokens, want 0 to 1073741824 and 0 to 16",
			func(l *Limits, r *Request) { r.Sequences[0].Cached = -1 }},
		{"kv: sequence 1: 100 cached and 9223372036854775807 new tokens, want 0 to 1073741824 and 0 to 16",
			func(l *Limits, r *Request) { r.Sequences[1].New, r.Sequences[1].Grow = math.MaxInt, false }},
		{"kv: sequence 0: 9223372036854775807 cached and 1 new tokens, want 0 to 1073741824 and 0 to 16",
			func(l *Limits, r *Request) { r.Sequences[0].Cached = math.MaxInt }},
		{"kv: sequence 0: new token 0 has parent 0, want -1 to -1",
			func(l *Limits, r *Request) { r.Sequences[0].Parents = []int{0} }},
		{"kv: sequence 0: 2 parents for 1 new tokens, want as many or none",
			func(l *Limits, r *Request) { r.Sequences[0].Parents = []int{-1, 0} }},
		{"kv: sequence 0: 2 tokens for 1 new tokens, want as many or none",
			func(l *Limits, r *Request) { r.Sequences[0].Tokens = []uint32{1, 2} }},
		{"kv: sequence 0: selects pages, but the kernel is built without selection",
			func(l *Limits, r *Request) { r.Sequences[0].Select = make([][]int, 8) }},
		{"kv: sequence 0: selects pages for 7 KV heads, there are 8",
			func(l *Limits, r *Request) { l.Selection, r.Sequences[0].Select = true, make([][]int, 7) }},
		{"kv: sequence 0: KV head 1 selects page 6, want one of its 6 full pages",
			func(l *Limits, r *Request) {
				l.Selection, r.Sequences[0].Select = true, [][]int{{5}, {6}, {}, {}, {}, {}, {}, {}}
			}},
		{"kv: sequence 0: KV head 0 selects page 2 after page 2, want increasing ones",
			func(l *Limits, r *Request) {
				l.Selection, r.Sequences[0].Select = true, [][]int{{2, 2}, {}, {}, {}, {}, {}, {}, {}}
			}},
		{"kv: sequence 1: page 13, the cache has 13", func(l *Limits, r *Request) { l.Pages = 13 }},
		{"kv: 2 query rows in 2 sequences, the kernel takes 1", func(l *Limits, r *Request) { l.Rows = 1 }},
		{"kv: page table of 14 entries, the kernel has room for 13; Limits.Entries of 14 would do, or larger pages",
			func(l *Limits, r *Request) { l.Entries = 13 }},
		{"kv: class 0: 16 work items, the kernel has room for 15 on 5 CTAs; Limits.ItemsPerCTA of 4 would do, or fewer rows",
			func(l *Limits, r *Request) { l.CTAs, l.ItemsPerCTA = 5, 3 }},
		{"kv: class 0: 64 partial states, the kernel has room for 63; Limits.Partials of 64 would do, or a greater PinTokens",
			func(l *Limits, r *Request) { l.Partials, r.PinTokens = 63, 32 }},
		{"kv: parts pinned at multiples of 100 tokens, want a multiple of the 32 of a stage",
			func(l *Limits, r *Request) { r.PinTokens = 100 }},
		{"kv: class 0: window 0 with 4 sinks, selection false; sinks want a window, selection none",
			func(l *Limits, r *Request) { r.Classes = []Class{{Sinks: 4}} }},
		{"kv: class 0 selects pages, but the kernel is built without selection",
			func(l *Limits, r *Request) { r.Classes = []Class{{Select: true}} }},
		{"kv: class 1: window 8 with 0 sinks, selection true; sinks want a window, selection none",
			func(l *Limits, r *Request) { r.Classes = []Class{{}, {Window: 8, Select: true}} }},
		{"kv: limits: CTAs is 0, want 1 to 4096", func(l *Limits, r *Request) { l.CTAs = 0 }},
		{"kv: -1 steps, want 1 to 1073741824", func(l *Limits, r *Request) { r.Steps = -1 }},
	} {
		l, r := h200(), decoding(16, 101, 101)
		c.do(&l, &r)
		p, err := NewPlanner(l)
		if err == nil {
			_, err = p.Plan(r)
		}
		require.EqualError(t, err, c.want)
	}
}

func TestAPlanOfNothingThatDoesNotFitIsRefused(t *testing.T) {
	l := h200()
	l.CTAs, l.ItemsPerCTA = 1, 7
	p, err := NewPlanner(l)
	require.NoError(t, err)
	_, err = p.Plan(Request{FillRows: true})
	require.EqualError(t, err,
		"kv: class 0: 8 work items, the kernel has room for 7 on 1 CTAs; Limits.ItemsPerCTA of 8 would do, or fewer rows")
}

func TestAPlanIsCutLessWhereStatesAreFew(t *testing.T) {
	for _, partials := range []int{0, 8, 16, 17, 100, 200} {
		l := h200()
		l.Partials = partials
		p := plan(t, l, decoding(16, 32768))
		require.LessOrEqual(t, p.Classes[0].Partials, partials)
		if partials >= 16 {
			require.NotZero(t, p.Classes[0].Partials)
		}
	}
}

func TestAFullCTATakesNoMore(t *testing.T) {
	l := h200()
	l.CTAs, l.ItemsPerCTA = 16, 8
	p := plan(t, l, decoding(16, zipf()...))
	for cta := range l.CTAs {
		require.Equal(t, 8, p.Classes[0].Count(cta), "128 items fill 16 CTAs of 8")
	}
}

func TestPagesThatAreWrittenAreNotShared(t *testing.T) {
	r := decoding(16, 101, 101)
	require.NoError(t, r.CheckWrites(16))
	r.Sequences[1].Pages[2] = r.Sequences[0].Pages[2]
	require.NoError(t, r.CheckWrites(16))
	r.Sequences[1].Pages[2] = r.Sequences[0].Pages[6]
	require.EqualError(t, r.CheckWrites(16), "kv: sequence 1 reads page 6, which sequence 0 writes")
	r.Sequences[1].Pages[6] = r.Sequences[0].Pages[6]
	require.EqualError(t, r.CheckWrites(16), "kv: sequence 1 writes page 6, and so does sequence 0")
}

func TestTooManyChunksForAFractionAreRefused(t *testing.T) {
	l := h200()
	l.PageSize, l.ChunkTokens, l.Pages = 1024, 16, 0
	p, err := NewPlanner(l)
	require.NoError(t, err)
	r := decoding(1024, 1<<20)
	_, err = p.Plan(r)
	require.EqualError(t, err,
		"kv: class 0: 65536 chunks of 16 tokens in sequence 0, want at most 65528; larger stages would do, or PinTokens")
	r.PinTokens = 16384
	_, err = p.Plan(r)
	require.NoError(t, err)
}

// TestCheckNoticesFaults plants a fault into every word of some plans in turn.
func TestCheckNoticesFaults(t *testing.T) {
	l := h200()
	l.CTAs, l.KVHeads, l.Selection = 5, 2, true
	l.Costs = Costs{Item: 16, Row: 2, Token: 1, State: 8} // short prefixes pay
	r := sharing(16, 3, 6, 2)
	r.Sequences = append(r.Sequences,
		Sequence{Cached: 75, New: 3, Parents: []int{-1, 0, 0}, Pages: []uint32{80, 81, 82, 83, 84}})
	r.Classes = []Class{{}, {Window: 48, Sinks: 3}, {Select: true}}
	r.Sequences[2].Select = [][]int{{0, 3, 4}, {1}}
	p := plan(t, l, r)
	require.NotZero(t, p.Prefixes)
	faults := 0
	plant := func(what string, w *uint32, v uint32) {
		if old := *w; old != v {
			*w = v
			require.Error(t, p.Check(r), "%s: %d instead of %d", what, v, old)
			*w = old
			faults++
		}
	}
	for c := range p.Classes {
		class := &p.Classes[c]
		for i := range class.Merge {
			plant("merge table", &class.Merge[i], class.Merge[i]+1)
		}
		for cta := range l.CTAs {
			for i := range class.Count(cta) {
				plantItem(class.Words(cta, i), plant)
			}
			if n := class.counts[cta]; n > 0 {
				class.counts[cta]--
				class.words[cta*p.Limits.recordWords()]--
				require.Error(t, p.Check(r), "an item is lost")
				class.counts[cta]++
				class.words[cta*p.Limits.recordWords()]++
			}
		}
	}
	for row := range p.RowCount {
		for _, word := range []int{RowPosition, RowEntries, RowIndex, RowTail, RowFirst} {
			w := &p.Rows[row*RowWords+word]
			plant("row", w, *w^1)
		}
	}
	require.NoError(t, p.Check(r))
	t.Logf("%d faults", faults)
}

func plantItem(w []uint32, plant func(string, *uint32, uint32)) {
	it := DecodeItem(w)
	chunks := it.Cached > 0 && it.First < it.End
	plant("head", &w[ItemHead], w[ItemHead]^1)
	plant("rows", &w[ItemRows], w[ItemRows]-1)
	plant("row list", &w[ItemRowList], w[ItemRowList]^1)
	plant("flags", &w[ItemFlags], w[ItemFlags]^ItemDirect)
	if it.Tail > 0 {
		plant("tail", &w[ItemTail], 0)
		plant("tail row", &w[ItemTailRow], w[ItemTailRow]+1)
	}
	if chunks {
		plant("entries", &w[ItemEntries], w[ItemEntries]+1)
		plant("cached", &w[ItemCached], w[ItemCached]+1)
		plant("cached", &w[ItemCached], w[ItemCached]-1)
		plant("position", &w[ItemPosition], w[ItemPosition]+16)
		plant("first", &w[ItemFirst], w[ItemFirst]+1)
		plant("end", &w[ItemEnd], w[ItemEnd]-1)
	}
	if !it.Direct {
		plant("partial", &w[ItemPartials], w[ItemPartials]+1)
	}
}
