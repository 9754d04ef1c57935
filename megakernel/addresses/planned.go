package addresses

import (
	"github.com/mkgen/mkgen/dsl/ir/bounds"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
)

// always is for relations that hold in every row.
const always = -1

// planned is of launches of several rows: what kv.Plan writes, see kv.Plan.Check.
func planned(f *bounds.Facts, mk *megakernel.Kernel, positions int) {
	o := &mk.Options
	f.Params[ParamEntries] = bounds.Range{Lo: 1, Hi: 4 * manySequences * int64(entries(mk, positions))}
	f.Params[megakernel.ScalarRows] = bounds.Range{Lo: 1, Hi: int64(o.Tokens)}
	f.Lens[megakernel.BufferEntries] = bounds.Times(1, ParamEntries, 0)
	f.Lens[megakernel.BufferPositions] = bounds.Times(1, ParamEntries, 0)
	f.Lens["stream"] = bounds.Times(int64(o.Tokens), megakernel.ScalarSteps, 0)
	f.Lens["times"] = bounds.Times(1, megakernel.ScalarSteps, 0)
	f.Content[megakernel.BufferEntries] = pages()
	// A selected page begins at a multiple of the page's size: all of its tokens are within the last page.
	f.Content[megakernel.BufferPositions] = &bounds.Content{Stride: 1,
		Words: map[int]bounds.Word{0: below((entries(mk, positions)-1)*o.Page + 1)}}
	f.Params[ParamMask] = bounds.Range{Lo: maskWords(mk, positions),
		Hi: manySequences * int64(o.Tokens) * maskWords(mk, positions)}
	f.Lens[megakernel.BufferMask] = bounds.Times(1, ParamMask, 0)
	f.Content[megakernel.BufferRows] = rows(mk, positions)
	f.Content[megakernel.BufferWork] = items(mk, positions)
	l := mk.Limits(0)
	f.Content[megakernel.BufferMerges] = &bounds.Content{Stride: 1, Words: map[int]bounds.Word{0: below(l.Partials + 1)}}
}

// below is a word under n.
func below(n int) bounds.Word { return bounds.Word{Hi: bounds.Number(int64(n) - 1)} }

// maskWords is how many words of mask bits a row is taken to have: those of the longest sequence's
// pages, and of new tokens. That a shorter sequence's rows may have fewer is the host's check
// (runtime.Session.Launch): that a token's place is below its sequence's tokens is not told here.
func maskWords(mk *megakernel.Kernel, positions int) int64 {
	return (int64(entries(mk, positions))*int64(mk.Options.Page) + kv.MaxRows + 31) / 32
}

// rows are the query rows: a row's place in its unit, as long as the launch runs, has an entry.
func rows(mk *megakernel.Kernel, positions int) *bounds.Content {
	page := int64(mk.Options.Page)
	return &bounds.Content{Stride: kv.RowWords, Words: map[int]bounds.Word{
		kv.RowPosition: below(positions),
		kv.RowEntries:  {Hi: bounds.Times(1, ParamEntries, -1)},
		kv.RowIndex:    below(positions),
		kv.RowFirst:    below(mk.Options.Tokens),
		kv.RowMask:     {Hi: bounds.Times(1, ParamMask, -maskWords(mk, positions))},
	}, Relations: []bounds.Relation{
		{Unless: always, Words: map[int]int64{kv.RowEntries: page, kv.RowIndex: 1},
			Plus: bounds.Linear{Terms: map[string]int64{megakernel.ScalarSteps: 1, ParamEntries: -page}}},
		{Unless: always, Words: map[int]int64{kv.RowPosition: 1},
			Plus: bounds.Times(1, megakernel.ScalarSteps, -int64(positions))},
	}}
}

// items are the CTAs' work items, behind a header for each CTA and class.
func items(mk *megakernel.Kernel, positions int) *bounds.Content {
	l, page, n := mk.Limits(0), int64(mk.Options.Page), mk.Options.Tokens
	words := map[int]bounds.Word{
		kv.ItemHead:     below(mk.Config.KVHeads),
		kv.ItemEntries:  {Hi: bounds.Times(1, ParamEntries, -1)},
		kv.ItemCached:   below(positions),
		kv.ItemGrow:     below(2),
		kv.ItemPosition: below(positions),
		kv.ItemRows:     {Lo: bounds.Number(1), Hi: bounds.Number(int64(min(n, kv.TileRows(l.Group))))},
		kv.ItemTail:     below(n + 1),
		kv.ItemTailRow:  below(n),
	}
	for i := range 2 {
		words[kv.ItemRowList+i] = bounds.Word{Digits: 4, Below: int64(n)}
	}
	for i := range kv.SettleRows {
		words[kv.ItemStates+i] = bounds.Word{Low: kv.StateBits, Sum: int64(l.Partials)}
	}
	for i := range kv.MaxRows {
		words[kv.ItemPartials+i] = below(l.Partials)
	}
	steps := func(c int64) bounds.Linear { return bounds.Times(c, megakernel.ScalarSteps, -c) }
	return &bounds.Content{Stride: kv.ItemWords, Words: words, Period: (l.ItemsPerCTA + 1) * kv.ItemWords,
		Head: map[int]bounds.Word{kv.HeaderItems: below(l.ItemsPerCTA + 1), kv.HeaderPhase: below(2)},
		Relations: []bounds.Relation{
			// The last token that the unit has in the launch has an entry, cached or new: the analysis
			// takes a relation up where it meets its last word, and a producer reads no ItemTail.
			{Unless: always, Words: map[int]int64{kv.ItemEntries: page, kv.ItemCached: 1},
				Scaled: map[int]bounds.Linear{kv.ItemGrow: steps(1)}, Plus: bounds.Times(-page, ParamEntries, 0)},
			{Unless: always, Words: map[int]int64{kv.ItemEntries: page, kv.ItemCached: 1, kv.ItemTail: 1},
				Scaled: map[int]bounds.Linear{kv.ItemGrow: steps(1)}, Plus: bounds.Times(-page, ParamEntries, 0)},
			{Unless: always, Words: map[int]int64{kv.ItemPosition: 1, kv.ItemCached: 1, kv.ItemTail: 1},
				Scaled: map[int]bounds.Linear{kv.ItemGrow: steps(1)}, Plus: bounds.Number(-int64(positions))},
			{Unless: always, Words: map[int]int64{kv.ItemTail: 1, kv.ItemTailRow: 1}, Plus: bounds.Number(-int64(n))},
			// Chunks are numbered by shares of them, unless they are pinned.
			{Unless: always, Words: map[int]int64{kv.ItemFirst: 1, kv.ItemEnd: -1}},
			{Unless: kv.ItemOf, Words: map[int]int64{kv.ItemEnd: 1, kv.ItemOf: -1}},
			{Unless: kv.ItemOf, Words: map[int]int64{kv.ItemOf: 1}, Plus: bounds.Number(-kv.MaxChunks)},
			{Unless: kv.ItemOf, Words: map[int]int64{kv.ItemCached: 1}, Scaled: map[int]bounds.Linear{kv.ItemGrow: steps(1)},
				Plus: bounds.Number(-kv.MaxChunks * int64(mk.ChunkTokens()))},
		}}
}
