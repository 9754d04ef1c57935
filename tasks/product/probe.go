package product

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/grid"
)

// CopyInput copies n elements of a GEMV's input, which is staged in shared memory, to
// global memory from element at on; both are even. One CTA does, in its consumer warps.
func CopyInput(e *grid.Env, x dsl.Buf[dsl.BF16], n int, to dsl.Buf[dsl.BF16], at u32) {
	if n < 2 || n%2 != 0 || int(x.Len()) < n {
		e.K.Require(false, "copy of an input: %d elements of %d, want an even number that are there", n, x.Len())
		return
	}
	from, out := dsl.View[dsl.BF16x2](x), dsl.View[dsl.BF16x2](to)
	e.K.If(e.CTA.EqC(0), func() {
		e.EachConsumer(n/2, func(i u32) { out.Store(at.DivC(2).Add(i), from.Load(inputPair(i))) })
	})
}
