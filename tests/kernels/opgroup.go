package kernels

import (
	"encoding/binary"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
)

// clusterOps are those of clusters, here of one CTA, and of the choice of a lane.
func clusterOps(r *rows) {
	k := r.k
	one := dsl.WarpSum(dsl.Select(k.Elect(), k.U32(1), k.U32(0)))
	r.put(ir.OpElect, "lanes that hold", one)
	r.put(ir.OpClusterRank, "rank + 1", k.ClusterRank().AddC(1))
	box := dsl.Shared[dsl.U32](k, "cluster_box", rowThreads/rowGrid)
	box.Store(k.Tid(), r.u)
	k.ClusterBarrier()
	r.put(ir.OpBarCluster, "words of other warps", box.Load(k.Tid().XorC(33)))
	bar := dsl.NewMBars(k, "cluster_bar", 1)
	k.If(k.Tid().EqC(0), func() {
		bar.Init(dsl.At(0), k.U32(rowThreads/rowGrid))
		k.FenceMBarInit()
	})
	k.ClusterBarrier()
	bar.ArriveAt(dsl.At(0), k.U32(0))
	bar.Wait(dsl.At(0), k.U32(0))
	r.put(ir.OpMBarArriveAt, "all have come", k.U32(1))
}

// tensorMaps copies boxes of an array of three dimensions: one inside, one over an edge of each dimension, one before
// the first element.
func tensorMaps(r *rows) {
	k := r.k
	const boxes, words = 3, 2 * 3 * 16 // a box is 2×3×32 elements of 2 bytes
	src := r.words("tensor_in", 3)
	m := dsl.NewTensorMap(k, "tensor_map", src, 64, [3]int64{48, 5, 4}, [2]int64{96, 480}, [3]int{32, 3, 2})
	stage := dsl.Shared[dsl.U32](k, "tensor_stage", boxes*128, dsl.Align(128))
	bar := dsl.NewMBars(k, "tensor_landed", 1)
	k.If(k.Tid().EqC(0), func() {
		bar.Init(dsl.At(0), k.U32(1))
		k.FenceMBarInit()
	})
	k.Barrier()
	k.If(k.Tid().EqC(0), func() {
		bar.ArriveExpect(dsl.At(0), k.U32(boxes*m.BoxBytes()))
		for n, at := range [boxes][3]int{{8, 1, 2}, {32, 3, 3}, {-8, 0, -1}} {
			c := [3]dsl.Val[dsl.I32]{k.I32(at[0]), k.I32(at[1]), k.I32(at[2])}
			dsl.TensorCopy(stage, dsl.At(128*n), m, c, bar, dsl.At(0), uint16(n&1))
		}
	})
	bar.Wait(dsl.At(0), k.U32(0))
	for n, name := range [boxes]string{"inside", "over the end", "before the start"} {
		r.put(ir.OpTensorG2S, name, stage.Load(k.Tid().RemC(words).AddC(128*n)))
	}
}

// warpgroups multiplies matrices of small integers on the CTA's one warpgroup: A from memory and from registers, rows
// of 64 bytes and of 128.
func warpgroups(r *rows) {
	k := r.k
	const columns = 24
	r.bytes("group_in", smallMatrices(4096))
	in := dsl.Global[dsl.U32](k, "group_in", 4096, dsl.ReadOnly())
	tile := dsl.Shared[dsl.U32](k, "group_tile", 4096, dsl.Align(1024))
	k.ForStep(k.Tid(), k.U32(4096), rowThreads/rowGrid, func(i dsl.Val[dsl.U32]) { tile.Store(i, in.Load(i)) })
	k.FenceProxyAsyncShared()
	k.Barrier()
	k.FewerRegisters(168)
	r.put(ir.OpSetMaxReg, "fewer", k.U32(1))
	k.Barrier()
	k.MoreRegisters(168)
	r.put(ir.OpSetMaxReg, "as many again", k.U32(1))
	sums := dsl.NewArray(dsl.Cast[dsl.F32](k.Lane()), columns/2, "sum")
	var fa [4]*dsl.Var[dsl.BF16x2]
	for i := range fa {
		fa[i] = dsl.NewVar(dsl.Bits[dsl.BF16x2](in.Load(k.Tid().MulC(4).AddC(i))), "fragment")
	}
	narrow, wide := dsl.Tile{Swizzle: 64, Stride: 1024}, dsl.Tile{Swizzle: 128, Stride: 1024}
	across := func(t dsl.Tile) dsl.Tile { return dsl.Tile{Swizzle: t.Swizzle, Stride: t.Stride, Across: 2048} }
	const b = 2048 // words behind A
	steps := []struct {
		op   ir.Op
		name string
		run  func()
	}{
		{ir.OpWGMMAFence, "64 bytes a row",
			func() { dsl.WGMMA[dsl.BF16x2](sums, tile, dsl.At(0), narrow, tile, dsl.At(b), narrow) }},
		{ir.OpWGMMA, "64 bytes, second half",
			func() { dsl.WGMMA[dsl.BF16x2](sums, tile, dsl.At(8), narrow, tile, dsl.At(b+8), narrow) }},
		{ir.OpWGMMA, "128 bytes a row",
			func() { dsl.WGMMA[dsl.BF16x2](sums, tile, dsl.At(24), wide, tile, dsl.At(b+16), wide) }},
		{ir.OpWGMMACommit, "A in registers", func() { dsl.WGMMARegisters(sums, fa, tile, dsl.At(b), narrow) }},
		{ir.OpWGMMA, "columns in rows of 64 bytes", func() {
			dsl.WGMMARegisters(sums, fa, tile, dsl.At(b+4),
				across(narrow))
		}},
		{ir.OpWGMMA, "columns in rows of 128 bytes", func() {
			dsl.WGMMA[dsl.BF16x2](sums, tile, dsl.At(0), wide, tile,
				dsl.At(b), across(wide))
		}},
		{ir.OpWGMMA, "sums set", func() { dsl.WGMMARegisters(sums, fa, tile, dsl.At(b), narrow, dsl.Overwrite) }},
		{ir.OpWGMMAWait, "two in a group", func() {
			dsl.WGMMA[dsl.BF16x2](sums, tile, dsl.At(0), wide, tile, dsl.At(b), narrow)
			dsl.WGMMA[dsl.BF16x2](sums, tile, dsl.At(8), narrow, tile, dsl.At(b), wide)
		}},
	}
	for _, s := range steps {
		k.WGMMAFence()
		s.run()
		k.WGMMACommit()
		k.WGMMAWait(0)
		for _, sum := range sums {
			r.putF(s.op, s.name, sum.Get()).Check = Zero
		}
	}
}

// smallMatrices are words of two bf16, whole numbers from −4 to 4.
func smallMatrices(words int) []byte {
	data := make([]byte, 4*words)
	for i := range 2 * words {
		bits := [...]uint16{0, 0x3f80, 0x4000, 0x4040, 0x4080, 0xbf80, 0xc000, 0xc040, 0xc080}[i*i%89%9]
		binary.LittleEndian.PutUint16(data[2*i:], bits)
	}
	return data
}
