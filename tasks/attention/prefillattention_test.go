package attention_test

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/prefill"
	"github.com/stretchr/testify/require"
)

// promptAttention is attention of n consecutive tokens behind pos cached ones.
type promptAttention struct {
	heads, kvHeads, d, page int
	pos, n                  int
	groups, cluster, sms    int
	block                   int     // tokens of a block
	stages                  int     // of the ring, 3 at least
	loud                    float64 // standard deviation of an element of a query, 1 where it is 0
	window, sinks           int     // tokens that a query sees, and of the sequence's first; window 0: all
	cap                     float64
	alibi                   bool    // behind the cap
	copies                  bool    // small pages are copied into blocks
	split                   int     // blocks of a part of keys and values; 0: they are not split
	sigmoid                 float64 // the bias of attention without softmax, unless it is 0
}

// variant is what a query's scores go through.
func (c promptAttention) variant(r *rig.Rig) *attention.Variant {
	var all []*attention.Variant
	if c.cap > 0 {
		all = append(all, attention.SoftCap(c.cap))
	}
	if c.alibi {
		slopes := attention.ALiBiSlopes(c.heads)
		all = append(all, attention.ALiBi(rig.In[dsl.F32](r, "slopes", rig.F32Bytes(slopes), c.heads), slopes))
	}
	if c.sigmoid != 0 {
		all = append(all, attention.Sigmoid(c.sigmoid))
	}
	if len(all) < 2 {
		return append(all, nil)[0]
	}
	v, err := attention.Combine(all...)
	require.NoError(r.T, err)
	return v
}

