package attention_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/mkgen/mkgen/tasks/internal/rig"
)

// Many splits are read in a loop instead of all at once.
func TestMergeOfMoreSplitsThanRegistersHold(t *testing.T) {
	for _, splits := range []int{64, 65, 96, 97, 127, 128} {
		t.Run(fmt.Sprint(splits), func(t *testing.T) {
			const heads, d = 3, 16
			rng := rig.Rand(uint64(splits))
			part, lse := rig.Floats(rng, splits*heads*d, 1), rig.Floats(rng, splits*heads, 6)
			for s := range splits - 1 { // head 0 has a state in the last split alone
				lse[s*heads] = float32(math.Inf(-1))
				clear(part[s*heads*d : s*heads*d+d])
			}
			want := mergeReference(heads, d, splits, part, lse)
			rig.Near(t, want, mergeStates(t, heads, d, splits, 2, 2, part, lse), rig.Scaled(want, 0x1.01p-8, 1e-5), "")
		})
	}
}
