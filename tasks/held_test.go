package tasks_test

import (
	"fmt"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks"
	"github.com/stretchr/testify/require"
)

// Chunks held change when a chunk is drained and nothing that is computed.
func TestHeldChunksOfAProduct(t *testing.T) {
	for _, c := range []product{
		// a chunk a tile, 3 groups over 2 warps
		{rows: 16, k: 96, sms: 1, consumers: 2},
		// 8 chunks of 4 groups and a tail of 1, over 8 warps
		{rows: 40, k: 1056, sms: 2, consumers: 8, stage: 2048},
		// chunks of 5, tail 3; SMs of one tile and of two
		{rows: 40, k: 1056, sms: 3, consumers: 4, stage: 2048 + 512},
		// more is held than the one tile has: 2 chunks and a tail
		{rows: 8, k: 1056, sms: 1, consumers: 1, stage: 8192},
		{rows: 16, k: 1056, sms: 1, consumers: 8, stage: 17408},                       // a whole tile in a stage
		{rows: 13, k: 64, sms: 1, consumers: 2},                                       // rows not a multiple of 8
		{rows: 16, k: 64, sms: 5, consumers: 2},                                       // 3 SMs without a tile
		{rows: 280, k: 32, sms: 1, consumers: 4},                                      // 3 batches of tiles
		{rows: 416, k: 96, sms: 3, consumers: 8, stage: 1024},                         // 17 or 18 tiles an SM, 2 chunks each
		{rows: 64, k: 96, sms: 1, consumers: 2, stages: 1, inFlight: 1},               // one stage
		{rows: 64, k: 352, sms: 1, consumers: 3, stages: 7, inFlight: 4, stage: 1024}, // 6 chunks a tile, the last shorter
	} {
		t.Run(c.String(), func(t *testing.T) {
			rng := newRand(uint64(c.rows + c.k))
			w, x := normals(rng, c.rows*c.k, 1), normals(rng, c.k, 1)
			want := gemvRig(t, c, w, x).run()["y"]
			for _, held := range []int{1, 2, 3, 5, tasks.MaxPrefetch} {
				c.held = held
				require.Equal(t, want, gemvRig(t, c, w, x).run()["y"], "%d held", held)
			}
		})
	}
}

func TestHeldChunksOfRandomShapes(t *testing.T) {
	rng := newRand(2031)
	for range 12 {
		c := product{rows: 1 + rng.IntN(200), k: 8 * (1 + rng.IntN(60)), sms: 1 + rng.IntN(6), consumers: 1 + rng.IntN(8),
			stage: 512 + 128*rng.IntN(20), stages: 1 + rng.IntN(6), held: 1 + rng.IntN(tasks.MaxPrefetch)}
		c.inFlight = 1 + rng.IntN(c.stages)
		t.Run(fmt.Sprintf("%s, %d held", c, c.held), c.check)
	}
}

// Consumers hold while they wait for others, who wait for nothing of theirs but the arrival.
func TestABarrierDoesSomethingMeanwhile(t *testing.T) {
	const sms = 3
	r := newRig(t, setup{sms: sms, consumers: 2})
	counter := inOut[dsl.U32](r, "counter", make([]byte, 4), 1)
	words, sums := out[dsl.U32](r, "words", sms), out[dsl.U32](r, "sums", sms)
	own := dsl.Shared[dsl.U32](r.k, "own", 1)
	r.body(func(*pipeline.Consumer) {
		bar, first := tasks.NewGridBarrier(r.e, counter, r.k.U32(0)), r.e.Tid.EqC(0)
		r.k.If(first, func() { words.Store(r.e.CTA, r.e.CTA.AddC(5)) })
		bar.SyncWhile(func() { r.k.If(r.e.Tid.EqC(r.e.Threads()-1), func() { own.Store(dsl.At(0), r.e.CTA.MulC(100)) }) })
		r.k.If(first, func() {
			sum := own.Load(dsl.At(0))
			for i := range sms {
				sum = sum.Add(words.Load(dsl.At(i)))
			}
			sums.Store(r.e.CTA, sum)
		})
	}, nil)
	require.Equal(t, []uint32{18, 118, 218}, u32s(r.run()["sums"]))
}

func TestHeldChunksWithoutRegistersAreRefused(t *testing.T) {
	r := newRig(t, setup{matrices: []pipeline.Matrix{{Name: "w", Rows: 8, K: 32}}})
	g := &tasks.GEMV{Name: "w", M: &r.plan.Layer[0], X: dsl.Shared[dsl.BF16](r.k, "input", 32, dsl.Align(16)),
		Prefetch: &tasks.RegisterPrefetch{Chunks: 1},
		Part:     tasks.Partials{Buf: dsl.Shared[dsl.F32](r.k, "partials", tasks.PartialsLen(1), dsl.Align(16))}}
	r.body(func(c *pipeline.Consumer) { g.Hold(r.e, c, r.ring, r.share(0)) }, nil)
	require.Contains(t, r.refused(), "w: Prefetch has registers for 0 chunks, want 1: Start comes first")
}