func TestPrefillAttentionIsCausalOverPages(t *testing.T) {
	for _, c := range []promptAttention{
		{heads: 6, kvHeads: 2, d: 32, page: 16, pos: 0, n: 21, groups: 1, cluster: 1, sms: 2, block: 16}, // tiny's
		// pages smaller than a copy
		{heads: 4, kvHeads: 1, d: 64, page: 4, pos: 37, n: 16, groups: 1, cluster: 1, sms: 2, block: 32},
		{heads: 8, kvHeads: 1, d: 128, page: 64, pos: 70, n: 9, groups: 2, cluster: 1, sms: 1, block: 32}, // 8B's heads
		{heads: 6, kvHeads: 3, d: 16, page: 1, pos: 5, n: 40, groups: 1, cluster: 1, sms: 2, block: 16},
		{heads: 14, kvHeads: 2, d: 80, page: 32, pos: 0, n: 1, groups: 1, cluster: 2, sms: 2, block: 64},
		{heads: 2, kvHeads: 2, d: 48, page: 8, pos: 100, n: 90, groups: 1, cluster: 2, sms: 4, block: 128},
		// windows that begin in the first block that is fetched, at its end, behind rows' first blocks, and before the prompt
		{heads: 4, kvHeads: 2, d: 32, page: 16, pos: 75, n: 40, groups: 1, cluster: 1, sms: 2, block: 16, window: 9},
		{heads: 4, kvHeads: 4, d: 32, page: 8, pos: 64, n: 70, groups: 1, cluster: 2, sms: 2, block: 32, window: 1, cap: 2},
		{heads: 6, kvHeads: 3, d: 16, page: 1, pos: 50, n: 33, groups: 2, cluster: 1, sms: 1, block: 16, window: 17},
		{heads: 8, kvHeads: 1, d: 128, page: 64, pos: 3, n: 30, groups: 1, cluster: 1, sms: 2, block: 32, window: 64,
			cap: 0.5},
		// heads whose queries are in shared memory: Gemma's, Falcon 3's, pages that are not permuted, values from the
		// middle of a panel on
		{heads: 4, kvHeads: 2, d: 256, page: 16, pos: 30, n: 70, groups: 2, cluster: 2, sms: 4, block: 64, window: 40,
			cap: 2},
		{heads: 6, kvHeads: 2, d: 256, page: 8, pos: 5, n: 50, groups: 2, cluster: 1, sms: 1, block: 32},
		{heads: 2, kvHeads: 1, d: 256, page: 1, pos: 5, n: 20, groups: 1, cluster: 1, sms: 1, block: 16},
		{heads: 2, kvHeads: 1, d: 144, page: 8, pos: 9, n: 33, groups: 1, cluster: 2, sms: 2, block: 16},
		// sinks that end amid a block, in a window's first block, in a window, and behind the prompt; small pages
		{heads: 4, kvHeads: 2, d: 32, page: 16, pos: 75, n: 40, groups: 1, cluster: 1, sms: 2, block: 16,
			window: 9, sinks: 20},
		{heads: 4, kvHeads: 4, d: 32, page: 8, pos: 64, n: 70, groups: 1, cluster: 2, sms: 2, block: 32, window: 5,
			sinks: 64, alibi: true},
		{heads: 6, kvHeads: 3, d: 16, page: 1, pos: 50, n: 33, groups: 2, cluster: 1, sms: 1, block: 16,
			window: 17, sinks: 3},
		{heads: 4, kvHeads: 2, d: 32, page: 16, pos: 3, n: 30, groups: 1, cluster: 1, sms: 2, block: 16,
			window: 8, sinks: 60},
		// slopes alone, of heads that share a tile, over a block that pads the prompt, over gathered pages
		{heads: 6, kvHeads: 2, d: 32, page: 16, pos: 0, n: 50, groups: 1, cluster: 1, sms: 2, block: 16, alibi: true},
		{heads: 8, kvHeads: 1, d: 128, page: 64, pos: 170, n: 9, groups: 2, cluster: 1, sms: 1, block: 32, alibi: true},
		{heads: 4, kvHeads: 2, d: 64, page: 1, pos: 20, n: 33, groups: 1, cluster: 1, sms: 2, block: 32, window: 9,
			alibi: true},
		// changed scores, in order, and weights that are no softmax's
		{heads: 6, kvHeads: 2, d: 32, page: 16, pos: 9, n: 50, groups: 1, cluster: 1, sms: 2, block: 16, cap: 3, alibi: true},
		{heads: 4, kvHeads: 1, d: 64, page: 8, pos: 30, n: 40, groups: 1, cluster: 2, sms: 2, block: 32, sigmoid: -2},
		// caps that no score comes near, and that some do; maxima that grow by far more than 2⁸ from block to block; slopes
		// alone, steep ones among them
		{heads: 6, kvHeads: 2, d: 32, page: 16, pos: 9, n: 50, groups: 1, cluster: 1, sms: 2, block: 16, cap: 60},
		{heads: 4, kvHeads: 2, d: 32, page: 16, pos: 70, n: 40, groups: 1, cluster: 2, sms: 2, block: 16, cap: 16},
		{heads: 4, kvHeads: 2, d: 32, page: 16, pos: 70, n: 40, groups: 1, cluster: 1, sms: 2, block: 16, loud: 16},
		// Gemma 2's cap: all scores near 0, over gathered pages, and scores at the cap, of weights of up to 2⁷²
		{heads: 8, kvHeads: 1, d: 128, page: 64, pos: 70, n: 9, groups: 2, cluster: 1, sms: 1, block: 32, cap: 50},
		{heads: 6, kvHeads: 3, d: 16, page: 1, pos: 50, n: 33, groups: 2, cluster: 1, sms: 1, block: 16, window: 17, cap: 50},
		{heads: 4, kvHeads: 2, d: 32, page: 16, pos: 70, n: 40, groups: 1, cluster: 1, sms: 2, block: 16, loud: 16, cap: 50},
		{heads: 4, kvHeads: 2, d: 32, page: 16, pos: 301, n: 40, groups: 1, cluster: 1, sms: 2, block: 64, alibi: true},
		{heads: 16, kvHeads: 2, d: 64, page: 8, pos: 300, n: 9, groups: 1, cluster: 1, sms: 1, block: 128, alibi: true},
		{heads: 2, kvHeads: 1, d: 256, page: 8, pos: 9, n: 33, groups: 1, cluster: 2, sms: 2, block: 16, sigmoid: -3,
			alibi: true, window: 20, sinks: 2},
		// small pages that are copied into blocks
		{heads: 2, kvHeads: 2, d: 64, page: 1, pos: 0, n: 390, groups: 1, cluster: 1, sms: 2, block: 128, copies: true},
		{heads: 4, kvHeads: 2, d: 128, page: 1, pos: 70, n: 190, groups: 1, cluster: 2, sms: 4, block: 128, copies: true},
		{heads: 6, kvHeads: 3, d: 16, page: 2, pos: 5, n: 140, groups: 1, cluster: 1, sms: 2, block: 16, copies: true},
		{heads: 4, kvHeads: 1, d: 80, page: 4, pos: 37, n: 116, groups: 1, cluster: 2, sms: 2, block: 32, copies: true},
		{heads: 2, kvHeads: 1, d: 256, page: 1, pos: 5, n: 20, groups: 1, cluster: 1, sms: 1, block: 64, copies: true},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			c.holds(t)
		})
	}
}

