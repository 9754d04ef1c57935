package tests

import (
	"fmt"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/tasks/product"
	"github.com/stretchr/testify/require"
)

// However many chunks are held in registers, the logits are the same bits: on one SM and on
// SMs without tiles of some matrices, with tiles of one chunk and of several with a shorter
// last one.
func TestHeldChunksGiveTheSameBits(t *testing.T) {
	deep.Only(t)
	g, c := readGolden(t, "tiny_hf.json")
	tokens := g.Tokens[:8]
	for i, shape := range []megakernel.Options{
		{SMs: 1, StageBytes: 2048},
		{SMs: 3, StageBytes: 2048, Consumers: 3},
		{SMs: 40, StageBytes: 2048},
		{SMs: 3, StageBytes: 4096, Queries: megakernel.SyncBarrier, Merge: megakernel.MergePhase},
		{SMs: 2, StageBytes: 2048, Stages: 2, InFlight: 1, Merge: megakernel.MergePhase},
	} {
		t.Run(fmt.Sprintf("%d SMs, stages of %d", shape.SMs, shape.StageBytes), func(t *testing.T) {
			t.Parallel()
			shape.Page, shape.Splits = 4, 2
			run := func(held int, seed uint64) trace {
				o := shape
				o.Held = held
				mk, err := megakernel.Build(c, o)
				require.NoError(t, err)
				return decode(t, mk, g.Seed, tokens, seed)
			}
			want := run(megakernel.HeldNone, 1)
			for held := 0; held <= product.MaxPrefetch; held++ {
				if i > 1 && held > 1 && held < product.MaxPrefetch { // those in the middle are of the first two
					continue
				}
				got := run(held, uint64(held))
				require.Equal(t, want.next, got.next, "%d held", held)
				require.Equal(t, want.logits, got.logits, "%d held", held)
			}
		})
	}
}
