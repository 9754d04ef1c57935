package tasks_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks"
	"github.com/stretchr/testify/require"
)

// More splits than a thread holds at once are read in batches: 64 are still one load,
// 65 two batches of 32 and a split, 96 and 128 whole batches.
func TestMergeOfMoreSplitsThanRegistersHold(t *testing.T) {
	for _, splits := range []int{64, 65, 96, 97, 127, 128} {
		t.Run(fmt.Sprint(splits), func(t *testing.T) {
			const heads, d = 3, 16
			rng := newRand(uint64(splits))
			part, lse := floats(rng, splits*heads*d, 1), floats(rng, splits*heads, 6)
			for s := range splits - 1 { // head 0 has a state in the last split alone
				lse[s*heads] = float32(math.Inf(-1))
				clear(part[s*heads*d : s*heads*d+d])
			}
			want := mergeReference(heads, d, splits, part, lse)
			near(t, want, mergeStates(t, heads, d, splits, 2, 2, part, lse), scaled(want, 0x1.01p-8, 1e-5), "")
		})
	}
}

// However many splits there are, the code holds few of their states at a time.
func TestMergeOfManySplitsIsALoop(t *testing.T) {
	loads := func(splits int) (n int) {
		r := newRig(t, setup{})
		m := &tasks.Merge{Heads: 2, D: 16, Splits: splits, In: in[dsl.F32](r, "part", nil, splits*32),
			LSE: in[dsl.F32](r, "lse", nil, splits*2), Out: out[dsl.BF16](r, "out", 32)}
		r.body(func(*pipeline.Consumer) { m.Emit(r.e) }, nil)
		k, err := r.k.Finish()
		require.NoError(t, err)
		k.Instrs(func(i *ir.Instr) {
			if i.Op == ir.OpLd {
				n++
			}
		})
		return n
	}
	require.Equal(t, 2*64, loads(64))
	require.Equal(t, 6*32, loads(128))
	require.Equal(t, 6*32, loads(1<<10))
}
