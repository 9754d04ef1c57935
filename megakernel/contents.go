package megakernel

import (
	"fmt"
	"math"
	"slices"

	"github.com/mkgen/mkgen/emit"
)

// tables are the buffers whose content depends on the kernel alone.
func (mk *Kernel) tables() []emit.Table {
	var freq emit.Words
	for _, f := range mk.InvFreq() {
		freq = append(freq, math.Float32bits(f))
	}
	tables := []emit.Table{{Name: "inv_freq", Type: "f32", Words: freq}, {Name: "plan", Type: "u32", Words: mk.PlanTable()},
		{Name: "ends", Type: "u32", Words: slices.Repeat(emit.Words{noToken}, MaxEnds)}}
	if mk.KV.ScalesLen() > 0 {
		var scales emit.Words
		for _, s := range mk.KVScales() {
			scales = append(scales, math.Float32bits(s))
		}
		tables = append(tables, emit.Table{Name: BufferKVScales, Type: "f32", Words: scales})
	}
	return tables
}

// noToken is above every vocabulary.
const noToken = 1<<32 - 1

// gainTensors are the tensors of the buffer gains in their order.
func (mk *Kernel) gainTensors() []string {
	var names []string
	for l := range mk.Config.Layers {
		names = append(names, fmt.Sprintf(tensorAttnNorm, l), fmt.Sprintf(tensorMLPNorm, l))
	}
	return append(names, tensorNorm)
}

// needs are how big the buffers are that the host sizes, and what it writes
// into which.
func (mk *Kernel) needs() []emit.Need {
	c, page := &mk.Config, mk.Options.Page
	norms := fmt.Sprintf("%s and %s of each layer %%d in turn, then %s; bf16", tensorAttnNorm, tensorMLPNorm, tensorNorm)
	const table = "the table of that name"
	var embed, scales []emit.Need
	if mk.KV.ScalesLen() > 0 {
		scales = []emit.Need{{Buffer: BufferKVScales, Fill: table + ", or other positive numbers, the same as long as the cache is used"}}
	}
	if mk.OwnEmbedding() {
		embed = []emit.Need{{Buffer: BufferEmbed, Fill: EmbedTensor + ", row by row; bf16", Tensors: []string{EmbedTensor}}}
	}
	return slices.Concat(embed, scales, []emit.Need{
		{Buffer: "weights", Fill: "the matrices as the packing table says, and zero where it names no element"},
		{Buffer: "gains", Fill: norms, Tensors: mk.gainTensors()},
		{Buffer: "inv_freq", Fill: table},
		{Buffer: "plan", Fill: table},
		{Buffer: "page_table", PageBytes: 4, Size: fmt.Sprintf("4 bytes for each %d tokens of context", page),
			Fill: fmt.Sprintf("word i is the page, below the parameter pages, of tokens %d·i to %d·i+%d; no page twice", page, page, page-1)},
		{Buffer: "kv", PageBytes: int64(c.Layers) * int64(mk.KV.PageBytes()), Size: fmt.Sprintf("%d bytes a page: %d layers × %d", c.Layers*mk.KV.PageBytes(), c.Layers, mk.KV.PageBytes())},
		{Buffer: "tokens", PageBytes: 4 * int64(page), MoreBytes: 4, Size: "4 bytes for each token of context, and 4 for the one chosen behind it",
			Fill: "word i is the token at position i, for the positions from pos on and below known; before every launch"},
		{Buffer: "ends", Fill: fmt.Sprintf("%s, or up to %d tokens that end the text and 0xffffffff in every other word", table, MaxEnds)},
		{Buffer: "stop", Fill: "0; another value while the kernel runs ends the launch after the running step, and 0 must be back before the next launch"},
		{Buffer: "stream", PageBytes: 4 * int64(page), MoreBytes: 4, Size: "as tokens", Fill: "nothing, or 0xffffffff to see tokens come while the kernel runs: word i is then the token chosen for position i"},
		{Buffer: "times", PageBytes: 4 * int64(page), MoreBytes: 4, Size: "as tokens", Fill: "nothing; word i is when the token for position i was chosen, nanoseconds of the GPU's clock, low word"},
		{Buffer: "abort", Fill: "0; if the kernel hangs, 1 in the first word makes every wait end and every CTA leave, and 1 in the second those that still wait for copies; then write it, records, epoch and barrier again"},
		{Buffer: "records", Fill: "0"},
		{Buffer: "epoch", Fill: "the same number as barrier, 0 say; the kernel keeps both from launch to launch, after a failed one write them again"},
		{Buffer: "barrier", Fill: "the same number as epoch"},
	})
}
