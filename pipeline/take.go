package pipeline

import "github.com/mkgen/mkgen/dsl"

// Take is for consumer warps that share chunks out among themselves, each chunk to
// some of them. It waits for chunk n from here to be filled, without moving on, and
// calls use with the stage's first 16-byte element in Data. Where release holds the
// warp then gives the stage back, for n warps, itself among them: over all
// warps that must come to every consumer warp once a chunk. Its arguments are the same
// in all lanes.
//
// A wait tells by a parity only which of two laps has landed. So chunk n must be at
// most Reach behind the last chunk that this warp has taken, or behind here if all
// consumer warps have met since the chunk before; and no warp may wait for a chunk
// that it does not take, for the ring does not wait for that warp there.
func (c *Consumer) Take(n dsl.Val[dsl.U32], use func(base dsl.Val[dsl.U32]), release dsl.Pred, warps dsl.Val[dsl.U32]) {
	r, k := c.r, c.r.k
	stage, parity := c.next.ahead(n)
	stage = stage.Named("stage")
	waits := r.trace.draining()
	c.wait(stage, parity)
	waits.landed()
	use(c.base(stage))
	waits.taken(stage)
	k.If(release, func() {
		k.SyncWarp()
		k.If(c.releases(), func() {
			if r.watch == nil {
				r.empty.ArriveN(stage, warps)
				return
			}
			// In a launch that is given up a warp may be laps ahead, and several arrivals at once be
			// more than a phase has left; one after another they end it and begin the next.
			k.For(k.U32(0), warps, func(dsl.Val[dsl.U32]) { r.empty.Arrive(stage) }, dsl.Unroll(1))
		})
	})
}

// Reach is how far a warp may go from one chunk that it takes to the next: copies land
// in any order, but with a chunk all those that are InFlight before it have landed, and
// a lap before the next one must have.
func (c *Consumer) Reach() int { return c.r.stages - c.r.inFlight }

// Pass moves on by n chunks that have been taken. All consumer warps must meet before
// the next wait.
func (c *Consumer) Pass(n dsl.Val[dsl.U32]) {
	stage, parity := c.next.ahead(n)
	c.next.stage.Set(stage)
	c.next.parity.Set(parity)
}

// Await waits until chunk n from here (0 to the ring's stages, exclusive) has been filled,
// without moving on. Unlike Take it needs no Reach: this warp has drained the chunk that
// lay in the stage a lap before. A trace does not tell of it.
func (c *Consumer) Await(n dsl.Val[dsl.U32]) {
	stage, parity := c.next.ahead(n)
	c.wait(stage, parity)
}