// holds compares outputs with float64.
func (c promptAttention) holds(t *testing.T) {
	t.Helper()
	r, q, kv, out := c.build(t)
	got := rig.BF16s(r.Run()["to"])
	for token := range out.T {
		for head := range c.heads {
			want, size := make([]float64, c.d), make([]float64, c.d)
			if token < c.n {
				want, size = promptHead(c, rig.Wide(q[(token*c.heads+head)*c.d:][:c.d]), kv, head, c.pos+token)
			}
			for i := range c.d {
				have := rig.FromBF16(got[out.Index(token, head*c.d+i)])
				require.InDelta(t, want[i], have, size[i]*0x1p-6, "token %d head %d dimension %d", token, head, i)
			}
		}
	}
}

// build makes the kernel of attention alone, its queries, and the keys and values of all tokens.
func (c promptAttention) build(t *testing.T) (r *rig.Rig, q []half.BF16, kv [2][][]float64, out prefill.Activations) {
	t.Helper()
	consumers := 4 * c.groups
	k := dsl.New("rig", dsl.Options{Warps: consumers + 4, Grid: c.sms, Cluster: c.cluster, SharedLimit: 232448})
	r = &rig.Rig{T: t, K: k, Data: map[string][]byte{}, Params: map[string]uint64{},
		Env: grid.NewEnv(k, c.sms, consumers, dsl.Shared[dsl.F32](k, "scratch", consumers))}
	padded := 64 * c.groups * c.cluster
	rng := rig.Rand(uint64(c.d + c.n))
	layout := attention.KVLayout{Layers: 2, Heads: c.kvHeads, D: c.d, Page: c.page}
	all := c.pos + c.n
	pages := (all+c.page-1)/c.page + 2
	table := rng.Perm(pages)
	cache := make([]half.BF16, layout.Layers*pages*layout.PageBytes()/2)
	for i := range cache {
		cache[i] = 0x7fc1 // what no token has written is NaN
	}
	for v := range 2 {
		for token := range all {
			row := rig.Normals(rng, c.kvHeads*c.d, 1)
			for i, x := range row {
				cache[layout.Index(pages, 1, table[token/c.page], i/c.d, token%c.page, v, i%c.d)] = x
			}
			kv[v] = append(kv[v], rig.Wide(row))
		}
	}
	words := make([]uint32, pages)
	for i, p := range table {
		words[i] = uint32(p)
	}
	q = rig.Normals(rng, c.n*c.heads*c.d, cmp.Or(c.loud, 1))
	out = prefill.Activations{K: c.heads * c.d, T: (c.n + padded - 1) / padded * padded}
	stage := (c.block*max(2*c.d, 128) + 1023) / 1024 * 1024
	blocks, reads := c.blocks(r, layout)
	a := &attention.PrefillAttention{Heads: c.heads, KV: reads, Blocks: blocks,
		Q: rig.In[dsl.BF16](r, "q", rig.BF16Bytes(q), len(q)), Out: out,
		To:     rig.InOut[dsl.BF16](r, "to", make([]byte, 2*out.Len()), out.Len()),
		Groups: c.groups, Cluster: c.cluster, Stage: stage, Producers: reads.Producers()}
	s := attention.Step{Pos: r.Scalar("pos", uint32(c.pos)), Pages: r.Scalar("pages", uint32(pages)), Layer: r.K.U32(1),
		Table: rig.In[dsl.U32](r, "table", rig.U32Bytes(words...), 0),
		Cache: rig.In[dsl.B128](r, "kv", rig.BF16Bytes(cache), 0)}
	n := r.Scalar("n", uint32(c.n))
	merge := c.parts(r, a, s, prefill.Span{N: n}, padded)
	if n := a.QueryBytes(); n > 0 {
		a.Queries = dsl.Shared[dsl.B128](k, "queries", n/16, dsl.Align(1024))
	}
	if blocks != nil {
		a.Map(k, blocks.To)
	} else {
		a.Map(k, s.Cache)
	}
	a.Variant = c.variant(r)
	if c.window > 0 {
		a.Window = func(attention.Step) dsl.Val[dsl.U32] { return k.U32(c.window) }
	}
	if c.sinks > 0 {
		a.Sinks = func(attention.Step) dsl.Val[dsl.U32] { return k.U32(c.sinks) }
	}
	ring := pipeline.NewTileRing(k, pipeline.TileStages{Stages: max(c.stages, 3), Bytes: stage, Warps: consumers,
		Cluster: c.cluster, Producers: reads.Producers()}, nil)
	turns := a.Turns(k, nil)
	k.If(r.Env.Tid.EqC(0), func() {
		turns.Init()
		ring.Init()
	})
	k.ClusterBarrier()
	k.Roles(dsl.Role{Name: "consumers", First: 0, End: consumers, Body: func() {
		if c.groups == 2 {
			k.MoreRegisters(232)
		}
		cons := ring.Consumer()
		cons.Turn = turns.Start()
		a.Consume(r.Env, cons, ring.Data, s, prefill.Span{N: n}, padded)
		merge()
	}}, dsl.Role{Name: "producer", First: consumers, End: consumers + 4, Body: func() {
		if c.groups == 2 {
			k.FewerRegisters(40)
		}
		r.Env.Producing(a.Producers, func() {
			a.Produce(r.Env, ring.Producer(), s, prefill.Span{N: n}, padded,
				func() {})
		})
		if blocks != nil {
			k.If(r.Env.Warp.GeC(consumers+1), func() { blocks.Copy(r.Env, s, prefill.Span{N: n}) })
		}
	}})
	k.ClusterBarrier()
	return r, q, kv, out
}

