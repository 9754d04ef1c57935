package tasks_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// promptAttention is attention of n consecutive tokens behind pos cached ones.
type promptAttention struct {
	heads, kvHeads, d, page int
	pos, n                  int
	groups, cluster, sms    int
	block                   int // tokens of a block
	stages                  int // of the ring, 3 at least
}

func TestPrefillAttentionIsCausalOverPages(t *testing.T) {
	for _, c := range []promptAttention{
		{heads: 6, kvHeads: 2, d: 32, page: 16, pos: 0, n: 21, groups: 1, cluster: 1, sms: 2, block: 16},  // tiny's
		{heads: 4, kvHeads: 1, d: 64, page: 4, pos: 37, n: 16, groups: 1, cluster: 1, sms: 2, block: 32},  // pages smaller than a copy
		{heads: 8, kvHeads: 1, d: 128, page: 64, pos: 70, n: 9, groups: 2, cluster: 1, sms: 1, block: 32}, // 8B's heads
		{heads: 6, kvHeads: 3, d: 16, page: 1, pos: 5, n: 40, groups: 1, cluster: 1, sms: 2, block: 16},
		{heads: 14, kvHeads: 2, d: 80, page: 32, pos: 0, n: 1, groups: 1, cluster: 2, sms: 2, block: 64},
		{heads: 2, kvHeads: 2, d: 48, page: 8, pos: 100, n: 90, groups: 1, cluster: 2, sms: 4, block: 128},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			r, q, kv, out := c.build(t)
			got := bf16s(r.run()["to"])
			for token := range out.T {
				for head := range c.heads {
					want, size := make([]float64, c.d), make([]float64, c.d)
					if token < c.n {
						want, size = promptHead(c, wide(q[(token*c.heads+head)*c.d:][:c.d]), kv, head, c.pos+token)
					}
					for i := range c.d {
						have := fromBF16(got[out.Index(token, head*c.d+i)])
						require.InDelta(t, want[i], have, size[i]*0x1p-6, "token %d head %d dimension %d", token, head, i)
					}
				}
			}
		})
	}
}

// build makes the kernel of attention alone, its queries, and the keys and values of all tokens.
func (c promptAttention) build(t *testing.T) (r *rig, q []uint16, kv [2][][]float64, out tasks.PrefillActivations) {
	t.Helper()
	consumers := 4 * c.groups
	k := dsl.New("rig", dsl.Options{Warps: consumers + 4, Grid: c.sms, Cluster: c.cluster, SharedLimit: 232448})
	r = &rig{t: t, k: k, data: map[string][]byte{}, params: map[string]uint64{}, e: tasks.NewEnv(k, c.sms, consumers, dsl.Shared[dsl.F32](k, "scratch", consumers))}
	padded := 64 * c.groups * c.cluster
	rng := newRand(uint64(c.d + c.n))
	layout := tasks.KVLayout{Layers: 2, Heads: c.kvHeads, D: c.d, Page: c.page}
	all := c.pos + c.n
	pages := (all+c.page-1)/c.page + 2
	table := rng.Perm(pages)
	cache := make([]uint16, layout.Layers*pages*layout.PageBytes()/2)
	for i := range cache {
		cache[i] = 0x7fc1 // what no token has written is NaN
	}
	for v := range 2 {
		for token := range all {
			row := normals(rng, c.kvHeads*c.d, 1)
			for i, x := range row {
				cache[layout.Index(pages, 1, table[token/c.page], i/c.d, token%c.page, v, i%c.d)] = x
			}
			kv[v] = append(kv[v], wide(row))
		}
	}
	words := make([]uint32, pages)
	for i, p := range table {
		words[i] = uint32(p)
	}
	q = normals(rng, c.n*c.heads*c.d, 1)
	out = tasks.PrefillActivations{K: c.heads * c.d, T: (c.n + padded - 1) / padded * padded}
	stage := (c.block*max(2*c.d, 128) + 1023) / 1024 * 1024
	a := &tasks.PrefillAttention{Heads: c.heads, KV: layout, Q: in[dsl.BF16](r, "q", bf16Bytes(q), len(q)), Out: out,
		To: inOut[dsl.BF16](r, "to", make([]byte, 2*out.Len()), out.Len()), Groups: c.groups, Cluster: c.cluster, Stage: stage}
	s := tasks.Step{Pos: r.scalar("pos", uint32(c.pos)), Pages: r.scalar("pages", uint32(pages)), Layer: r.k.U32(1),
		Table: in[dsl.U32](r, "table", u32Bytes(words...), 0), Cache: in[dsl.B128](r, "kv", bf16Bytes(cache), 0)}
	n := r.scalar("n", uint32(c.n))
	a.Map(k, s.Cache)
	ring := pipeline.NewTileRing(k, pipeline.TileStages{Stages: max(c.stages, 3), Bytes: stage, Warps: consumers, Cluster: c.cluster}, nil)
	k.If(r.e.Tid.EqC(0), ring.Init)
	k.ClusterBarrier()
	k.Roles(dsl.Role{Name: "consumers", First: 0, End: consumers, Body: func() {
		if c.groups == 2 {
			k.MoreRegisters(232)
		}
		a.Consume(r.e, ring.Consumer(), ring.Data, s, tasks.PrefillSpan{N: n}, padded)
	}}, dsl.Role{Name: "producer", First: consumers, End: consumers + 4, Body: func() {
		if c.groups == 2 {
			k.FewerRegisters(40)
		}
		k.If(r.e.Warp.EqC(consumers), func() { a.Produce(r.e, ring.Producer(), s, tasks.PrefillSpan{N: n}, padded, func() {}) })
	}})
	k.ClusterBarrier()
	return r, q, kv, out
}

