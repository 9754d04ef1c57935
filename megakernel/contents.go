package megakernel

import (
	"fmt"
	"math"
	"slices"

	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/tasks/draw"
)

// tables are the buffers whose content depends on the kernel alone.
func (mk *Kernel) tables() []emit.Table {
	floats := func(values []float32) (w emit.Words) {
		for _, f := range values {
			w = append(w, math.Float32bits(f))
		}
		return w
	}
	tables := []emit.Table{{Name: "inv_freq", Type: "f32", Words: floats(mk.InvFreq())},
		{Name: "plan", Type: "u32", Words: mk.PlanTable()},
		{Name: "ends", Type: "u32", Words: slices.Repeat(emit.Words{noToken}, MaxEnds)}}
	if f := mk.RopeFactors(); f != nil {
		tables = append(tables, emit.Table{Name: BufferRopeFactors, Type: "f32", Words: floats(f)})
	}
	if mk.KV.ScalesLen() > 0 {
		tables = append(tables, emit.Table{Name: BufferKVScales, Type: "f32", Words: floats(mk.KVScales())})
	}
	if mk.HasHeadScales() {
		tables = append(tables, emit.Table{Name: BufferHeadScales, Type: "f32", Words: floats(mk.HeadScales())})
	}
	if slopes := mk.Slopes(); slopes != nil {
		tables = append(tables, emit.Table{Name: BufferSlopes, Type: "f32", Words: floats(slopes)})
	}
	return tables
}

// noToken is above every vocabulary.
const noToken = 1<<32 - 1

// needs are how big the buffers are that the host sizes, and what it writes
// into which.
func (mk *Kernel) needs() []emit.Need {
	c := &mk.Config
	var vectors []emit.Need
	for _, v := range mk.VectorBuffers() {
		vectors = append(vectors, emit.Need{Buffer: v.Name, Fill: v.Fill, Tensors: v.Tensors})
	}
	if mk.RopeFactors() != nil {
		vectors = append(vectors, emit.Need{Buffer: BufferRopeFactors, Fill: fillTable})
	}
	var embed []emit.Need
	if mk.OwnEmbedding() {
		embed = []emit.Need{{Buffer: BufferEmbed, Fill: mk.embedTensor() + ", row by row; bf16",
			Tensors: []string{mk.embedTensor()}}}
	}
	launch := mk.needsOfSequence
	if mk.Ragged() {
		launch = mk.needsOfRows
	}
	return slices.Concat(embed, mk.needsOfVariants(), []emit.Need{
		{Buffer: "weights", Fill: "the matrices as the packing table says, and zero where it names no element"},
	}, vectors, []emit.Need{
		{Buffer: "inv_freq", Fill: fillTable},
		{Buffer: "plan", Fill: fillTable},
		{Buffer: "kv", PageBytes: int64(c.Layers) * int64(mk.KV.PageBytes()),
			Size: fmt.Sprintf("%d bytes a page: %d layers × %d", c.Layers*mk.KV.PageBytes(), c.Layers, mk.KV.PageBytes())},
	}, launch(), mk.needsOfDraws(), []emit.Need{
		{Buffer: "ends", Fill: fmt.Sprintf("%s, or up to %d tokens that end the text and 0xffffffff in every other word",
			fillTable, MaxEnds)},
		{Buffer: "stop", Fill: "0; another value while the kernel runs ends the launch after the running step, and 0 must be back before the next launch"},
		{Buffer: "abort", Fill: "0; if the kernel hangs, 1 in the first word makes every wait end and every CTA leave, and 1 in the second those that still wait for copies; then write it, records, epoch and barrier again"},
		{Buffer: "records", Fill: "0"},
		{Buffer: "epoch", Fill: "the same number as barrier, 0 say; the kernel keeps both from launch to launch, after a failed one write them again"},
		{Buffer: "barrier", Fill: "the same number as epoch"},
	})
}

// needsOfDraws are of launches that draw tokens.
func (mk *Kernel) needsOfDraws() []emit.Need {
	if !mk.Draws() {
		return nil
	}
	return []emit.Need{
		{Buffer: BufferDraws,
			Fill: fmt.Sprintf("nothing where %s is 0; else the row of package draw for each row of a step, %d words, 0 for the highest logit", ScalarDraws, draw.RowWords)},
		{Buffer: BufferHistories,
			Fill: fmt.Sprintf("nothing unless %s has bit %d; else the histories of package draw that rows name; the kernel adds the tokens that they choose", ScalarDraws, draw.ModeChanges)},
		{Buffer: BufferTokenMasks,
			Fill: fmt.Sprintf("nothing unless %s has bit %d; else for each row with a mask %d words: bit t%%32 of word t/32 is 1 where it may choose token t", ScalarDraws, draw.ModeMasks, draw.MaskWords(mk.Config.Vocab))},
		{Buffer: BufferMasksReady,
			Fill: fmt.Sprintf("nothing unless %s has bit %d; else %d, with which masks hold for all steps of a launch; or the number of steps whose masks are there, raised by one behind each step's new masks while the kernel runs", ScalarDraws, draw.ModeMasks, AllMasks)},
	}
}

