package grid_test

import (
	"fmt"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
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
	for n, bodies := range map[int][]int{40: {1}, 64: {1}, 70: {2}, 130: {3}, 200: {3, 1}, 192: {3}, 300: {3, 2},
		1344: {3}, 1450: {3, 2}} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var values []int
			got := visited(t, n, func(r *rig.Rig, count func(i dsl.Val[dsl.U32])) {
				r.Env.EachOf(n, 3, func(is []dsl.Val[dsl.U32], even bool, mine func(int, func())) {
					values = append(values, len(is))
					for j, i := range is {
						r.K.Assert(i.LtC(n), "a value that is not below n")
						if even {
							r.K.Assert(i.Eq(is[0].AddC(j*r.Env.Threads())), "a value that is not Threads from the one before")
						}
						mine(j, func() {
							r.K.Assert(r.Env.GroupOf(i).Eq(i.DivC(dsl.WarpSize)), "not the value's group")
							count(i)
						})
					}
				})
			})
			require.Equal(t, bodies, values, "how many values a call has")
			require.Equal(t, once(n), got)
		})
	}
}

func TestEachConsumerKnowsTheGroup(t *testing.T) {
	for _, n := range []int{40, 64, 150, 64 * 17} {
		got := visited(t, n, func(r *rig.Rig, count func(i dsl.Val[dsl.U32])) {
			r.Env.EachConsumer(n, func(i dsl.Val[dsl.U32]) {
				r.K.Assert(r.Env.GroupOf(i).Eq(i.DivC(dsl.WarpSize)), "not the value's group")
				count(i)
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
