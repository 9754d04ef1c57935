package product_test

import (
	"fmt"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/product"
	"github.com/stretchr/testify/require"
)

// Chunks held change when a chunk is drained and nothing that is computed.
func TestHeldChunksOfAProduct(t *testing.T) {
	for _, c := range []gemvCase{
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
			rng := rig.Rand(uint64(c.rows + c.k))
			w, x := rig.Normals(rng, c.rows*c.k, 1), rig.Normals(rng, c.k, 1)
			want := gemvRig(t, c, w, x).Run()["y"]
			for _, held := range []int{1, 2, 3, 5, product.MaxPrefetch} {
				c.held = held
				require.Equal(t, want, gemvRig(t, c, w, x).Run()["y"], "%d held", held)
			}
		})
	}
}

func TestHeldChunksOfRandomShapes(t *testing.T) {
	rng := rig.Rand(2031)
	for range 12 {
		c := gemvCase{rows: 1 + rng.IntN(200), k: 8 * (1 + rng.IntN(60)), sms: 1 + rng.IntN(6), consumers: 1 + rng.IntN(8),
			stage: 512 + 128*rng.IntN(20), stages: 1 + rng.IntN(6), held: 1 + rng.IntN(product.MaxPrefetch)}
		c.inFlight = 1 + rng.IntN(c.stages)
		t.Run(fmt.Sprintf("%s, %d held", c, c.held), c.check)
	}
}

// Consumers hold while they wait for others, who wait for nothing of theirs but the arrival.
func TestABarrierDoesSomethingMeanwhile(t *testing.T) {
	const sms = 3
	r := rig.New(t, rig.Setup{SMs: sms, Consumers: 2})
	counter := rig.InOut[dsl.U32](r, "counter", make([]byte, 4), 1)
	words, sums := rig.Out[dsl.U32](r, "words", sms), rig.Out[dsl.U32](r, "sums", sms)
	own := dsl.Shared[dsl.U32](r.K, "own", 1)
	r.Body(func(*pipeline.Consumer) {
		bar, first := grid.NewGridBarrier(r.Env, counter, r.K.U32(0)), r.Env.Tid.EqC(0)
		r.K.If(first, func() { words.Store(r.Env.CTA, r.Env.CTA.AddC(5)) })
		bar.SyncWhile(func() {
			r.K.If(r.Env.Tid.EqC(r.Env.Threads()-1),
				func() { own.Store(dsl.At(0), r.Env.CTA.MulC(100)) })
		})
		r.K.If(first, func() {
			sum := own.Load(dsl.At(0))
			for i := range sms {
				sum = sum.Add(words.Load(dsl.At(i)))
			}
			sums.Store(r.Env.CTA, sum)
		})
	}, nil)
	require.Equal(t, []uint32{18, 118, 218}, rig.U32s(r.Run()["sums"]))
}

func TestHeldChunksWithoutRegistersAreRefused(t *testing.T) {
	r := rig.New(t, rig.Setup{Matrices: []pipeline.Matrix{{Name: "w", Rows: 8, K: 32}}})
	g := &product.GEMV{Name: "w", M: &r.Plan.Layer[0], X: dsl.Shared[dsl.BF16](r.K, "input", 32, dsl.Align(16)),
		Prefetch: &product.RegisterPrefetch{Chunks: 1},
		Part:     product.Partials{Buf: dsl.Shared[dsl.F32](r.K, "partials", product.PartialsLen(1), dsl.Align(16))}}
	r.Body(func(c *pipeline.Consumer) { g.Hold(r.Env, c, r.Ring, r.Share(0)) }, nil)
	require.Contains(t, r.Refused(), "w: Prefetch has registers for 0 chunks, want 1: Start comes first")
}
