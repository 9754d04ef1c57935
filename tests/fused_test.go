package tests

import (
	"fmt"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// The MLP without a sync between its two halves: right against float64 and Hugging
// Face, near the kernel with one, and without a race in any schedule.
func TestFusedMLPOnTheExecutor(t *testing.T) {
	deep.Only(t)
	for _, test := range []struct {
		file  string
		sms   int
		seeds []uint64
	}{{"tiny_hf.json", 4, []uint64{1, 2, 3}}, {"tiny_hf.json", 1, []uint64{4}}, {"tiny_mha_hf.json", 7, []uint64{5, 6}}} {
		t.Run(fmt.Sprintf("%s, %d SMs", test.file, test.sms), func(t *testing.T) {
			t.Parallel()
			g, c := readGolden(t, test.file)
			o := megakernel.Options{SMs: test.sms, Splits: 2, StageBytes: 2048}
			rows, err := megakernel.Build(c, o)
			require.NoError(t, err)
			o.MLP = megakernel.MLPFused
			fused, err := megakernel.Build(c, o)
			require.NoError(t, err)
			require.Equal(t, rows.Barriers()-c.Layers, fused.Barriers())
			want := decode(t, rows, g.Seed, g.Tokens, 1)
			for _, seed := range test.seeds {
				got := decode(t, fused, g.Seed, g.Tokens, seed)
				requireRight(t, c, g, got)
				for i := range want.logits {
					requireClose(t, want.logits[i], got.logits[i], referenceTolerance,
						fmt.Sprintf("the kernel with a sync, position %d", i))
				}
			}
		})
	}
}

// SMs without columns, an intermediate size that is no multiple of 32, a hidden size that
// is none of 64, and every sync around
// attention and of vectors.
func TestFusedMLPOfOddShapes(t *testing.T) {
	deep.Only(t)
	tiny, err := models.Lookup("tiny")
	require.NoError(t, err)
	tiny.TieEmbeddings = false
	for i, change := range []func(c *models.Config){
		func(c *models.Config) { c.Hidden, c.Intermediate = 104, 40 },
		func(c *models.Config) { c.Hidden, c.Intermediate, c.Layers = 72, 8, 3 }, // 2 tiles on 5 SMs
	} {
		c := tiny
		change(&c)
		shape := c
		tokens := []int{1, 9, 4, 7, 2, 11}
		seed := uint64(1)
		for _, q := range megakernel.Syncs() {
			for _, m := range megakernel.Mergings() {
				vectors, held := fusedVectors[seed%uint64(len(fusedVectors))], []int{0, 1, megakernel.HeldNone}[seed%3]
				mk, err := megakernel.Build(c, megakernel.Options{SMs: 5, Page: 4, StageBytes: 2048, Queries: q, Merge: m,
					MLP: megakernel.MLPFused, Vectors: vectors, Held: held})
				require.NoError(t, err)
				got := decode(t, mk, 3, tokens, seed)
				ref, err := reference.NewModel(shape, reference.Synthetic(shape, 3), reference.AsKernel(shape))
				require.NoError(t, err)
				for n, id := range tokens {
					requireClose(t, ref.Step(id), got.logits[n], referenceTolerance,
						fmt.Sprintf("shape %d, queries %s, merge %s, vectors %q, %d held, position %d", i, q, m, vectors, held, n))
				}
				seed++
			}
		}
	}
}

// fusedVectors are ways of the vectors of attention and o; "" is the default.
var fusedVectors = []string{"", "barrier"}

// That is what it is marked for.
func TestFusedMLPIsNotRepeatable(t *testing.T) {
	g, c := readGolden(t, "tiny_hf.json")
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 4, Splits: 2, StageBytes: 2048, MLP: megakernel.MLPFused})
	require.NoError(t, err)
	require.False(t, mk.Options.Repeatable())
	first := decode(t, mk, g.Seed, g.Tokens[:3], 1)
	for seed := uint64(2); seed < 10; seed++ {
		if !sameTrace(first, decode(t, mk, g.Seed, g.Tokens[:3], seed)) {
			return
		}
	}
	t.Fatal("nine schedules give the same bits")
}