// attentionExcuses are of the template alone.
var attentionExcuses = mutate.Excuses{
	{Op: "fence.proxy.async.shared", Classes: rig.MutantLater, Role: "consumers", Behind: "bar.sync",
		Why: "each warp fences behind the barrier, for what the others have written", Rule: mutate.Causality},
	{Op: "bar.sync", Classes: rig.MutantEarlier, Role: "consumers", Front: "fence.proxy.async.shared",
		Why: "each warp fences behind the barrier, for what the others have written", Rule: mutate.Causality},
	{Op: "wgmma.commit", Classes: rig.MutantLater, Role: "consumers", Behind: "wait.mbar @tiles_full",
		Why: "no product lies between: the group is the same", Rule: mutate.Causality},
	{Op: "wait.mbar @tiles_full", Classes: rig.MutantEarlier, Role: "consumers", Front: "wgmma.commit",
		Why: "no product lies between: the group is the same", Rule: mutate.Causality},
	{Op: "wait.mbar @tiles_full", Classes: rig.MutantLater, Role: "consumers", Behind: "wgmma.fence",
		Why: "it goes behind wgmma.fence, which orders registers only", Rule: mutate.WGMMAFence},
	{Op: "wgmma.fence", Classes: []mutate.Class{mutate.Remove, mutate.Later}, Role: "consumers",
		Front: "wait.mbar @tiles_full", Behind: "wgmma @tiles", Rule: mutate.WGMMAFence,
		Why: "nothing has touched a register of values' product since the fence in front of keys' product"},
	{Op: "wgmma.fence", Classes: rig.MutantEarlier, Role: "consumers", Front: "wait.mbar @tiles_full | bar.sync",
		Why: "it goes in front of a wait for memory", Rule: mutate.WGMMAFence},
	{Op: "wgmma.wait", Classes: rig.MutantLater, Role: "consumers",
		Front: "mbar.arrive.at @tiles_empty", Behind: "wgmma.wait", Rule: mutate.Causality,
		Why: "it goes, with the branch that it stands in, behind the other wait"},
	{Op: "wgmma.wait", Classes: rig.MutantEarlier, Role: "consumers", Front: "wgmma.wait",
		Behind: "mbar.arrive.at @tiles_empty", Why: "it goes in front of a branch: earlier than it must",
		Rule: mutate.Causality},
	{Op: "mbar.arrive.at @tiles_empty", Classes: []mutate.Class{mutate.Count}, Role: "consumers", Front: "wgmma.wait",
		Why: "each of two lanes arrives at the other's CTA instead of its own", Rule: mutate.Phases},
	{Op: "mbar.arrive.at @tiles_empty", Classes: rig.MutantLater, Role: "consumers", Behind: "wgmma.wait",
		Why: "keys are released behind arithmetic and a wait: later than they could", Rule: mutate.Causality},
	{Op: "wait.mbar @tiles_empty", Classes: rig.MutantEarlier, Role: "producer", Front: "ld @table",
		Why: "it goes in front of a load of what no thread of a launch writes", Rule: mutate.Conflict},
	{Op: "mbar.expect @tiles_full", Classes: rig.MutantLater, Role: "producer", Behind: "syncwarp",
		Why: "a copy may complete before its bytes are expected while the phase lacks its arrival", Rule: mutate.Phases},
	{Op: "syncwarp", Classes: mutate.Gone, Role: "producer", Front: "mbar.expect @tiles_full", Behind: "tensor.g2s *",
		Why: "a copy may complete before its bytes are expected while the phase lacks its arrival", Rule: mutate.Phases},
	{Op: "syncwarp", Classes: mutate.Gone, Role: "producer", Front: "tensor.g2s *", Rule: mutate.Elect,
		Why: "the lanes come together behind the next stage's expected bytes; moved, it passes loads of the table"},
}

