package attend

import (
	"fmt"
	"strings"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/prefill"
)

// PrefillConfig is what a kernel of the attention of prompts is built for. Zero fields from SMs on choose: what a
// megakernel's prefill kernel has.
type PrefillConfig struct {
	Heads, KVHeads, HeadDim int // query heads, a multiple of KVHeads; at most attention.MaxPrefillHead dimensions
	Page                    int // tokens a page, a power of two
	SMs, Groups, Cluster    int
	Shared                  int // bytes
	Variant                 PrefillVariant
}

// PrefillVariant is what attention has beside being causal. At most one of SoftCap and ALiBi.
type PrefillVariant struct {
	Window  int     // tokens that a query sees, its own among them; 0: all
	SoftCap float64 // logits become SoftCap·tanh(logit/SoftCap); 0: they do not
	ALiBi   bool
}

// String is as --attention spells it, "" of plain causal attention.
func (v PrefillVariant) String() string {
	var words []string
	if v.Window > 0 {
		words = append(words, fmt.Sprintf("window=%d", v.Window))
	}
	if v.SoftCap > 0 {
		words = append(words, fmt.Sprintf("softcap=%v", v.SoftCap))
	}
	if v.ALiBi {
		words = append(words, "alibi")
	}
	return strings.Join(words, "+")
}

// Prefill is a kernel of nothing but the causal attention of prompts, made of the parts of a prefill kernel: sequences
// of equal length, none of whose tokens is cached before. Without a window it copies small pages into blocks, which
// prefill kernels do not do yet: they gather them.
type Prefill struct {
	Config PrefillConfig // nothing left open
	Stages int           // of the ring
	IR     *ir.Kernel
}

// The kernel's buffers, which the host sizes; BufferOut is of prefill.Activations.
const (
	BufferPrefillQ     = "q"          // in: [sequences][tokens][Heads][HeadDim] bf16, times log2(e)/√HeadDim; tokens: Room
	BufferPrefillTable = "page_table" // in: [sequences][pages of a sequence]
	BufferBlocks       = "blocks"     // of Blocks, where small pages are copied
	BufferBlockParts   = "parts"      // [Blocks][KVHeads] words beside it, zero before launch 1
	BufferSlopes       = "slopes"     // in, with ALiBi: [Heads] float32, attention.ALiBiSlopes
)

// prefillReserve is the shared memory beside the ring.
const prefillReserve = 2560

// prefillBlock is the number of tokens of a block of keys, half of it where queries are in shared memory.
const prefillBlock = 128

// spread is how far a sequence's pieces begin behind those of the one before, of all clusters: as many have long ones
// with every number of sequences, since no two shares of the golden ratio come close to each other.
const spread = 0.618034

// BuildPrefill plans and assembles a kernel.
func BuildPrefill(c PrefillConfig) (*Prefill, error) {
	for _, f := range []struct {
		v   *int
		def int
	}{{&c.SMs, defaultSMs}, {&c.Groups, 2}, {&c.Shared, defaultShared}} {
		if *f.v == 0 {
			*f.v = f.def
		}
	}
	if c.Cluster == 0 {
		c.Cluster = 1
		if c.SMs%2 == 0 && (c.Page >= attention.PrefillPage || c.copies()) {
			c.Cluster = 2
		}
	}
	if c.KVHeads < 1 || c.Groups < 1 || c.Cluster < 1 || c.Groups > 2 || c.Cluster > 2 || c.SMs < 1 ||
		c.SMs%c.Cluster != 0 {
		return nil, fmt.Errorf("attend: %d KV heads, %d warpgroups and clusters of %d in a grid of %d CTAs, "+
			"want at least 1, at most 2, and a multiple", c.KVHeads, c.Groups, c.Cluster, c.SMs)
	}
	p := &Prefill{Config: c}
	block, beside := prefillBlock, attention.PrefillQueryBytes(c.HeadDim, c.Groups)
	if beside > 0 {
		block /= 2
	}
	if c.copies() {
		beside += attention.CopierBytes
	}
	stage := (block*2*c.HeadDim + 1023) / 1024 * 1024
	p.Stages = min(6, (c.Shared-prefillReserve-beside)/stage)
	k := dsl.New("mkgen_prefill_attention", dsl.Options{Warps: 4*c.Groups + 4, Grid: c.SMs, Cluster: c.Cluster,
		SharedLimit: c.Shared, Doc: []string{
			fmt.Sprintf("Causal attention of prompts: %d query and %d KV heads of %d; KV pages of %d tokens.", c.Heads,
				c.KVHeads, c.HeadDim, c.Page)}})
	p.assemble(k, stage)
	var err error
	p.IR, err = k.Finish()
	return p, err
}

