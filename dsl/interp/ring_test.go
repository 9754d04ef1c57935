package interp_test

import (
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/stretchr/testify/require"
)

const (
	ringStages    = 2
	ringChunks    = 7
	ringConsumers = 2
	ringWords     = 128 // u32 words a chunk: 512 bytes
	ringGrid      = 2
)

// ringKernel is the product kernel's skeleton: a producer warp streams chunks
// through a ring of stages into consumer warps; each CTA's sum goes through
// global memory and a grid barrier to the other CTA, which reads all of them by
// a bulk copy.
func ringKernel(k *dsl.Kernel) {
	const chunkBytes = 4 * ringWords
	w := dsl.Global[dsl.U32](k, "w", ringGrid*ringChunks*ringWords, dsl.ReadOnly())
	part := dsl.Global[dsl.U32](k, "part", ringGrid*64)
	out := dsl.Global[dsl.U32](k, "out", ringGrid)
	count := dsl.Global[dsl.U32](k, "count", 1)
	ring := dsl.Shared[dsl.U32](k, "ring", ringStages*ringWords, dsl.Align(128))
	all := dsl.Shared[dsl.U32](k, "all", ringGrid*64, dsl.Align(16))
	full := dsl.NewMBars(k, "full", ringStages)
	empty := dsl.NewMBars(k, "empty", ringStages)
	gathered := dsl.NewMBars(k, "gathered", 1)

	lane0 := k.Lane().EqC(0)
	k.If(k.Tid().EqC(0), func() {
		for s := range ringStages {
			full.Init(dsl.At(s), k.U32(1))
			empty.Init(dsl.At(s), k.U32(ringConsumers))
		}
		gathered.Init(dsl.At(0), k.U32(1))
		k.FenceMBarInit()
	})
	k.Barrier()
	k.Roles(
		dsl.Role{Name: "consumer", First: 0, End: ringConsumers, Body: func() {
			sum := dsl.NewVar(k.U32(0), "sum")
			k.For(k.U32(0), k.U32(ringChunks), func(c dsl.Val[dsl.U32]) {
				s := c.Rem(k.U32(ringStages))
				full.Wait(s, c.DivC(ringStages).And(k.U32(1)))
				at := s.MulC(ringWords).Add(k.Warp().MulC(ringWords / ringConsumers)).Add(k.Lane().MulC(2))
				for _, v := range ring.LoadN(at, 2) {
					sum.Set(sum.Get().Add(v))
				}
				k.FenceProxyAsyncShared()
				k.SyncWarp()
				k.If(lane0, func() { empty.Arrive(s) })
			})
			part.Store(k.CTA().MulC(64).Add(k.Warp().MulC(32)).Add(k.Lane()), sum.Get())
			k.FenceProxyAsyncGlobal()
			k.NamedBarrier(1, ringConsumers)
			k.If(k.Tid().EqC(0), func() {
				dsl.ReduceAdd(count, dsl.At(0), k.U32(1), dsl.Release(ir.GPU))
				dsl.WaitUntil(count, dsl.At(0), dsl.GE, k.U32(ringGrid), dsl.Acquire(ir.GPU))
				k.FenceProxyAsyncGlobal()
				gathered.ArriveExpect(dsl.At(0), k.U32(4*64*ringGrid))
				dsl.BulkCopy(all, dsl.At(0), part, dsl.At(0), k.U32(4*64*ringGrid), gathered, dsl.At(0))
			})
			k.If(k.Warp().EqC(0), func() {
				gathered.Wait(dsl.At(0), k.U32(0))
				total := k.U32(0)
				for i := range 2 * ringGrid {
					total = total.Add(all.Load(k.Lane().AddC(32 * i)))
				}
				total = dsl.WarpSum(total)
				k.If(lane0, func() { out.Store(k.CTA(), total) })
			})
		}},
		dsl.Role{Name: "producer", First: ringConsumers, End: ringConsumers + 1, Body: func() {
			k.If(lane0, func() {
				k.For(k.U32(0), k.U32(ringChunks), func(c dsl.Val[dsl.U32]) {
					s := c.Rem(k.U32(ringStages))
					empty.Wait(s, c.DivC(ringStages).AddC(1).And(k.U32(1)))
					full.ArriveExpect(s, k.U32(chunkBytes))
					dsl.BulkCopy(ring, s.MulC(ringWords), w, k.CTA().MulC(ringChunks).Add(c).MulC(ringWords), k.U32(chunkBytes), full,
						s)
				})
			})
		}},
	)
}

func TestRingAndGridBarrierComputeTheSum(t *testing.T) {
	p := build(t, ringConsumers+1, ringGrid, ringKernel)
	words, want := make([]uint32, ringGrid*ringChunks*ringWords), uint32(0)
	for i := range words {
		words[i] = uint32(i * i)
		want += words[i]
	}
	for seed := range uint64(60) {
		m := bufs(p)
		m.Bind("w", putU32s(words...))
		r := run(t, p, m, seed)
		require.Equal(t, []uint32{want, want}, u32s(m.Bytes("out")), "seed %d", seed)
		require.EqualValues(t, ringChunks+1, r.CTAs[0].Copies)
		again := bufs(p)
		again.Bind("w", putU32s(words...))
		require.Equal(t, r, run(t, p, again, seed), "the same seed gives the same run")
	}
}

func TestProgramIsSmall(t *testing.T) {
	p := build(t, ringConsumers+1, ringGrid, ringKernel)
	require.Less(t, p.Registers(), 20)
	_, err := p.Run(interp.NewMemory(), interp.Options{})
	require.ErrorContains(t, err, "global buffer @w is not bound")
}
