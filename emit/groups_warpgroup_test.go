package emit_test

import (
	"github.com/mkgen/mkgen/dsl"
)

// warpgroup spells wgmma with both places of A, all element types and both swizzles.
func warpgroup(k *dsl.Kernel) {
	out := dsl.Global[dsl.F32](k, "out", 0)
	in := dsl.Global[dsl.U32](k, "in", 0)
	a := dsl.Shared[dsl.BF16](k, "a", 64*64, dsl.Align(1024))
	b := dsl.Shared[dsl.BF16](k, "b", 64*64, dsl.Align(1024))
	narrow, wide := dsl.Tile{Swizzle: 64, Stride: 512}, dsl.Tile{Swizzle: 128, Stride: 1024}
	k.FewerRegisters(104)
	k.MoreRegisters(152)
	view := dsl.View[dsl.U32](a)
	view.StoreN(k.Tid().MulC(4), in.LoadN(k.Tid().MulC(4), 4))
	k.FenceProxyAsyncShared()
	k.Barrier()
	sums := dsl.NewArray(k.F32(0), 32, "sum")
	words := in.LoadN(k.Tid().MulC(4), 4)
	var fa [4]*dsl.Var[dsl.BF16x2]
	var ha [4]*dsl.Var[dsl.F16x2]
	for i, w := range words {
		fa[i], ha[i] = dsl.NewVar(dsl.Bits[dsl.BF16x2](w), "fa"), dsl.NewVar(dsl.Bits[dsl.F16x2](w), "ha")
	}
	k.WGMMAFence()
	for i := range 2 {
		dsl.WGMMA[dsl.BF16x2](sums, a, dsl.At(16*i), narrow, b, dsl.At(16*i), narrow)
		dsl.WGMMA[dsl.F16x2](sums, a, dsl.At(16*i), wide, b, dsl.At(16*i), wide)
		dsl.WGMMA[dsl.E4M3x2](sums, a, dsl.At(16*i), narrow, b, dsl.At(16*i), narrow)
	}
	k.WGMMACommit()
	dsl.WGMMARegisters(sums, fa, b, dsl.At(0), narrow)
	dsl.WGMMARegisters(sums, ha, b, dsl.At(0), narrow)
	dsl.WGMMARegisters(sums, fa, b, dsl.At(0), dsl.Tile{Swizzle: 128, Stride: 1024, Across: 1024}, dsl.Overwrite)
	dsl.WGMMA[dsl.BF16x2](sums, a, dsl.At(0), wide, b, dsl.At(0), dsl.Tile{Swizzle: 64, Stride: 1024, Across: 512})
	k.WGMMACommit()
	k.WGMMAWait(1)
	k.WGMMAWait(0)
	for i, s := range sums {
		out.Store(k.Tid().AddC(128*i), s.Get())
	}
}

// cluster has two CTAs that give each other halves of a tile.
func cluster(k *dsl.Kernel) {
	w := dsl.Global[dsl.BF16](k, "w", 1<<16, dsl.ReadOnly(), dsl.Doc("weights"))
	out := dsl.Global[dsl.U32](k, "out", 0)
	tile := dsl.Shared[dsl.U32](k, "tile", 2048, dsl.Align(1024))
	bars := dsl.NewMBars(k, "bars", 2)
	half := dsl.NewTensorMap(k, "half", w, 0, [3]int64{256, 8, 32}, [2]int64{512, 4096}, [3]int{256, 2, 4},
		dsl.Doc("of w"))
	k.If(k.Tid().EqC(0), func() {
		bars.Init(dsl.At(0), k.U32(1))
		bars.Init(dsl.At(1), k.U32(2))
		k.FenceMBarInit()
	})
	k.ClusterBarrier()
	rank := k.ClusterRank().Named("rank")
	k.If(k.Warp().EqC(0), func() {
		k.If(k.Elect(), func() {
			bars.ArriveExpect(dsl.At(0), k.U32(2*half.BoxBytes()))
			at := [3]dsl.Val[dsl.I32]{k.I32(0), k.I32(2), dsl.Bits[dsl.I32](rank.MulC(4))}
			dsl.TensorCopy(tile, rank.MulC(1024), half, at, bars, dsl.At(0), 3)
			dsl.TensorCopy(tile, rank.MulC(1024), half, at, bars, dsl.At(0), 0)
		})
	})
	bars.Wait(dsl.At(0), k.U32(0))
	out.Store(k.CTA().MulC(128).Add(k.Tid()), tile.Load(k.Tid()))
	k.If(k.Tid().EqC(0), func() { bars.ArriveAt(dsl.At(1), rank.XorC(1)) })
	k.ClusterBarrier()
}
