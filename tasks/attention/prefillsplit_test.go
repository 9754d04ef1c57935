package attention_test

import (
	"fmt"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/prefill"
)

// Parts of keys and values give the outputs of the whole.
func TestPrefillAttentionInParts(t *testing.T) {
	for _, c := range []promptAttention{
		// A row's own in the second, tokens of a tile with one and with two; of windows that begin in the second, and
		// sinks before it; over gathered pages; of scores that are capped, of weights that are no softmax's, of heads with
		// queries in shared memory; behind maxima that grow; a part a block, and one of all
		{heads: 6, kvHeads: 2, d: 32, page: 16, pos: 40, n: 30, groups: 1, cluster: 1, sms: 2, block: 16, split: 3},
		{heads: 4, kvHeads: 1, d: 64, page: 8, pos: 200, n: 1, groups: 1, cluster: 2, sms: 4, block: 32, split: 2},
		{heads: 4, kvHeads: 2, d: 32, page: 16, pos: 75, n: 40, groups: 1, cluster: 1, sms: 2, block: 16,
			window: 30, split: 2},
		{heads: 4, kvHeads: 4, d: 32, page: 8, pos: 164, n: 70, groups: 1, cluster: 2, sms: 2, block: 32, window: 5,
			sinks: 64, alibi: true, split: 1},
		{heads: 6, kvHeads: 3, d: 16, page: 1, pos: 50, n: 33, groups: 2, cluster: 1, sms: 1, block: 16, window: 17, sinks: 3,
			split: 2},
		{heads: 4, kvHeads: 2, d: 64, page: 4, pos: 120, n: 33, groups: 1, cluster: 1, sms: 3, block: 32, split: 2},
		{heads: 8, kvHeads: 1, d: 128, page: 64, pos: 70, n: 9, groups: 2, cluster: 1, sms: 2, block: 32, cap: 50, split: 1},
		{heads: 4, kvHeads: 1, d: 64, page: 8, pos: 130, n: 40, groups: 1, cluster: 2, sms: 2, block: 32,
			sigmoid: -2, split: 2},
		{heads: 4, kvHeads: 2, d: 256, page: 16, pos: 130, n: 70, groups: 2, cluster: 2, sms: 4, block: 64, cap: 2, split: 2},
		{heads: 4, kvHeads: 2, d: 32, page: 16, pos: 170, n: 40, groups: 1, cluster: 1, sms: 2, block: 16,
			loud: 16, split: 4},
		{heads: 4, kvHeads: 2, d: 32, page: 16, pos: 70, n: 40, groups: 1, cluster: 2, sms: 2, block: 16, split: 100},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) { c.holds(t) })
	}
}

// parts splits keys and values, and returns what merges the parts behind attention.
func (c promptAttention) parts(r *rig.Rig, a *attention.PrefillAttention, s attention.Step, span prefill.Span,
	padded int) (merge func()) {
	if c.split == 0 {
		return func() {}
	}
	states := c.n * pipeline.CeilDiv(c.pos+c.n, c.split*c.block)
	values, sums := states*c.heads*c.d, states*c.heads*2
	a.Split = &attention.PrefillSplit{Blocks: r.Scalar("split", uint32(c.split)), Rows: span.N, States: states,
		Values: rig.Out[dsl.F32](r, "values", values), Sums: rig.Out[dsl.F32](r, "sums", sums)}
	counter := rig.InOut[dsl.U32](r, "counter", make([]byte, 4), 1)
	return func() {
		grid.NewGridBarrier(r.Env, counter, r.K.U32(0)).Sync()
		a.Merge(r.Env, s, span, padded, s.Pos.Add)
	}
}
