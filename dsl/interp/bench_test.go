package interp_test

import (
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/stretchr/testify/require"
)

// streamKernel is a GEMV through the ring, as the product does it: consumer
// warps load 16 × 16 tiles as one b128 a lane and feed mma.
func streamKernel(k *dsl.Kernel, chunks, stages, consumers, grid int) {
	const chunkBytes = 16 << 10
	w := dsl.Global[dsl.B128](k, "w", int64(grid*chunks*chunkBytes/16), dsl.ReadOnly())
	out := dsl.Global[dsl.F32](k, "out", int64(grid*consumers*32))
	ring := dsl.Shared[dsl.B128](k, "ring", stages*chunkBytes/16, dsl.Align(128))
	x := dsl.Shared[dsl.U32](k, "x", 1024, dsl.Align(16))
	full, empty := dsl.NewMBars(k, "full", stages), dsl.NewMBars(k, "empty", stages)
	lane0 := k.Lane().EqC(0)
	k.If(k.Tid().EqC(0), func() {
		for s := range stages {
			full.Init(dsl.At(s), k.U32(1))
			empty.Init(dsl.At(s), k.U32(consumers))
		}
		k.FenceMBarInit()
	})
	k.ForStep(k.Tid(), k.U32(1024), 32*(consumers+1), func(i dsl.Val[dsl.U32]) { x.Store(i, i) })
	k.Barrier()
	k.Roles(
		dsl.Role{Name: "consumer", First: 0, End: consumers, Body: func() {
			acc := dsl.NewArray(k.F32(0), 4, "acc")
			k.For(k.U32(0), k.U32(chunks), func(c dsl.Val[dsl.U32]) {
				s := c.Rem(k.U32(stages))
				full.Wait(s, c.DivC(stages).And(k.U32(1)))
				tiles := chunkBytes / 512 / consumers
				k.For(k.U32(0), k.U32(tiles), func(i dsl.Val[dsl.U32]) {
					at := s.MulC(chunkBytes / 16).Add(k.Warp().MulC(tiles * 32)).Add(i.MulC(32)).Add(k.Lane())
					var a [4]dsl.Val[dsl.BF16x2]
					for j, v := range dsl.Split(ring.Load(at)) {
						a[j] = dsl.Bits[dsl.BF16x2](v)
					}
					xs := x.LoadN(i.MulC(8).Add(k.Lane().And(k.U32(3)).MulC(2)), 2)
					b := [2]dsl.Val[dsl.BF16x2]{dsl.Bits[dsl.BF16x2](xs[0]), dsl.Bits[dsl.BF16x2](xs[1])}
					d := dsl.MMA(a, b, [4]dsl.Val[dsl.F32]{acc[0].Get(), acc[1].Get(), acc[2].Get(), acc[3].Get()})
					for j := range d {
						acc[j].Set(d[j])
					}
				})
				k.FenceProxyAsyncShared()
				k.SyncWarp()
				k.If(lane0, func() { empty.Arrive(s) })
			})
			out.Store(k.CTA().MulC(consumers).Add(k.Warp()).MulC(32).Add(k.Lane()), acc[0].Get().Add(acc[3].Get()))
		}},
		dsl.Role{Name: "producer", First: consumers, End: consumers + 1, Body: func() {
			k.If(lane0, func() {
				k.For(k.U32(0), k.U32(chunks), func(c dsl.Val[dsl.U32]) {
					s := c.Rem(k.U32(stages))
					empty.Wait(s, c.DivC(stages).AddC(1).And(k.U32(1)))
					full.ArriveExpect(s, k.U32(chunkBytes))
					dsl.BulkCopy(ring, s.MulC(chunkBytes/16), w, k.CTA().MulC(chunks).Add(c).MulC(chunkBytes/16), k.U32(chunkBytes),
						full, s)
				})
			})
		}},
	)
}

func benchStream(b *testing.B, chunks, stages, consumers, grid int, o interp.Options) {
	p := build(b, consumers+1, grid, func(k *dsl.Kernel) { streamKernel(k, chunks, stages, consumers, grid) })
	b.ReportAllocs()
	var steps int64
	for b.Loop() {
		r, err := p.Run(bufs(p), o)
		require.NoError(b, err)
		steps += r.Steps
	}
	b.ReportMetric(float64(steps)/b.Elapsed().Seconds()/1e6, "Msteps/s")
}

func BenchmarkStreamTiny(b *testing.B) { benchStream(b, 32, 4, 8, 4, interp.Options{}) }
func BenchmarkStreamTinyNoRaces(b *testing.B) {
	benchStream(b, 32, 4, 8, 4, interp.Options{NoRaces: true})
}

// The traffic of one layer of Llama-3.2-1B: 132 CTAs, 57 chunks of 16 KiB each.
func BenchmarkStreamLayer(b *testing.B) { benchStream(b, 57, 12, 8, 132, interp.Options{}) }