// copies reports whether small pages are copied into blocks: with a window most of a sequence is not read.
func (c *PrefillConfig) copies() bool { return c.Page < attention.PrefillPage && c.Variant.Window == 0 }

// Blocks returns the number of blocks that sequences of n tokens are copied to; 0 where they are not copied.
func (p *Prefill) Blocks(sequences, n int) int {
	if !p.Config.copies() {
		return 0
	}
	return sequences * pipeline.CeilDiv(n, attention.BlockTokens)
}

// BlockBytes returns the size of a block, of all KV heads.
func (p *Prefill) BlockBytes() int {
	return attention.BlockTokens * p.Config.KVHeads * p.Layout().TokenBytes()
}

// Layout is that of the cache, of one layer.
func (p *Prefill) Layout() attention.KVLayout {
	return attention.KVLayout{Layers: 1, Heads: p.Config.KVHeads, D: p.Config.HeadDim, Page: p.Config.Page}
}

// Room is the number of rows that a sequence of n tokens has in queries and outputs.
func (p *Prefill) Room(n int) int {
	padded := p.padded()
	return (n + padded - 1) / padded * padded
}

func (p *Prefill) padded() int { return prefill.Tokens(p.Config.Groups) * p.Config.Cluster }

// Scalars are the parameters of a launch over sequences of n tokens, and a cache of the given pages. Launches count
// from 1.
func (p *Prefill) Scalars(launch, sequences, n, pages int) map[string]uint64 {
	page := p.Config.Page
	scalars := map[string]uint64{"sequences": uint64(sequences), "tokens": uint64(n), "room": uint64(p.Room(n)),
		"pages":   uint64(pages),
		"entries": uint64((n + page - 1) / page)}
	if p.Config.copies() {
		scalars["launch"] = uint64(uint32(launch))
	}
	return scalars
}

// vary puts the variant in.
func (p *Prefill) vary(k *dsl.Kernel, att *attention.PrefillAttention) {
	v, heads := p.Config.Variant, p.Config.Heads
	k.Require(v.SoftCap == 0 || !v.ALiBi, "attention with a soft cap and ALiBi, want one")
	if v.Window > 0 {
		att.Window = func(attention.Step) dsl.Val[dsl.U32] { return k.U32(v.Window) }
	}
	switch {
	case v.SoftCap > 0:
		att.Variant = attention.SoftCap(v.SoftCap)
	case v.ALiBi:
		att.Variant = attention.ALiBi(dsl.Global[dsl.F32](k, BufferSlopes, int64(heads), dsl.ReadOnly(),
			dsl.Doc("ALiBi's, of the heads")), attention.ALiBiSlopes(heads))
	}
}

