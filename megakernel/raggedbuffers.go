package megakernel

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/pipeline"
)

// Ragged is whether a step may have several query rows, of any number of
// sequences.
func (mk *Kernel) Ragged() bool { return mk.Options.Tokens > 1 }

// work is what a ragged kernel is told of its steps, and its own arrays.
type work struct {
	rows    dsl.Buf[dsl.U32] // the query rows, see package kv
	entries dsl.Buf[dsl.U32] // the units' page tables
	items   dsl.Buf[dsl.U32] // each CTA's attention work
	merges  dsl.Buf[dsl.U32] // which partial states make an output

	input   dsl.Buf[dsl.BF16] // the residual vectors times the next norm's gains
	squares dsl.Buf[dsl.F32]  // each SM's part of their sums of squares

	count dsl.Val[dsl.U32]
}

// ScalarRows is the number of query rows of every step of a launch.
const ScalarRows = "rows_now"

// Names of the buffers that carry a step's work; package kv fills them.
const (
	BufferRows    = "rows"
	BufferEntries = "kv_entries"
	BufferItems   = "attn_items"
	BufferMerges  = "attn_merges"
)

// Limits are what the attention work of a ragged step must fit into.
type Limits struct {
	Items    int // work items of one SM
	Partials int // partial states, each of the query heads of one KV head and one row
}

// limits leave room for a unit a sequence and a prefix above each pair, all
// query tiles of them, and one more item an SM for what is split; twice that an
// SM, since short items may meet on one.
func (mk *Kernel) limits() Limits {
	c, o := &mk.Config, &mk.Options
	tiles := ceilDiv(o.Tokens*(c.Heads/c.KVHeads), 128)
	items := ceilDiv((2*o.Tokens-1)*c.KVHeads*tiles+o.SMs, o.SMs)
	return Limits{Items: max(8, 2*items), Partials: 2 * max(o.SMs, o.Tokens*c.KVHeads) * o.Tokens}
}

// paddedRows is the number of token rows of a fragment: 8 or 16.
func (mk *Kernel) paddedRows() int { return (mk.Options.Tokens + 7) / 8 * 8 }

func (mk *Kernel) declareWork(k *dsl.Kernel, b *buffers) {
	c, o, ro, l := &mk.Config, &mk.Options, dsl.ReadOnly(), mk.limits()
	b.rows = dsl.Global[dsl.U32](k, BufferRows, product(o.Tokens, kv.RowWords), ro, dsl.Align(16), bufDoc("[%d][%d] the query rows", o.Tokens, kv.RowWords))
	b.entries = dsl.Global[dsl.U32](k, BufferEntries, 0, ro, bufDoc("page tables of the units of KV, one after another"))
	b.items = dsl.Global[dsl.U32](k, BufferItems, product(o.SMs, l.Items+1, kv.ItemWords), ro, dsl.Align(16),
		bufDoc("[%d][%d][%d] attention work: for each SM how many items, and these", o.SMs, l.Items+1, kv.ItemWords))
	b.merges = dsl.Global[dsl.U32](k, BufferMerges, product(o.Tokens*c.KVHeads+1), ro,
		bufDoc("[%d][%d]+1 the first partial state of each row and KV head", o.Tokens, c.KVHeads))
}

func (mk *Kernel) declareRows(k *dsl.Kernel, b *buffers) {
	c, o, l, pad := &mk.Config, &mk.Options, mk.limits(), mk.paddedRows()
	group, qRows := c.Heads/c.KVHeads, c.Heads*c.HeadDim
	fragments := func(name string, n int, what string) dsl.Buf[dsl.BF16] {
		n = (n + pipeline.GroupK - 1) / pipeline.GroupK
		return dsl.Global[dsl.BF16](k, name, product(n, pad, pipeline.GroupK), dsl.Align(16), bufDoc("[%d][%d][%d] %s, 32 elements of every row after another", n, pad, pipeline.GroupK, what))
	}
	b.x = dsl.Global[dsl.F32](k, "x", product(o.Tokens, c.Hidden), dsl.Align(16), bufDoc("[%d][%d] residual vectors", o.Tokens, c.Hidden))
	b.input = fragments("input", c.Hidden, "residual vectors times the next norm's gains")
	b.squares = dsl.Global[dsl.F32](k, "squares", product(o.SMs, pad), dsl.Align(16), bufDoc("[%d][%d] each SM's part of the residual vectors' sums of squares", o.SMs, pad))
	b.q = dsl.Global[dsl.BF16](k, "q", product(o.Tokens, qRows), dsl.Align(16), bufDoc("[%d][%d][%d] rotated, scaled queries", o.Tokens, c.Heads, c.HeadDim))
	b.part = dsl.Global[dsl.F32](k, "part", product(l.Partials, group, c.HeadDim), dsl.Align(16), bufDoc("[%d][%d][%d] partial attention outputs", l.Partials, group, c.HeadDim))
	b.lse = dsl.Global[dsl.F32](k, "lse", product(l.Partials, group), bufDoc("[%d][%d] their log-sum-exp, base 2", l.Partials, group))
	b.attn = fragments("attn", qRows, "attention outputs")
	b.act = fragments("act", c.Intermediate, "silu(gate)·up")
	b.logits = dsl.Global[dsl.F32](k, "logits", product(o.Tokens, c.Vocab), dsl.Align(16), bufDoc("[%d][%d] out", o.Tokens, c.Vocab))
	b.best = dsl.Global[dsl.F32](k, "best", product(o.SMs, o.Tokens), bufDoc("[%d][%d] each SM's largest logits", o.SMs, o.Tokens))
	b.bestIndex = dsl.Global[dsl.U32](k, "best_index", product(o.SMs, o.Tokens), bufDoc("[%d][%d] and their rows", o.SMs, o.Tokens))
}
