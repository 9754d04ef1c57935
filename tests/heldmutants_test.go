package tests

import (
	"strings"
	"testing"
	"time"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/stretchr/testify/require"
)

// Mutants of what consumers do between the arrival at a sync and the wait, which is to
// hold chunks of the next phase, and of the syncs around it.
func TestMutantsOfChunksHeldAreReported(t *testing.T) {
	deep.Only(t)
	start := time.Now()
	o := megakernel.Options{SMs: 3, Splits: 2, Consumers: 3, Stages: 3, InFlight: 2, Held: 2}
	first := newSubjectOf(t, o, 160, 2)
	first.mustPass(t)
	var own []mutant
	for _, m := range sample(t, first.ir, regionEvery, singleExcuses) {
		if strings.HasPrefix(m.Region, "chunks held for ") || strings.HasPrefix(m.Region, "sync after ") {
			own = append(own, m)
		}
	}
	require.NotEmpty(t, own)
	outcomes := first.tryAll(t, own, singleExcuses)
	tryElsewhere(t, o, outcomes, singleExcuses)
	judge(t, "mutants of chunks held in registers, on the executor", outcomes, singleExcuses, nil, start)
}

// Mutants of the whole as it ships for models with long products: four copies in flight with
// a lead, chunks held, words for queries, merge and vectors, these behind counts.
func TestMutantsOfWhatShipsAreReported(t *testing.T) {
	deep.Only(t)
	start := time.Now()
	o := megakernel.Options{SMs: 3, Splits: 2, Consumers: 3, Stages: 8, InFlight: 4, Leads: "5:2", Held: 3,
		Queries: megakernel.SyncWords, Merge: megakernel.MergeWords, Vectors: string(megakernel.SyncCounted)}
	first := newSubjectOf(t, o, 320, 2) // more tiles of the LM head than the ring has stages
	first.mustPass(t)
	outcomes := first.tryAll(t, sample(t, first.ir, regionEvery, singleExcuses), singleExcuses)
	tryElsewhere(t, o, outcomes, singleExcuses)
	judge(t, "mutants of what ships, on the executor", outcomes, singleExcuses, nil, start)
}