// attentionEquivalent says how many mutants of a name break nothing, and why.
var attentionEquivalent = map[string]struct {
	n   int
	why string
}{
	"producer: remove syncwarp":                                    {6, "a warp of the executor goes in step; of a GPU's a lane could stay behind and miss a phase"},
	"producer: earlier syncwarp":                                   {6, "the same"},
	"producer: later syncwarp":                                     {4, "the same"},
	"producer: earlier wait.mbar @tiles_empty":                     {3, "it goes in front of a load of the page table"},
	"producer: later wait.mbar @tiles_empty":                       {1, "bytes are expected before the stage is free, the copies come behind"},
	"producer: later mbar.expect @tiles_full":                      {3, "a copy may complete before its bytes are expected while the phase lacks its arrival"},
	"consumers: remove fence.proxy.async":                          {1, "the step ends behind the first block of keys, in which nothing is cleared"},
	"consumers: earlier fence.proxy.async":                         {1, "the same"},
	"consumers: remove bar.sync":                                   {1, "the same"},
	"consumers: count bar.sync: one warp more":                     {1, "the same"},
	"consumers: count bar.sync: one warp less":                     {1, "the same"},
	"consumers: later fence.proxy.async":                           {3, "each warp fences behind the barrier, for what the others have written"},
	"consumers: earlier bar.sync":                                  {3, "the same"},
	"consumers: earlier wait.mbar @tiles_full":                     {1, "it goes in front of wgmma.commit"},
	"consumers: later wgmma.commit":                                {1, "the same"},
	"consumers: later wait.mbar @tiles_full":                       {2, "it goes behind wgmma.fence, or arithmetic"},
	"consumers: later mbar.arrive.at @tiles_empty":                 {1, "it goes behind arithmetic"},
	"consumers: count mbar.arrive.at @tiles_empty: at another CTA": {4, "each of two lanes arrives at the other's CTA instead of its own"},
	"consumers: remove wgmma.fence":                                {1, "the one before values: nothing has touched registers since that before keys, but ptxas wants one behind a wait"},
	"consumers: later wgmma.fence":                                 {1, "the same"},
	"consumers: earlier wgmma.fence":                               {4, "it goes in front of a wait for memory, or of what clears the stage"},
	"consumers: earlier wgmma.wait":                                {1, "it goes in front of arithmetic"},
}

// Every synchronisation that is left out, weakened, miscounted or moved is reported, of several blocks.
func TestMutantsOfPrefillAttentionAreReported(t *testing.T) {
	deep.Only(t)
	r, _, _, _ := promptAttention{heads: 4, kvHeads: 2, d: 32, page: 8, pos: 13, n: 60, groups: 1, cluster: 2, sms: 2, block: 16}.build(t)
	kernel, err := r.k.Finish()
	require.NoError(t, err)
	left := map[string]int{}
	for _, mu := range mutate.List(kernel) {
		b, err := mutate.Apply(kernel, mu)
		require.NoError(t, err)
		program, err := interp.Load(b)
		require.NoError(t, err)
		found := false
		for seed := uint64(1); seed < 13 && !found; seed++ {
			_, err := r.once(program, seed)
			var f *interp.Fault
			if found = errors.As(err, &f); !found {
				require.NoError(t, err)
			}
		}
		if !found {
			left[mu.Role+": "+mu.Name]++
		}
	}
	for name, n := range left {
		assert.Equal(t, attentionEquivalent[name].n, n, "%d mutants %q are not reported", n, name)
	}
	for name, want := range attentionEquivalent {
		assert.Equal(t, want.n, left[name], "mutants %q are reported, but were thought to be equivalent: %s", name, want.why)
	}
}

// 8B's attention, with what an H100 has room for.
func TestPrefillAttentionCompilesWithoutSpillsOrSerialisedProducts(t *testing.T) {
	deep.Only(t)
	r, _, _, _ := promptAttention{heads: 32, kvHeads: 8, d: 128, page: 16, n: 1, groups: 2, cluster: 2, sms: 132, block: 128, stages: 4}.build(t)
	kernel, err := r.k.Finish()
	require.NoError(t, err)
	compilesWhole(t, kernel)
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
		most = max(most, weights[j])
	}
	for j, s := range weights {
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
