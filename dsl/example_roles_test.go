package dsl_test

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl"
)

// stream sums n chunks of 256 words that one producer lane copies into a ring
// of two stages while two warps add up.
func stream(k *dsl.Kernel, n dsl.Val[dsl.U32]) {
	src := dsl.Global[dsl.U32](k, "src", 0, dsl.ReadOnly())
	ring := dsl.Shared[dsl.U32](k, "ring", 2*256, dsl.Align(128))
	full, empty := dsl.NewMBars(k, "full", 2), dsl.NewMBars(k, "empty", 2)
	k.If(k.Tid().LtC(2), func() {
		full.Init(k.Tid(), k.U32(1))
		empty.Init(k.Tid(), k.U32(2))
		k.FenceMBarInit()
	})
	k.Barrier()
	produce := func() {
		k.For(k.U32(0), n, func(i dsl.Val[dsl.U32]) {
			stage, parity := i.AndC(1).Named("stage"), i.ShrC(1).AndC(1).Named("parity")
			empty.Wait(stage, parity.XorC(1))
			k.If(k.Lane().EqC(0), func() {
				k.FenceProxyAsyncShared()
				full.ArriveExpect(stage, k.U32(1024))
				dsl.BulkCopy(ring, stage.MulC(256), src, i.MulC(256), k.U32(1024), full, stage)
			})
		})
	}
	consume := func() {
		sum := dsl.NewVar(k.U32(0), "sum")
		k.For(k.U32(0), n, func(i dsl.Val[dsl.U32]) {
			stage, parity := i.AndC(1).Named("stage"), i.ShrC(1).AndC(1).Named("parity")
			full.Wait(stage, parity)
			for _, word := range ring.LoadN(stage.MulC(256).Add(k.Tid().MulC(4)), 4) {
				sum.Set(sum.Get().Add(word))
			}
			k.SyncWarp()
			k.If(k.Lane().EqC(0), func() { empty.Arrive(stage) })
		})
		dsl.Global[dsl.U32](k, "sums", 64).Store(k.Tid(), sum.Get())
	}
	k.Roles(dsl.Role{Name: "consumer", First: 0, End: 2, Body: consume},
		dsl.Role{Name: "producer", First: 2, End: 3, Body: produce})
}

func Example_roles() {
	k := dsl.New("stream", dsl.Options{Warps: 3, Grid: 1, SharedLimit: 4096})
	stream(k, dsl.Scalar[dsl.U32](k, "chunks", "how many chunks"))
	p, err := k.Finish()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(p)
	// Output:
	// kernel stream warps=3 grid=1 shared=2080/4096
	// param chunks:u32  // how many chunks
	// global @src:u32[] align=16 readonly
	// shared @ring:u32[512] offset=0 align=128
	// shared @full:mbar[2] offset=2048 align=8
	// shared @empty:mbar[2] offset=2064 align=8
	// global @sums:u32[64] align=4
	// {
	//   v0.chunks:u32 = param chunks
	//   v1:u32 = tid
	//   v2:pred = lt v1, 2
	//   if v2 {
	//     v3:u32 = tid
	//     mbar.init @full[v3], 1
	//     v4:u32 = tid
	//     mbar.init @empty[v4], 2
	//     fence.mbarrier_init
	//   }
	//   bar.cta
	//   roles {
	//     consumer warps 0..2 {
	//       %sum0:u32 = var 0
	//       for v5:u32 in 0..v0 step 1 {
	//         v6.stage:u32 = and v5, 1
	//         v7:u32 = shr v5, 1
	//         v8.parity:u32 = and v7, 1
	//         wait.mbar @full[v6], v8
	//         v9:u32 = mul v6, 256
	//         v10:u32 = tid
	//         v11:u32 = mul v10, 4
	//         v12:u32 = add v9, v11
	//         v13:u32, v14:u32, v15:u32, v16:u32 = ld.u32 @ring[v12] lanes=4
	//         v17:u32 = get %sum0
	//         v18:u32 = add v17, v13
	//         set %sum0, v18
	//         v19:u32 = get %sum0
	//         v20:u32 = add v19, v14
	//         set %sum0, v20
	//         v21:u32 = get %sum0
	//         v22:u32 = add v21, v15
	//         set %sum0, v22
	//         v23:u32 = get %sum0
	//         v24:u32 = add v23, v16
	//         set %sum0, v24
	//         syncwarp
	//         v25:u32 = lane
	//         v26:pred = eq v25, 0
	//         if v26 {
	//           mbar.arrive @empty[v6]
	//         }
	//       }
	//       v27:u32 = tid
	//       v28:u32 = get %sum0
	//       st.u32 @sums[v27], v28
	//     }
	//     producer warps 2..3 {
	//       for v29:u32 in 0..v0 step 1 {
	//         v30.stage:u32 = and v29, 1
	//         v31:u32 = shr v29, 1
	//         v32.parity:u32 = and v31, 1
	//         v33:u32 = xor v32, 1
	//         wait.mbar @empty[v30], v33
	//         v34:u32 = lane
	//         v35:pred = eq v34, 0
	//         if v35 {
	//           fence.proxy.async.shared
	//           mbar.expect @full[v30], 1024
	//           v36:u32 = mul v30, 256
	//           v37:u32 = mul v29, 256
	//           bulk.g2s @ring[v36], @src[v37], @full[v30], 1024
	//         }
	//       }
	//     }
	//   }
	// }
}
