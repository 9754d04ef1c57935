package tasks_test

import (
	"fmt"
	"math"
	"testing"
)

// Many splits are read in a loop instead of all at once.
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
