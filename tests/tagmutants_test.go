package tests

import (
	"strings"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/stretchr/testify/require"
)

// packetWait is what mutants without a wait for a packet are called, up to the buffer's name.
const packetWait = "remove wait.tag @"

// packetWaits are those mutants, but for those that the table excepts.
func packetWaits(s *subject) (ms []mutant) {
	for _, m := range mutantsOf(s.ir) {
		if strings.HasPrefix(m.Name, packetWait) && singleExcuses.Of(m.Mutation) == nil {
			ms = append(ms, m)
		}
	}
	return ms
}

// A reader that takes a word as it was found, whatever its tag, computes something else,
// wherever it is: a count of arrivals orders no memory, so that a load behind it may return
// what stood there before. The words that the table excepts have been read before.
func TestReadersThatSkipTheWaitForATagComputeSomethingElse(t *testing.T) {
	deep.Only(t)
	s := newSubjectOf(t, megakernel.Options{SMs: 3, Splits: 2, Consumers: 3, Stages: 3, InFlight: 2}, 160, 2)
	caught := map[string]int{}
	for _, o := range s.tryAll(t, packetWaits(s), nil) {
		require.True(t, strings.HasPrefix(o.Report, "wrong "), "%s: %q at %s", o, o.Report, o.Place)
		caught[strings.TrimPrefix(o.Name, packetWait)]++
	}
	require.Equal(t, map[string]int{"query_words": 1, "kv_words": 1, "states": 1, "attn_words": 1, "o_words": 1,
		"down_words": 2}, caught)
}
