package attend

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
)

// Kernel is an attention-only kernel.
type Kernel struct {
	Config Config // nothing left open
	IR     *ir.Kernel
	Plan   *pipeline.Plan

	Traced []pipeline.TraceSite // what spans of a trace are of

	variants []*attention.Variant // the classes of layers
	pattern  []int                // the class of layers in turn
}

// The kernel's buffers, beside those of its variants. All but Cache (which the host
// sizes: [layers][pages] pages), Entries and Positions have a fixed length; Epoch
// and Barrier begin as the same number.
const (
	BufferQ         = "q"            // in: [Rows][Heads][HeadDim] bf16, times log2(e)/√HeadDim
	BufferOut       = "out"          // out: [Rows][Heads][HeadDim] bf16, the last layer's
	BufferCache     = "kv"           // in
	BufferScales    = "kv_scales"    // in: [Layers][KVHeads][K, V] f32; of an e4m3 cache only
	BufferRows      = "rows"         // in: kv.Plan.Rows
	BufferEntries   = "kv_indices"   // in: kv.Plan.Entries
	BufferPositions = "kv_positions" // in: kv.Plan.Positions; with Selection only
	BufferWork      = "attn_plan"    // in: kv.Plan.EncodeWork
	BufferMerges    = "attn_merge"   // in: kv.Plan.EncodeMerge
	// 0 before the first launch, and before 2³¹ arrivals at the barrier have gone by since
	BufferStates = "states"
)

// Scalars are the parameters of a launch over a cache of n pages: steps times
// all layers. A step's plan is that of step 0 of a launch; nothing grows.
func (k *Kernel) Scalars(pages, steps int) map[string]uint64 {
	return map[string]uint64{"pages": uint64(pages), "steps": uint64(steps)}
}

// Limits are what a plan must fit into, for a cache of n pages (0: unchecked).
func (k *Kernel) Limits(pages int) kv.Limits {
	c := &k.Config
	return kv.Limits{CTAs: c.SMs, KVHeads: c.KVHeads, Group: c.Heads / c.KVHeads, Rows: c.Rows, PageSize: c.Page,
		ChunkTokens: k.chunkTokens(), ItemsPerCTA: c.ItemsPerCTA, Partials: c.Partials, Pages: pages, Selection: c.Selection}
}

// Classes are the classes of layers for the planner.
func (k *Kernel) Classes() []kv.Class {
	var list []kv.Class
	for _, v := range k.variants {
		c := kv.Class{Select: k.Config.Selection}
		if v != nil {
			c.Window, c.Sinks = v.Window, v.Sinks
		}
		list = append(list, c)
	}
	return list
}

// chunkTokens is the largest power of two of tokens a stage holds.
func (k *Kernel) chunkTokens() int {
	n := pipeline.KVTokenMultiple
	for 2*n <= k.Plan.KVTokensPerStage {
		n *= 2
	}
	return n
}

// Build plans and assembles a kernel.
func Build(c Config) (*Kernel, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	k := dsl.New("mkgen_attention", dsl.Options{Warps: c.Consumers + 1, Grid: c.SMs, SharedLimit: c.Shared, Doc: []string{
		fmt.Sprintf("Attention of %d query and %d KV heads of %d, %d layers, up to %d query rows; KV pages of %d tokens in %s.", c.Heads, c.KVHeads, c.HeadDim, c.Layers, c.Rows, c.Page, c.KV)}})
	out := &Kernel{Config: c, variants: []*attention.Variant{nil}, pattern: []int{0}}
	if c.Variants != nil {
		out.variants, out.pattern = classes(c.Variants(k))
	}
	if len(out.pattern) == 0 {
		return nil, errors.New("attend: no variants, want one at least; nil is plain attention")
	}
	for _, v := range out.variants {
		if c.Selection && v != nil && v.Window > 0 {
			return nil, fmt.Errorf("attend: variant %q has a window; with Selection want none", v.Name)
		}
	}
	a := newAssembly(out, k)
	if out.Plan, err = c.plan(a.regions()); err != nil {
		return nil, err
	}
	a.assemble()
	if out.IR, err = k.Finish(); err != nil {
		return nil, err
	}
	return out, nil
}

// classes makes equal variants one class.
func classes(variants []*attention.Variant) (distinct []*attention.Variant, pattern []int) {
	for _, v := range variants {
		i := slices.Index(distinct, v)
		if i < 0 {
			i, distinct = len(distinct), append(distinct, v)
		}
		pattern = append(pattern, i)
	}
	return distinct, pattern
}