// fillTable is what a need says of a buffer whose content is a table.
const fillTable = "the table of that name"

// needsOfSequence are of a launch of one sequence.
func (mk *Kernel) needsOfSequence() []emit.Need {
	page := mk.Options.Page
	return []emit.Need{
		{Buffer: "page_table", PageBytes: 4, Size: fmt.Sprintf("4 bytes for each %d tokens of context", page),
			Fill: fmt.Sprintf("word i is the page, below the parameter pages, of tokens %d·i to %d·i+%d; no page twice", page,
				page, page-1)},
		{Buffer: "tokens", PageBytes: 4 * int64(page), MoreBytes: 4,
			Size: "4 bytes for each token of context, and 4 for the one chosen behind it",
			Fill: "word i is the token at position i, for the positions from pos on and below known; before every launch"},
		{Buffer: "stream", PageBytes: 4 * int64(page), MoreBytes: 4, Size: "as tokens",
			Fill: "nothing, or 0xffffffff to see tokens come while the kernel runs: word i is then the token chosen for position i"},
		{Buffer: "times", PageBytes: 4 * int64(page), MoreBytes: 4, Size: "as tokens",
			Fill: "nothing; word i is when the token for position i was chosen, nanoseconds of the GPU's clock, low word"},
	}
}

// needsOfRows are of a launch of several rows a step. Their work is a plan's (package
// kv); a buffer whose size has no bytes a page is as long as the longest launch.
func (mk *Kernel) needsOfRows() []emit.Need {
	t := mk.Options.Tokens
	const plan = "what kv.Plan says, before every launch: "
	list := []emit.Need{
		{Buffer: BufferRows, Fill: plan + "Rows"},
		{Buffer: BufferEntries, Size: "4 bytes an entry of all page tables of a launch",
			Fill: plan + "Entries; a page of the cache in words behind them"},
		{Buffer: BufferWork, Fill: plan + "EncodeWork"},
		{Buffer: BufferMerges, Fill: plan + "EncodeMerge"},
		{Buffer: "stream", Size: fmt.Sprintf("%d bytes a step of a launch", 4*t),
			Fill: fmt.Sprintf("nothing, or 0xffffffff to see tokens come while the kernel runs: word %d·s + r is then what step s chose for row r", t)},
		{Buffer: "times", Size: "4 bytes a step of a launch",
			Fill: "nothing; word s is when step s chose its tokens, nanoseconds of the GPU's clock, low word"},
	}
	if mk.Options.Selection {
		list = append(list, emit.Need{Buffer: BufferPositions, Size: "as " + BufferEntries, Fill: plan + "Positions"})
	}
	return list
}

// needsOfVariants are of where states are merged, of the cache's format and of attention that is not plain.
func (mk *Kernel) needsOfVariants() (list []emit.Need) {
	if mk.Options.Queries == SyncWords {
		names := []string{BufferQueryWords, BufferKVWords}
		if mk.kind().Attn.QKNormWide {
			names = append(names, BufferQKSums)
		}
		for _, name := range names {
			list = append(list, emit.Need{Buffer: name, Fill: "0, and again after a launch that was given up"})
		}
	}
	for _, phase := range mk.Options.packetPhases() {
		list = append(list, emit.Need{Buffer: BufferWords(phase), Fill: "0, and again after a launch that was given up"})
	}
	if mk.HasTags() {
		list = append(list, emit.Need{Buffer: BufferStates,
			Fill: "0, and again after a launch that was given up, and between launches before 2^31 arrivals at the barrier have gone by since"})
	}
	for _, name := range mk.Options.mlp().carried() {
		list = append(list, emit.Need{Buffer: name,
			Fill: "0, and again after a launch that was given up; the kernel keeps it from launch to launch"})
	}
	if mk.KV.ScalesLen() > 0 {
		list = append(list, emit.Need{Buffer: BufferKVScales,
			Fill: fillTable + ", or other positive numbers, the same as long as the cache is used"})
	}
	if mk.HasHeadScales() {
		list = append(list, emit.Need{Buffer: BufferHeadScales, Fill: fillTable + ", or other finite numbers"})
	}
	if mk.has(termALiBi) {
		list = append(list, emit.Need{Buffer: BufferSlopes, Fill: fillTable})
	}
	if mk.HasMask() {
		list = append(list, emit.Need{Buffer: BufferMask,
			Size: "4 bytes for each 32 tokens of a row's sequence, of every row, or as rows share",
			Fill: "a row's bits from the word on that its word RowMask names: bit i%32 of word i/32 is 1 where it sees the i-th token of its sequence"})
	}
	return list
}
