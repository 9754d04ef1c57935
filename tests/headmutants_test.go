package tests

import (
	"strings"
	"testing"
	"time"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// Mutants of the LM head's phase where the head is integers of 8 bits, with an image beside the embedding's, and the
// layers are bf16.
func TestMutantsOfAHeadOfIntegersAreReported(t *testing.T) {
	deep.Only(t)
	start := time.Now()
	o := megakernel.Options{SMs: 3, Splits: 2, Consumers: 3, Stages: 3, InFlight: 2, Held: 2, Head: pipeline.FormatI8}
	first := newSubjectOf(t, o, 320, 2) // more tiles of the head than are held and the ring has stages
	first.mustPass(t)
	var own []mutant
	for _, m := range sample(t, first.ir, 4, singleExcuses) {
		if strings.Contains(m.Region, "lm_head") {
			own = append(own, m)
		}
	}
	require.NotEmpty(t, own)
	outcomes := first.tryAll(t, own, singleExcuses)
	tryElsewhere(t, o, outcomes, singleExcuses)
	judge(t, "mutants of an LM head of integers, on the executor", outcomes, singleExcuses, nil, start)
}
