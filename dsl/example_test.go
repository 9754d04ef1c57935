package dsl_test

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
)

// gemv is y = W·x for bf16 weights: one warp a row, 8 columns a lane at a time.
func gemv(k *dsl.Kernel, rows, cols int) {
	w := dsl.Global[dsl.BF16](k, "w", int64(rows*cols), dsl.ReadOnly(), dsl.Doc("weights, row-major"))
	x := dsl.Global[dsl.F32](k, "x", int64(cols), dsl.ReadOnly())
	y := dsl.Global[dsl.F32](k, "y", int64(rows))
	k.Require(cols%256 == 0, "gemv of %d columns, want a multiple of 256", cols)
	row := k.CTA().MulC(4).Add(k.Warp()).Named("row")
	k.If(row.LtC(rows), func() {
		sum := dsl.NewVar(k.F32(0), "sum")
		start := k.Lane().MulC(8)
		k.ForStep(k.U32(0), k.U32(cols), 256, func(i dsl.Val[dsl.U32]) {
			col := i.Add(start).Named("col")
			words := dsl.View[dsl.B128](w).Load(row.MulC(cols).Add(col).DivC(8), dsl.CacheHint(ir.EvictFirst))
			for j, word := range dsl.Split(words) {
				lo, hi := dsl.Unpack[dsl.BF16x2](dsl.Bits[dsl.BF16x2](word))
				xs := x.LoadN(col.AddC(2*j), 2)
				sum.Set(dsl.FMA(lo, xs[0], dsl.FMA(hi, xs[1], sum.Get())))
			}
		}, dsl.Unroll(2))
		total := dsl.WarpSum(sum.Get())
		k.If(k.Lane().EqC(0), func() { y.Store(row, total) })
	})
}

func Example() {
	k := dsl.New("gemv", dsl.Options{Warps: 4, Grid: 16})
	k.Region("gemv", func() { gemv(k, 64, 512) })
	p, err := k.Finish()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(p)
	// Output:
	// kernel gemv warps=4 grid=16 shared=0/0
	// global @w:bf16[32768] align=16 readonly  // weights, row-major
	// global @x:f32[512] align=8 readonly
	// global @y:f32[64] align=4
	// view @w:b128[4096] of @w offset=0
	// {
	//   region "gemv" {
	//     v0:u32 = cta
	//     v1:u32 = mul v0, 4
	//     v2:u32 = warp
	//     v3.row:u32 = add v1, v2
	//     v4:pred = lt v3, 64
	//     if v4 {
	//       %sum0:f32 = var 0.0
	//       v5:u32 = lane
	//       v6:u32 = mul v5, 8
	//       for v7:u32 in 0..512 step 256 unroll 2 {
	//         v8.col:u32 = add v7, v6
	//         v9:u32 = mul v3, 512
	//         v10:u32 = add v9, v8
	//         v11:u32 = div v10, 8
	//         v12:b128 = ld.b128 @w:b128[v11] hint=evict_first
	//         v13:u32, v14:u32, v15:u32, v16:u32 = split v12
	//         v17:bf16x2 = bits v13
	//         v18:f32, v19:f32 = unpack v17
	//         v20:f32, v21:f32 = ld.f32 @x[v8] lanes=2
	//         v22:f32 = get %sum0
	//         v23:f32 = fma v19, v21, v22
	//         v24:f32 = fma v18, v20, v23
	//         set %sum0, v24
	//         v25:bf16x2 = bits v14
	//         v26:f32, v27:f32 = unpack v25
	//         v28:u32 = add v8, 2
	//         v29:f32, v30:f32 = ld.f32 @x[v28] lanes=2
	//         v31:f32 = get %sum0
	//         v32:f32 = fma v27, v30, v31
	//         v33:f32 = fma v26, v29, v32
	//         set %sum0, v33
	//         v34:bf16x2 = bits v15
	//         v35:f32, v36:f32 = unpack v34
	//         v37:u32 = add v8, 4
	//         v38:f32, v39:f32 = ld.f32 @x[v37] lanes=2
	//         v40:f32 = get %sum0
	//         v41:f32 = fma v36, v39, v40
	//         v42:f32 = fma v35, v38, v41
	//         set %sum0, v42
	//         v43:bf16x2 = bits v16
	//         v44:f32, v45:f32 = unpack v43
	//         v46:u32 = add v8, 6
	//         v47:f32, v48:f32 = ld.f32 @x[v46] lanes=2
	//         v49:f32 = get %sum0
	//         v50:f32 = fma v45, v48, v49
	//         v51:f32 = fma v44, v47, v50
	//         set %sum0, v51
	//       }
	//       v52:f32 = get %sum0
	//       v53:f32 = shfl.xor v52, 16
	//       v54:f32 = add v52, v53
	//       v55:f32 = shfl.xor v54, 8
	//       v56:f32 = add v54, v55
	//       v57:f32 = shfl.xor v56, 4
	//       v58:f32 = add v56, v57
	//       v59:f32 = shfl.xor v58, 2
	//       v60:f32 = add v58, v59
	//       v61:f32 = shfl.xor v60, 1
	//       v62:f32 = add v60, v61
	//       v63:u32 = lane
	//       v64:pred = eq v63, 0
	//       if v64 {
	//         st.f32 @y[v3], v62
	//       }
	//     }
	//   }
	// }
}
