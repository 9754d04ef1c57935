package megakernel

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/product"
)

// Ragged is whether a step may have several query rows, of any number of
// sequences.
func (mk *Kernel) Ragged() bool { return mk.Options.Tokens > 1 }

// work is what a ragged kernel is told of its steps, and its own arrays.
type work struct {
	rows    dsl.Buf[dsl.U32] // the query rows, see package kv
	entries dsl.Buf[dsl.U32] // the units' page tables
	// positions of the entries' first tokens, where sequences may select pages
	positions dsl.Buf[dsl.U32]
	items     dsl.Buf[dsl.U32] // each CTA's attention work
	merges    dsl.Buf[dsl.U32] // which partial states make an output

	input   dsl.Buf[dsl.BF16] // the residual vectors times the next norm's gains
	squares dsl.Buf[dsl.F32]  // each SM's part of their sums of squares

	branch, branchSquares dsl.Buf[dsl.F32] // the same of what is added behind a norm, where there is one

	count   dsl.Val[dsl.U32]
	chooses dsl.Val[dsl.U32] // not 0: the steps choose tokens
}

// ScalarRows is the number of query rows of every step of a launch.
const ScalarRows = "row_count"

// ScalarChooses is 0 in a launch of one step whose logits nobody wants: it ends behind its last layer.
const ScalarChooses = "chooses"

// Names of the buffers that carry a launch's work; package kv says what is in them.
const (
	BufferRows    = "rows"
	BufferEntries = "kv_indices"
	BufferWork    = "attn_plan"
	BufferMerges  = "attn_merge"

	BufferPositions = "kv_positions" // with Options.Selection only
)

// Limits are what the work of a step must fit into, for a cache of n pages
// (0: unchecked). Items leave room for a unit a sequence and a prefix above each
// pair, all query tiles of them, and one more item an SM for what is split; twice
// that an SM, since short items may meet on one.
func (mk *Kernel) Limits(pages int) kv.Limits {
	c, o := &mk.Config, &mk.Options
	group := c.Heads / c.KVHeads
	tiles := pipeline.CeilDiv(o.Tokens, kv.TileRows(group))
	items := pipeline.CeilDiv((2*o.Tokens-1)*c.KVHeads*tiles+o.SMs, o.SMs)
	chunk := 0
	if mk.Plan != nil { // Limits is asked for numbers that the plan depends on
		chunk = mk.ChunkTokens()
	}
	return kv.Limits{CTAs: o.SMs, KVHeads: c.KVHeads, Group: group, Rows: o.Tokens, PageSize: o.Page, ChunkTokens: chunk,
		ItemsPerCTA: max(8, 2*items), Partials: 2 * max(o.SMs, (2*o.Tokens-1)*c.KVHeads) * min(o.Tokens, kv.TileRows(group)),
		Pages: pages, Selection: o.Selection}
}

func (mk *Kernel) declareWork(k *dsl.Kernel, b *buffers) {
	c, o, ro, l := &mk.Config, &mk.Options, dsl.ReadOnly(), mk.Limits(0)
	classes := len(mk.classes)
	b.rows = dsl.Global[dsl.U32](k, BufferRows, elements(o.Tokens, kv.RowWords), ro, dsl.Align(16),
		bufDoc("[%d][%d] the query rows", o.Tokens, kv.RowWords))
	b.entries = dsl.Global[dsl.U32](k, BufferEntries, 0, ro, bufDoc("page tables of the units of KV, one after another"))
	if o.Selection {
		b.positions = dsl.Global[dsl.U32](k, BufferPositions, 0, ro, bufDoc("the position of each entry's first token"))
	}
	b.items = dsl.Global[dsl.U32](k, BufferWork, int64(l.WorkWords(classes)), ro, dsl.Align(16),
		bufDoc("[%d][%d][%d][%d] attention work: for each class of layers and each SM how many items, and these", classes,
			o.SMs, l.ItemsPerCTA+1, kv.ItemWords))
	b.merges = dsl.Global[dsl.U32](k, BufferMerges, int64(l.MergeWords(classes)), ro,
		bufDoc("[%d][%d·%d+1] the first partial state of each row and KV head", classes, o.Tokens, c.KVHeads))
}

func (mk *Kernel) declareRows(k *dsl.Kernel, b *buffers) {
	c, o, l, pad := &mk.Config, &mk.Options, mk.Limits(0), product.ColumnsPadded(mk.Options.Tokens)
	group, qRows := c.Heads/c.KVHeads, c.Heads*c.HeadDim
	b.x = dsl.Global[dsl.F32](k, "x", elements(o.Tokens, c.Hidden), dsl.Align(16),
		bufDoc("[%d][%d] residual vectors", o.Tokens, c.Hidden))
	b.input = mk.fragments(k, "normed", c.Hidden, "residual vectors times the next norm's gains")
	b.squares = dsl.Global[dsl.F32](k, "squares", elements(o.SMs, pad), dsl.Align(16),
		bufDoc("[%d][%d] each SM's part of the residual vectors' sums of squares", o.SMs, pad))
	if mk.kept() {
		b.branch = dsl.Global[dsl.F32](k, "branch", elements(o.Tokens, c.Hidden), dsl.Align(16),
			bufDoc("[%d][%d] what attention or the MLP adds, before its norm", o.Tokens, c.Hidden))
		b.branchSquares = dsl.Global[dsl.F32](k, "branch_squares", elements(o.SMs, pad), dsl.Align(16),
			bufDoc("[%d][%d] each SM's part of its sums of squares", o.SMs, pad))
	}
	b.q = dsl.Global[dsl.BF16](k, "q", elements(o.Tokens, qRows), dsl.Align(16),
		bufDoc("[%d][%d][%d] rotated, scaled queries", o.Tokens, c.Heads, c.HeadDim))
	b.states = declareStates(k, l.Partials, group, c.HeadDim)
	b.attn = mk.fragments(k, "attn", qRows, "attention outputs")
	b.act = mk.fragments(k, "act", c.Intermediate, "silu(gate)·up")
	b.logits = dsl.Global[dsl.F32](k, "logits", elements(o.Tokens, c.Vocab), dsl.Align(16),
		bufDoc("[%d][%d] out", o.Tokens, c.Vocab))
	b.best = dsl.Global[dsl.F32](k, "best", elements(o.SMs, pad), bufDoc("[%d][%d] each SM's largest logits", o.SMs, pad))
	b.bestIndex = dsl.Global[dsl.U32](k, "best_index", elements(o.SMs, pad), bufDoc("[%d][%d] and their rows", o.SMs, pad))
}

// fragments declares the input of a matrix with n columns.
func (mk *Kernel) fragments(k *dsl.Kernel, name string, n int, what string) dsl.Buf[dsl.BF16] {
	a := mk.activations(n)
	return dsl.Global[dsl.BF16](k, name, int64(a.Len()), dsl.Align(16),
		bufDoc("[%d][%d][%d] %s, %d elements of every row after another", a.Len()/a.Padded()/pipeline.GroupK, a.Padded(),
			pipeline.GroupK, what, pipeline.GroupK))
}

// activations is the form of a matrix's input of n columns.
func (mk *Kernel) activations(n int) product.Activations {
	return product.Activations{K: n, T: mk.Options.Tokens, Format: mk.Options.Weights}
}
