package grid_test

import (
	"fmt"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/stretchr/testify/require"
)

// visited counts how often a kernel of 2 warps comes to each of n places.
func visited(t *testing.T, n int, each func(r *rig.Rig, count func(i dsl.Val[dsl.U32]))) []uint32 {
	r := rig.New(t, rig.Setup{SMs: 1, Consumers: 2})
	counts := rig.InOut[dsl.U32](r, "counts", make([]byte, 4*n), n)
	r.Body(func(*pipeline.Consumer) {
		each(r, func(i dsl.Val[dsl.U32]) { counts.Store(i, counts.Load(i).AddC(1)) })
	}, nil)
	return rig.U32s(r.Run()["counts"])
}

func once(n int) []uint32 {
	all := make([]uint32, n)
	for i := range all {
		all[i] = 1
	}
	return all
}

func TestEachOfTakesTheLastOnesWithTheOthers(t *testing.T) {
	type call struct{ values, apart int }
	for _, x := range []struct {
		n, most int
		calls   []call
	}{
		{40, 3, []call{{1, 1}}}, {64, 3, []call{{1, 1}}}, {70, 3, []call{{2, 1}}}, {130, 3, []call{{3, 2}}},
		{192, 3, []call{{3, 3}}}, {200, 3, []call{{3, 3}, {1, 1}}}, {300, 3, []call{{3, 3}, {2, 1}}},
		{1344, 3, []call{{3, 3}}}, {1450, 3, []call{{3, 3}, {2, 1}}}, // of 7 batches, in a loop
		{1350, 10, []call{{10, 10}, {10, 10}, {2, 1}}}, // two batches are written out
	} {
		t.Run(fmt.Sprintf("%d, %d at once", x.n, x.most), func(t *testing.T) {
			var calls []call
			got := visited(t, x.n, func(r *rig.Rig, count func(i dsl.Val[dsl.U32])) {
				r.Env.EachOf(x.n, x.most, func(is []dsl.Val[dsl.U32], behind []int, mine func(int, func())) {
					calls = append(calls, call{len(is), len(behind)})
					for j, i := range is {
						r.K.Assert(i.LtC(x.n), "a value that is not below n")
						if j < len(behind) {
							r.K.Assert(i.Eq(is[0].AddC(behind[j])), "a value that is not as far from the first as is said")
						}
						mine(j, func() {
							assertGroup(r, i)
							count(i)
						})
					}
				})
			})
			require.Equal(t, x.calls, calls)
			require.Equal(t, once(x.n), got)
		})
	}
}

// A warp has the groups of its order: here those of 2 warps in pairs, and behind them one each.
func TestValuesInAnOrder(t *testing.T) {
	order := &grid.Order{Stride: 2, Offsets: []int{0, 1, 4, 5}}
	const n = 4 * 64
	for _, most := range []int{1, 3, 4, 5} {
		got := visited(t, n, func(r *rig.Rig, count func(i dsl.Val[dsl.U32])) {
			r.Env.WithOrder(order, func() {
				round := 0
				expect := func(i dsl.Val[dsl.U32]) {
					group := r.Env.Warp.MulC(2).AddC(order.Offsets[round])
					r.K.Assert(i.Eq(group.MulC(32).Add(r.Env.Lane)), "not the order's value")
					assertGroup(r, i)
					round++
				}
				r.Env.EachConsumer(n, expect)
				round = 0
				r.Env.EachOf(n, most, func(is []dsl.Val[dsl.U32], behind []int, mine func(int, func())) {
					require.Len(t, behind, len(is))
					for j, i := range is {
						r.K.Assert(i.Eq(is[0].AddC(behind[j])), "a value that is not as far from the first as is said")
						mine(j, func() {
							expect(i)
							count(i)
						})
					}
				})
				require.Panics(t, func() { r.Env.EachConsumer(n-1, expect) })
			})
			r.Env.WithOrder(nil, func() { r.Env.EachConsumer(64, func(i dsl.Val[dsl.U32]) { assertGroup(r, i) }) })
		})
		require.Equal(t, once(n), got, "%d at once", most)
	}
}

func assertGroup(r *rig.Rig, i dsl.Val[dsl.U32]) {
	r.K.Assert(r.Env.GroupOf(i).Eq(i.DivC(dsl.WarpSize)), "not the value's group")
}

func TestEachConsumerKnowsTheGroup(t *testing.T) {
	for _, n := range []int{40, 64, 150, 64 * 17, 64*17 + 10} {
		got := visited(t, n, func(r *rig.Rig, count func(i dsl.Val[dsl.U32])) {
			r.Env.EachConsumer(n, func(i dsl.Val[dsl.U32]) {
				assertGroup(r, i)
				count(i)
			})
		})
		require.Equal(t, once(n), got, "%d", n)
	}
}

// Within a round the group is that of the loop that hands out the value.
func TestGroupsOfLoopsWithinLoops(t *testing.T) {
	for _, n := range []int{64, 64 * 17} { // written out, and a loop
		got := visited(t, n, func(r *rig.Rig, count func(i dsl.Val[dsl.U32])) {
			r.Env.EachConsumer(128, func(outer dsl.Val[dsl.U32]) {
				r.Env.EachConsumer(n, func(i dsl.Val[dsl.U32]) {
					assertGroup(r, i)
					r.K.If(outer.LtC(64), func() { count(i) })
				})
				r.Env.EachOf(n, 3, func(is []dsl.Val[dsl.U32], _ []int, mine func(int, func())) {
					for j, i := range is {
						mine(j, func() { assertGroup(r, i) })
					}
				})
				r.Env.EachConsumerBehind(1, n, func(i dsl.Val[dsl.U32]) { assertGroup(r, i) })
				assertGroup(r, outer)
			})
		})
		require.Equal(t, once(n), got, "%d", n)
	}
}

func TestEachConsumerBehindBeginsBehindTheBusyThreads(t *testing.T) {
	for _, busy := range []int{0, 1, 32, 33, 64, 65} {
		for _, n := range []int{32, 64, 100} {
			got := visited(t, n, func(r *rig.Rig, count func(i dsl.Val[dsl.U32])) {
				first := (busy + 31) / 32 % 2
				r.Env.EachConsumerBehind(busy, n, func(i dsl.Val[dsl.U32]) {
					r.K.Assert(i.NeC(0).Or(r.Env.Warp.EqC(first)), "the first value is another warp's")
					count(i)
				})
			})
			require.Equal(t, once(n), got, "%d of %d", busy, n)
		}
	}
}