// promptKernels builds the kernels of cases; run runs a mutant of the i-th on its case's inputs.
func promptKernels(t *testing.T, cases ...promptAttention) (kernels []*ir.Kernel,
	run func(i int, program *interp.Program, seed uint64) error) {
	t.Helper()
	var rigs []*rig.Rig
	for _, c := range cases {
		r, _, _, _ := c.build(t)
		kernel, err := r.K.Finish()
		require.NoError(t, err)
		rigs, kernels = append(rigs, r), append(kernels, kernel)
	}
	return kernels, func(i int, program *interp.Program, seed uint64) error {
		_, err := rigs[i].Once(program, seed)
		return err
	}
}

// Every synchronisation that is left out, weakened, miscounted or moved is reported, of several blocks of tokens or
// of one.
func TestMutantsOfPrefillAttentionAreReported(t *testing.T) {
	deep.Only(t)
	several := promptAttention{heads: 4, kvHeads: 2, d: 32, page: 8, pos: 13, n: 60, groups: 1, cluster: 2, sms: 2,
		block: 16, loud: 16}
	one := several
	one.pos, one.n = 0, 11
	kernels, run := promptKernels(t, several, one)
	left := rig.Survivors(t, kernels, run)
	require.NoError(t, attentionExcuses.Check(left, attentionExcuses))
}

// So is each around queries in shared memory, of several tiles a CTA.
func TestMutantsOfQueriesInSharedMemoryAreReported(t *testing.T) {
	deep.Only(t)
	kernels, run := promptKernels(t, promptAttention{heads: 2, kvHeads: 2, d: 144, page: 8, pos: 3, n: 90, groups: 1,
		cluster: 1, sms: 1, block: 16})
	left := rig.SurvivorsOf(t, "prefillqueries.go", kernels, run)
	excuses := append(mutate.Excuses{
		{Op: "bar.sync", Classes: []mutate.Class{mutate.Remove, mutate.Later}, Role: "consumers", Behind: "ld @q",
			Rule: mutate.Causality, Why: "a product of values has ended since, which each of the four warps came to behind " +
				"its wait for the last product of queries"},
		{Op: "bar.sync", Classes: rig.MutantLater, Role: "consumers", Front: "fence.proxy.async.shared",
			Behind: "wait.mbar @tiles_full", Rule: mutate.Causality, Why: "it is still in front of the product"},
	}, attentionExcuses...)
	require.NoError(t, excuses.Check(left, excuses[:2]))
}

