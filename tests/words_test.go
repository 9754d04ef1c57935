package tests

import (
	"fmt"
	"testing"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/stretchr/testify/require"
)

// However queries reach attention, wherever partial states meet and whichever vectors are handed on in packets, the
// logits are the same bits: those of all kernels whose residual vector is, and those of all whose is not.
func TestSyncsGiveTheSameBits(t *testing.T) {
	deep.Only(t)
	g, c := readGolden(t, "tiny_hf.json")
	tokens := g.Tokens[:12]
	for _, kv := range attention.KVTypes() {
		for _, splits := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s, %d splits", kv, splits), func(t *testing.T) {
				t.Parallel()
				o := megakernel.Options{SMs: 3, Page: 4, Splits: splits, StageBytes: 2048, KV: kv}
				run := func(q megakernel.Sync, m megakernel.Merging, vectors string, seed uint64) trace {
					o.Queries, o.Merge, o.Vectors = q, m, vectors
					mk, err := megakernel.Build(c, o)
					require.NoError(t, err)
					return decode(t, mk, g.Seed, tokens, seed)
				}
				want := map[bool]trace{} // by whether residual vectors are rounded to 24 bits
				seed := uint64(1)
				for _, q := range megakernel.Syncs() {
					for _, m := range megakernel.Mergings() {
						for _, vectors := range megakernel.VectorWays() {
							if vectors == megakernel.VectorsAll && (q == megakernel.SyncBarrier || m == megakernel.MergePhase) {
								continue
							}
							got, rounded := run(q, m, string(vectors), seed), vectors != megakernel.SyncBarrier
							if _, is := want[rounded]; !is {
								want[rounded] = got
							}
							require.Equal(t, want[rounded].next, got.next, "queries %s, merge %s, vectors %s", q, m, vectors)
							require.Equal(t, want[rounded].logits, got.logits, "queries %s, merge %s, vectors %s", q, m, vectors)
							seed++
						}
					}
				}
				require.NotEqual(t, want[false].logits, want[true].logits, "rounded to 24 bits or not")
				require.Equal(t, want[false].next, want[true].next)
			})
		}
	}
}

// The same of attention that differs by layer, some of it without a softmax, whose states are sums.
func TestMergesOfVariantsGiveTheSameBits(t *testing.T) {
	deep.Only(t)
	g, c := readGolden(t, "tiny_hf.json")
	o := megakernel.Options{SMs: 3, Page: 4, Splits: 3, StageBytes: 2048,
		Attention: "sigmoid=-2/window=5+sinks=1+head-scale"}
	run := func(m megakernel.Merging, seed uint64) trace {
		o.Merge = m
		mk, err := megakernel.Build(c, o)
		require.NoError(t, err)
		return decode(t, mk, g.Seed, g.Tokens[:12], seed)
	}
	want := run(megakernel.MergePhase, 1)
	got := run(megakernel.MergeWords, 2)
	require.Equal(t, want.next, got.next)
	require.Equal(t, want.logits, got.logits)
}

// SMs that have rows of down and none of qkv, and no item of attention, are waited for by
// nobody between two steps of which the first has no LM head, but where there is a count or a barrier.
func TestStepsOfAPromptWaitForSMsWithoutQueries(t *testing.T) {
	_, c := readGolden(t, "tiny_hf.json")
	c.Layers, c.Heads, c.KVHeads = 1, 2, 1
	for _, vectors := range []string{"counted", "all", "barrier"} {
		for _, splits := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s, %d splits", vectors, splits), func(t *testing.T) {
				t.Parallel()
				mk, err := megakernel.Build(c, megakernel.Options{SMs: 30, Consumers: 2, StageBytes: 2048, Splits: splits,
					Vectors: vectors})
				require.NoError(t, err)
				for seed := range uint64(deep.Count(5, 2)) {
					sim, err := runtime.NewSim(mk.IR, seed)
					require.NoError(t, err)
					s, err := runtime.NewSequence(mk, sim, synth.NewWeights(1, mk.Config), 2, nil, 0)
					require.NoError(t, err)
					_, err = s.Generate([]int{1, 5, 300, 2}, 2)
					require.NoError(t, err, "seed %d", seed)
					require.NoError(t, sim.Close())
				}
			})
		}
	}
}
