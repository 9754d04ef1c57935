package interp_test

import (
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/stretchr/testify/require"
)

// none is no fence.
func none(*dsl.Kernel) {}

func proxyAll(k *dsl.Kernel)    { k.FenceProxyAsync() }
func proxyShared(k *dsl.Kernel) { k.FenceProxyAsyncShared() }
func proxyGlobal(k *dsl.Kernel) { k.FenceProxyAsyncGlobal() }

// generic write of global memory, then an async read of it: by writer (before
// its release) and by reader (behind its acquire) fences can stand.
func readAfterWrite(writer, reader func(k *dsl.Kernel), grid int) func(k *dsl.Kernel) {
	return func(k *dsl.Kernel) {
		x, flag := dsl.Global[dsl.U32](k, "x", 32), dsl.Global[dsl.U32](k, "flag", 1)
		out := dsl.Global[dsl.U32](k, "out", 32)
		dst, bar := dsl.Shared[dsl.U32](k, "dst", 32), dsl.NewMBars(k, "bar", 1)
		first, last := k.CTA().EqC(0), k.CTA().EqC(grid-1)
		k.If(first, func() {
			x.Store(k.Lane(), k.Lane().MulC(3))
			writer(k)
			k.SyncWarp()
			k.If(k.Lane().EqC(0), func() { flag.Store(dsl.At(0), k.U32(1), rel) })
		})
		k.If(last, func() {
			k.If(k.Lane().EqC(0), func() {
				bar.Init(dsl.At(0), k.U32(1))
				k.FenceMBarInit()
				dsl.WaitUntil(flag, dsl.At(0), dsl.EQ, k.U32(1), acq)
				reader(k)
				bar.ArriveExpect(dsl.At(0), k.U32(128))
				dsl.BulkCopy(dst, dsl.At(0), x, dsl.At(0), k.U32(128), bar, dsl.At(0))
			})
			k.SyncWarp()
			bar.Wait(dsl.At(0), k.U32(0))
			out.Store(k.Lane(), dst.Load(k.Lane()))
		})
	}
}

// stageReuse fills a stage twice; between, all lanes read it (or write it), and
// the fences stand before the hand-over and behind it.
func stageReuse(write bool, before, behind func(k *dsl.Kernel)) func(k *dsl.Kernel) {
	return func(k *dsl.Kernel) {
		x, out := dsl.Global[dsl.U32](k, "x", 64, dsl.ReadOnly()), dsl.Global[dsl.U32](k, "out", 64)
		dst := dsl.Shared[dsl.U32](k, "dst", 32)
		full, empty := dsl.NewMBars(k, "full", 1), dsl.NewMBars(k, "empty", 1)
		k.If(k.Tid().EqC(0), func() {
			full.Init(dsl.At(0), k.U32(1))
			empty.Init(dsl.At(0), k.U32(1))
			k.FenceMBarInit()
		})
		k.Barrier()
		k.Roles(
			dsl.Role{Name: "producer", First: 0, End: 1, Body: func() {
				k.If(k.Lane().EqC(0), func() {
					for i := range 2 {
						empty.Wait(dsl.At(0), k.U32(1-i))
						behind(k)
						full.ArriveExpect(dsl.At(0), k.U32(128))
						dsl.BulkCopy(dst, dsl.At(0), x, dsl.At(32*i), k.U32(128), full, dsl.At(0))
					}
				})
			}},
			dsl.Role{Name: "consumer", First: 1, End: 2, Body: func() {
				for i := range 2 {
					full.Wait(dsl.At(0), k.U32(i))
					if write && i == 0 {
						dst.Store(k.Lane(), k.U32(9))
					} else {
						out.Store(k.Lane().AddC(32*i), dst.Load(k.Lane()))
					}
					before(k)
					k.SyncWarp()
					k.If(k.Lane().EqC(0), func() { empty.Arrive(dsl.At(0)) })
				}
			}},
		)
	}
}