// So is each of the warps that gather small pages, of more stages than they keep to themselves and of fewer.
func TestMutantsOfGatheredPagesAreReported(t *testing.T) {
	deep.Only(t)
	several := promptAttention{heads: 2, kvHeads: 2, d: 32, page: 2, pos: 38, n: 10, groups: 1, cluster: 1, sms: 1,
		block: 16, stages: 4}
	one := several
	one.pos, one.n = 0, 11
	kernels, run := promptKernels(t, several, one)
	left := rig.SurvivorsWhere(t, func(mu mutate.Mutation) bool {
		at := mu.Pos.String()
		return strings.Contains(at, "prefillgather.go") ||
			strings.HasPrefix(at, "pipeline/tilering.go") && strings.Contains(mu.Name, "fence.proxy")
	}, kernels, run)
	require.NoError(t, gatherExcuses.Check(left, gatherExcuses))
}

var gatherExcuses = mutate.Excuses{
	{Op: "wait.mbar @tiles_empty", Classes: rig.MutantEarlier, Role: "producer", Front: "ld @table",
		Why: "it goes in front of a load of what no thread of a launch writes", Rule: mutate.Conflict},
	{Op: "fence.proxy.async.shared", Classes: rig.MutantLater, Role: "consumers", Front: "wait.mbar @tiles_full",
		Behind: "st @tiles | wgmma.fence", Why: "it is still in front of the product", Rule: mutate.Causality},
	{Op: "mbar.arrive @tiles_full", Classes: rig.MutantLater, Role: "producer", Behind: "mbar.arrive @tiles_full",
		Why: "both stages are copied: it does not matter which is announced first", Rule: mutate.Causality},
	{Op: "mbar.arrive @tiles_full", Classes: rig.MutantEarlier, Role: "producer", Front: "mbar.arrive @tiles_full",
		Why: "both stages are copied: it does not matter which is announced first", Rule: mutate.Causality},
}

// 8B's attention, and Gemma 2's of 9B, with what an H100 has room for.
func TestPrefillAttentionCompilesWithoutSpillsOrSerialisedProducts(t *testing.T) {
	deep.Only(t)
	for _, c := range []promptAttention{
		{heads: 32, kvHeads: 8, d: 128, page: 16, n: 1, groups: 2, cluster: 2, sms: 132, block: 128, stages: 4},
		{heads: 16, kvHeads: 8, d: 256, page: 16, n: 1, groups: 2, cluster: 2, sms: 132, block: 64, stages: 4, window: 4096,
			cap: 50},
	} {
		r, _, _, _ := c.build(t)
		kernel, err := r.K.Finish()
		require.NoError(t, err)
		rig.CompilesWhole(t, kernel)
	}
}

// promptHead is a head's attention in float64, of a query scaled as the kernel's, and the sum of the magnitudes.
func promptHead(c promptAttention, q []float64, kv [2][][]float64, head, pos int) (out, size []float64) {
	first := head / (c.heads / c.kvHeads) * c.d
	out, size = make([]float64, c.d), make([]float64, c.d)
	total, weights, most := 0.0, make([]float64, pos+1), math.Inf(-1)
	for j := range weights {
		for i := range q {
			weights[j] += q[i] * kv[0][j][first+i]
		}
		if limit := c.cap * math.Log2E; limit > 0 {
			weights[j] = limit * math.Tanh(weights[j]/limit)
		}
		if c.alibi {
			weights[j] += math.Log2E * float64(attention.ALiBiSlopes(c.heads)[head]) * float64(j-pos)
		}
		if c.window > 0 && j+c.window <= pos && j >= c.sinks {
			weights[j] = math.Inf(-1)
		}
		most = max(most, weights[j])
	}
	for j, s := range weights {
		if c.sigmoid != 0 {
			weights[j], total = 1/(1+math.Exp2(-s-c.sigmoid*math.Log2E)), 1
			continue
		}
		weights[j] = math.Exp2(s - most)
		total += weights[j]
	}
	for j, w := range weights {
		for i := range q {
			out[i] += w / total * kv[1][j][first+i]
			size[i] += w / total * math.Abs(kv[1][j][first+i])
		}
	}
	return out, size
}