func (p *Prefill) assemble(k *dsl.Kernel, stage int) {
	c, consumers := &p.Config, 4*p.Config.Groups
	e := grid.NewEnv(k, c.SMs, consumers, dsl.Shared[dsl.F32](k, "scratch", consumers))
	scalar := func(name, doc string) dsl.Val[dsl.U32] { return dsl.Scalar[dsl.U32](k, name, doc) }
	sequences, n := scalar("sequences", "prompts"), scalar("tokens", "of each")
	room, entries := scalar("room", "rows of a prompt in queries and outputs"), scalar("entries",
		"of a prompt in the page table")
	s := attention.Step{Pos: k.U32(0), Layer: k.U32(0), Pages: scalar("pages", "of the cache"),
		Table: dsl.Global[dsl.U32](k, BufferPrefillTable, 0, dsl.ReadOnly(), dsl.Doc("pages of the prompts, in order")),
		Cache: dsl.Global[dsl.B128](k, BufferCache, 0, dsl.ReadOnly(), dsl.Align(128), dsl.Doc("the KV cache"))}
	blocks, kv, cache := p.blocks(k, s.Cache, scalar)
	att := &attention.PrefillAttention{Heads: c.Heads, KV: kv, Blocks: blocks,
		Out:    prefill.Activations{K: c.Heads * c.HeadDim},
		Q:      dsl.Global[dsl.BF16](k, BufferPrefillQ, 0, dsl.ReadOnly(), dsl.Align(16), dsl.Doc("queries, scaled")),
		To:     dsl.Global[dsl.BF16](k, BufferOut, 0, dsl.Align(16), dsl.Doc("outputs, as tiles of 8 tokens")),
		Groups: c.Groups, Cluster: c.Cluster, Stage: stage, Producers: kv.Producers()}
	k.Assert(sequences.GeC(1).And(n.GeC(1)), "a launch has at least one prompt of at least one token")
	if n := att.QueryBytes(); n > 0 {
		att.Queries = dsl.Shared[dsl.B128](k, "queries", n/16, dsl.Align(1024))
	}
	p.vary(k, att)
	att.Map(k, cache)
	ring := pipeline.NewTileRing(k, pipeline.TileStages{Stages: p.Stages, Bytes: stage, Warps: consumers,
		Cluster: c.Cluster, Producers: att.Producers}, nil)
	turns := att.Turns(k, nil)
	k.If(e.Tid.EqC(0), func() {
		turns.Init()
		ring.Init()
	})
	k.ClusterBarrier()
	each := func(body func(e *grid.Env, span prefill.Span)) {
		clusters := c.SMs / c.Cluster
		by := max(1, int(spread*float64(clusters)))
		k.For(k.U32(0), sequences, func(q dsl.Val[dsl.U32]) {
			if blocks != nil {
				each := dsl.Optional(n.AddC(attention.BlockTokens - 1).DivC(attention.BlockTokens))
				blocks.First = func(prefill.Span) dsl.Val[dsl.U32] { return q.Mul(each) }
			}
			turned := *e // the same CTAs, dealt out from another one on
			turned.CTA = e.CTA.Add(q.MulC(by).RemC(clusters).MulC(c.Cluster)).RemC(c.SMs)
			body(&turned, prefill.Span{N: n, Begin: &prefill.Begin{Row: dsl.Optional(q.Mul(room)),
				Entry: dsl.Optional(q.Mul(entries))}})
		}, dsl.Unroll(1))
	}
	k.Roles(dsl.Role{Name: "consumers", First: 0, End: consumers, Body: func() {
		if c.Groups == 2 {
			k.MoreRegisters(232)
		}
		cons := ring.Consumer()
		cons.Turn = turns.Start()
		each(func(e *grid.Env, span prefill.Span) { att.Consume(e, cons, ring.Data, s, span, p.padded()) })
	}}, dsl.Role{Name: "producer", First: consumers, End: consumers + 4, Body: func() {
		if c.Groups == 2 {
			k.FewerRegisters(40)
		}
		e.Producing(att.Producers, func() {
			prod := ring.Producer()
			each(func(e *grid.Env, span prefill.Span) { att.Produce(e, prod, s, span, p.padded(), func() {}) })
		})
		if blocks != nil {
			k.If(e.Warp.GeC(consumers+1), func() {
				each(func(e *grid.Env, span prefill.Span) { blocks.Copy(e, s, span) })
			})
		}
	}})
	k.ClusterBarrier()
}

// blocks declares what small pages are copied into, nil where they are not, and returns what attention reads: a layout
// and a buffer.
func (p *Prefill) blocks(k *dsl.Kernel, cache dsl.Buf[dsl.B128],
	scalar func(name, doc string) dsl.Val[dsl.U32]) (*attention.PrefillBlocks, attention.KVLayout, dsl.Buf[dsl.B128]) {
	if !p.Config.copies() {
		return nil, p.Layout(), cache
	}
	launch := scalar("launch", "number of the launch, from 1")
	b := &attention.PrefillBlocks{KV: p.Layout(),
		To: dsl.Global[dsl.B128](k, BufferBlocks, 0, dsl.Align(128), dsl.Doc("copies of keys and values, in blocks")),
		Ready: dsl.Global[dsl.U32](k, BufferBlockParts, 0, dsl.Doc("parts of each block that have been copied, of all "+
			"launches")),
		Slots: dsl.Shared[dsl.B128](k, "slots", attention.CopierBytes/16, dsl.Doc("copies under way")),
		Times: func(attention.Step) dsl.Val[dsl.U32] { return launch }}
	return b, b.Layout(), b.To
}
