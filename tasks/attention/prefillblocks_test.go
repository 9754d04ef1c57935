package attention_test

import (
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/prefill"
	"github.com/stretchr/testify/require"
)

// blocks declares what small pages are copied into, and returns the layout that attention reads: the cache's where
// nothing is copied. The sequence begins with the second block.
func (c promptAttention) blocks(r *rig.Rig, cache attention.KVLayout) (*attention.PrefillBlocks, attention.KVLayout) {
	if !c.copies {
		return nil, cache
	}
	k, n := r.K, pipeline.CeilDiv(c.pos+c.n, attention.BlockTokens)+1
	b := &attention.PrefillBlocks{KV: cache,
		Ready: rig.InOut[dsl.U32](r, "ready", make([]byte, 4*n*c.kvHeads), n*c.kvHeads),
		Slots: dsl.Shared[dsl.B128](k, "slots", attention.CopierBytes/16),
		Times: func(attention.Step) dsl.Val[dsl.U32] { return k.U32(1) },
		First: func(prefill.Span) dsl.Val[dsl.U32] { return k.U32(1) }}
	reads := b.Layout()
	b.To = rig.InOut[dsl.B128](r, "blocks", make([]byte, n*reads.PageBytes()), 0)
	return b, reads
}

// Every synchronisation of the warps that copy small pages, and of the wait for blocks, is reported where it is left
// out, weakened, miscounted or moved.
func TestMutantsOfCopiedPagesAreReported(t *testing.T) {
	deep.Only(t)
	several := promptAttention{heads: 2, kvHeads: 2, d: 32, page: 2, pos: 120, n: 150, groups: 1, cluster: 2, sms: 2,
		block: 128, copies: true}
	one := several
	one.pos, one.n = 0, 20
	kernels, run := promptKernels(t, several, one)
	left := rig.SurvivorsWhere(t, func(mu mutate.Mutation) bool {
		return strings.Contains(mu.Pos.String(), "prefillblocks.go") || strings.Contains(mu.Name, "@ready")
	}, kernels, run)
	require.NoError(t, copyExcuses.Check(left, copyExcuses))
}

var copyExcuses = mutate.Excuses{
	{Op: "cp.async.commit", Classes: rig.MutantLater, Role: "producer", Behind: "syncwarp",
		Why: "no copy starts between: the group is the same", Rule: mutate.Causality},
	{Op: "cp.async.commit", Classes: rig.MutantLater, Role: "producer", Front: "cp.async @slots @kv",
		Behind: "cp.async @slots @kv", Why: "the group has copies of the next one, too, and is waited for first: more is " +
			"waited for than has to be", Rule: mutate.Causality},
	{Op: "cp.async.wait", Classes: rig.MutantEarlier, Role: "producer", Front: "st @blocks", Behind: "ld @slots",
		Why: "it goes in front of the stores of copies that are there: earlier than it must", Rule: mutate.Causality},
	{Op: "cp.async.wait", Classes: rig.MutantEarlier, Role: "producer", Front: "red.add.release @ready",
		Why: "it goes in front of the count of another part: earlier than it must", Rule: mutate.Causality},
}

func TestWhatCopiesOfSmallPagesRefuse(t *testing.T) {
	small := promptAttention{heads: 2, kvHeads: 2, d: 32, page: 1, n: 9, groups: 1, cluster: 1, sms: 1, block: 128,
		copies: true}
	large, window := small, small
	large.page, window.window = 8, 4
	for want, c := range map[string]promptAttention{
		"prefill blocks: pages of 8 tokens in bf16, want fewer than 8 in bf16":       large,
		"prefill attention: copies of small pages beside a window, want one of them": window,
	} {
		r, _, _, _ := c.build(t)
		_, err := r.K.Finish()
		require.ErrorContains(t, err, want)
	}
}