func TestProxyFences(t *testing.T) {
	tests := []struct {
		name string
		body func(k *dsl.Kernel)
		want interp.Kind
	}{
		{"RAW without a fence", readAfterWrite(none, none, 1), interp.ProxyRace},
		{"RAW, fence at the writer", readAfterWrite(proxyAll, none, 1), interp.NoFault},
		{"RAW, fence at the reader", readAfterWrite(none, proxyAll, 1), interp.NoFault},
		{"RAW, global fence", readAfterWrite(none, proxyGlobal, 1), interp.NoFault},
		{"RAW, shared fence does not cover global memory", readAfterWrite(proxyShared, proxyShared, 1), interp.ProxyRace},
		{"RAW over CTAs without a fence", readAfterWrite(none, none, 2), interp.ProxyRace},
		{"RAW over CTAs, fence at the reader only", readAfterWrite(none, proxyGlobal, 2), interp.ProxyRace},
		{"RAW over CTAs, fence at the writer only", readAfterWrite(proxyGlobal, none, 2), interp.ProxyRace},
		{"RAW over CTAs, fences at both", readAfterWrite(proxyGlobal, proxyAll, 2), interp.NoFault},
		{"RAW over CTAs, one of shared memory only", readAfterWrite(proxyShared, proxyGlobal, 2), interp.ProxyRace},
		{"WAR without a fence", stageReuse(false, none, none), interp.ProxyRace},
		{"WAR, fence at the consumers", stageReuse(false, proxyShared, none), interp.NoFault},
		{"WAR, fence at the producer", stageReuse(false, none, proxyShared), interp.NoFault},
		{"WAR, global fence does not cover shared memory", stageReuse(false, proxyGlobal, proxyGlobal), interp.ProxyRace},
		{"WAW without a fence", stageReuse(true, none, none), interp.ProxyRace},
		{"WAW, fence at the consumers", stageReuse(true, proxyAll, none), interp.NoFault},
		{"WAW, fence at the producer", stageReuse(true, none, proxyAll), interp.NoFault},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			grid := 1
			if len(tt.name) > 14 && tt.name[4:13] == "over CTAs" {
				grid = 2
			}
			p := build(t, 2, grid, func(k *dsl.Kernel) {
				if tt.name[:3] == "RAW" { // one warp of two
					k.If(k.Warp().EqC(0), func() { tt.body(k) })
					return
				}
				tt.body(k)
			})
			if tt.want == interp.NoFault {
				clean(t, p, 40)
				return
			}
			for range 5 {
				f := faultIn(t, p, 1)
				require.Equal(t, tt.want, f.Kind, f.Error())
			}
		})
	}
}

func TestWriteReportNamesTheStage(t *testing.T) {
	p := build(t, 2, 1, stageReuse(false, none, none))
	f := faultIn(t, p, 1)
	require.Contains(t, f.Error(),
		"a stage is overwritten before it was drained: element 0 of @dst: this bulk-copy write and an earlier read are ordered, but no fence.proxy.async lies between")
	require.Equal(t, "dst", f.Buffer)
	require.Contains(t, f.Sides[0].Thread, "cta 0 warp 0 lane 0")
	require.Contains(t, f.Sides[1].Thread, "cta 0 warp 1 lane 0")
}

// taggedWords sends (tag, data) in one access; a torn read sees a new tag with
// old data.
func taggedWords(t *testing.T, store func(x dsl.Buf[dsl.U32], k *dsl.Kernel, v dsl.Val[dsl.U32]),
	load func(x dsl.Buf[dsl.U32]) []dsl.Val[dsl.U32]) (torn int) {
	p := build(t, 1, 2, func(k *dsl.Kernel) {
		x, out := dsl.Global[dsl.U32](k, "x", 4, dsl.Align(16)), dsl.Global[dsl.U32](k, "out", 4)
		k.If(k.Lane().EqC(0), func() {
			k.IfElse(k.CTA().EqC(0), func() { store(x, k, k.U32(1)) }, func() {
				for i, v := range load(x) {
					out.Store(dsl.At(i), v)
				}
			})
		})
	})
	for s := range litmusSeeds {
		m := bufs(p)
		run(t, p, m, uint64(s))
		if o := u32s(m.Bytes("out")); o[0] != o[3] {
			torn++
		}
	}
	return torn
}

func TestVectorAccessesTearAndScalarOnesDoNot(t *testing.T) {
	require.NotZero(t, taggedWords(t,
		func(x dsl.Buf[dsl.U32], k *dsl.Kernel, v dsl.Val[dsl.U32]) {
			x.StoreN(dsl.At(0), []dsl.Val[dsl.U32]{v, v, v, v}, rlx)
		},
		func(x dsl.Buf[dsl.U32]) []dsl.Val[dsl.U32] { return x.LoadN(dsl.At(0), 4, rlx) }))
	require.Zero(t, taggedWords(t,
		func(x dsl.Buf[dsl.U32], k *dsl.Kernel, v dsl.Val[dsl.U32]) {
			dsl.View[dsl.B128](x).Store(dsl.At(0), dsl.Join(v, v, v, v), rlx)
		},
		func(x dsl.Buf[dsl.U32]) []dsl.Val[dsl.U32] {
			return dsl.Split(dsl.View[dsl.B128](x).Load(dsl.At(0), dsl.Relaxed(ir.GPU)))
		}))
}
