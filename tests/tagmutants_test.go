package tests

import (
	"strings"
	"testing"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// A kernel that takes a word as it was found, without the wait for its tag, is reported
// wherever it does: behind a count of arrivals, which orders no memory, a load may return
// what stood there before. So is one that waits for the tag before.
func TestEveryWaitForATagIsNeeded(t *testing.T) {
	for _, vectors := range []string{"counted", "words"} {
		t.Run(vectors, func(t *testing.T) {
			o := megakernel.Options{SMs: 3, Splits: 2, Consumers: 3, Stages: 3, InFlight: 2, Vectors: vectors}
			s := newSubjectOf(t, o, 160, 2)
			found := map[string]int{}
			var tags []mutant
			for _, m := range mutantsOf(s.ir) {
				if what, ok := strings.CutPrefix(m.Name, "remove wait.tag @"); ok {
					found[what]++
					tags = append(tags, m)
				} else if strings.HasPrefix(m.Name, "count wait.tag @") {
					tags = append(tags, m)
				}
			}
			for _, buffer := range []string{"query_words", "kv_words", "states", "attn_words", "o_words", "down_words"} {
				require.NotZero(t, found[buffer], "no wait for a tag of %s among %v", buffer, found)
			}
			outcomes := s.tryAll(t, tags, nil)
			o.SMs, o.Consumers = 24, 1
			newSubjectOfModel(t, wide(t), o, 2).tryAgain(t, outcomes, nil)
			for _, o := range outcomes {
				t.Log(o.Report, o.Seed, o.mutant)
			}
		})
	}
}

// wide is a model with more rows of o and down than of qkv and gate_up: with many SMs some
// read a few words of a vector that they have not read all of before.
func wide(t *testing.T) models.Config {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.Hidden, c.Intermediate, c.Vocab, c.Heads, c.KVHeads, c.HeadDim = 192, 32, 16, 2, 1, 32
	return c
}
