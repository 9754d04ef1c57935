package interp_test

import (
	"fmt"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/stretchr/testify/require"
)

// copyWork copies a unit a lane in two groups; another lane of the warp reads each. A knob for every mistake.
type copyWork struct {
	noCommit, noWait, noSync, early, overwrite, source, twice bool
	pending                                                   int
}

func (c copyWork) build(k *dsl.Kernel) {
	in, out := dsl.Global[dsl.U32](k, "in", 512, dsl.Align(16)), dsl.Global[dsl.U32](k, "out", 128)
	stage := dsl.Shared[dsl.U32](k, "stage", 256, dsl.Align(16))
	lane := k.Lane()
	dsl.CopyAsync(stage, lane.MulC(4), in, lane.MulC(4))
	k.CopyCommit()
	if c.twice {
		stage.Store(lane.MulC(4), lane)
	}
	dsl.CopyAsync(stage, lane.MulC(4).AddC(128), in, lane.MulC(4).AddC(128))
	if !c.noCommit {
		k.CopyCommit()
	}
	k.CopyWait(1)
	if c.early {
		out.Store(lane, stage.Load(lane.MulC(4).AddC(128)))
	}
	if c.source {
		in.Store(lane.MulC(4).AddC(128), lane)
	}
	if c.overwrite {
		stage.Store(lane.MulC(4).AddC(128), lane)
	}
	if !c.noWait {
		k.CopyWait(c.pending)
	}
	if !c.noSync {
		k.SyncWarp()
	}
	other := lane.XorC(1).MulC(4)
	out.Store(lane, stage.Load(other).Add(stage.Load(other.AddC(128))))
}

func TestAsyncCopiesMoveAUnitALane(t *testing.T) {
	p := build(t, 1, 1, copyWork{}.build)
	m := bufs(p)
	for i := range u32s(m.Bytes("in")) {
		m.Bytes("in")[4*i] = byte(i)
	}
	run(t, p, m, 1)
	for l := range 32 {
		a, b := byte(4*(l^1)), byte(4*(l^1)+128)
		require.Equal(t, uint32(a)+uint32(b), u32s(m.Bytes("out"))[l])
	}
	clean(t, p, 7)
}

func TestFaultsOfAsyncCopies(t *testing.T) {
	const reads = "this read and an earlier cp.async write are not ordered"
	for _, c := range []struct {
		name string
		work copyWork
		kind interp.Kind
		text string
	}{
		{"read before the wait", copyWork{early: true}, interp.DataRace, reads},
		{"a wait for one group of two", copyWork{pending: 1}, interp.DataRace, reads},
		{"no wait for the second group", copyWork{noWait: true}, interp.DataRace, reads},
		{"the last copies in no group", copyWork{noCommit: true}, interp.DataRace, reads},
		{"another lane's copies without a syncwarp", copyWork{noSync: true}, interp.DataRace, reads},
		{"a store over a copy under way", copyWork{twice: true}, interp.DataRace, "an earlier cp.async write are not ordered"},
		{"a place overwritten", copyWork{overwrite: true}, interp.DataRace, "an earlier cp.async write are not ordered"},
		{"what is copied, overwritten", copyWork{source: true}, interp.DataRace, "an earlier cp.async read are not ordered"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := faultIn(t, build(t, 1, 1, c.work.build), 3)
			require.Equal(t, c.kind, f.Kind, f.Error())
			require.Contains(t, f.Text, c.text)
			require.GreaterOrEqual(t, len(f.Sides), 2)
		})
	}
}

// What all lanes copy from one place may be overwritten once each knows of all others' waits.
func TestTheSourceOfAllLanesCopiesIsOverwrittenBehindTheirWaits(t *testing.T) {
	kernel := func(sync bool) *interp.Program {
		return build(t, 1, 1, func(k *dsl.Kernel) {
			in := dsl.Global[dsl.U32](k, "in", 4, dsl.Align(16))
			stage := dsl.Shared[dsl.U32](k, "stage", 128, dsl.Align(16))
			dsl.CopyAsync(stage, k.Lane().MulC(4), in, k.U32(0))
			k.CopyCommit()
			k.CopyWait(0)
			if sync {
				k.SyncWarp()
			}
			k.If(k.Lane().EqC(5), func() { in.Store(dsl.At(0), k.U32(1)) })
		})
	}
	clean(t, kernel(true), 7)
	f := faultIn(t, kernel(false), 3)
	require.Equal(t, interp.DataRace, f.Kind, f.Error())
	require.Contains(t, f.Text, "an earlier cp.async read are not ordered")
}

// A wgmma reads in the async proxy what cp.async wrote in the generic one: behind the wait a proxy fence.
func TestAWGMMAOfWhatAsyncCopiesBrought(t *testing.T) {
	kernel := func(fence, wait bool) *interp.Program {
		return build(t, 4, 1, func(k *dsl.Kernel) {
			in, out := dsl.Global[dsl.U32](k, "in", 2048, dsl.Align(16)), dsl.Global[dsl.F32](k, "out", 128)
			tile := dsl.Shared[dsl.U32](k, "tile", 2048, dsl.Align(1024))
			k.ForStep(k.Tid().MulC(4), k.U32(2048), 512, func(i dsl.Val[dsl.U32]) { dsl.CopyAsync(tile, i, in, i) })
			k.CopyCommit()
			if wait {
				k.CopyWait(0)
			}
			if fence {
				k.FenceProxyAsyncShared()
			}
			k.Barrier()
			sums := dsl.NewArray(k.F32(0), 4, "sum")
			narrow := dsl.Tile{Swizzle: 64, Stride: 512}
			k.WGMMAFence()
			dsl.WGMMA[dsl.BF16x2](sums, tile, dsl.At(0), narrow, tile, dsl.At(0), narrow)
			k.WGMMACommit()
			k.WGMMAWait(0)
			out.Store(k.Tid(), sums[0].Get())
			if !wait {
				k.CopyWait(0)
			}
		})
	}
	clean(t, kernel(true, true), 7)
	for _, c := range []struct {
		fence, wait bool
		kind        interp.Kind
	}{{false, true, interp.ProxyRace}, {true, false, interp.DataRace}} {
		f := faultIn(t, kernel(c.fence, c.wait), 3)
		require.Equal(t, c.kind, f.Kind, fmt.Sprint(c, f.Error()))
		require.Contains(t, f.Text, "an earlier cp.async write")
	}
}

func TestFaultsOfAddressesOfAsyncCopies(t *testing.T) {
	at := func(dst, src int) *interp.Program {
		return build(t, 1, 1, func(k *dsl.Kernel) {
			in := dsl.Global[dsl.U32](k, "in", 512, dsl.Align(16))
			stage := dsl.Shared[dsl.U32](k, "stage", 256, dsl.Align(16))
			dsl.CopyAsync(stage, k.Lane().MulC(4).AddC(dst), in, k.Lane().MulC(4).AddC(src))
			k.CopyCommit()
			k.CopyWait(0)
		})
	}
	clean(t, at(128, 384), 3)
	for _, c := range []struct {
		dst, src int
		kind     interp.Kind
	}{{132, 0, interp.OutOfBounds}, {0, 388, interp.OutOfBounds}, {2, 0, interp.Misaligned}, {0, 2, interp.Misaligned}} {
		require.Equal(t, c.kind, faultIn(t, at(c.dst, c.src), 1).Kind, fmt.Sprint(c))
	}
	p := build(t, 1, 1, func(k *dsl.Kernel) {
		dsl.CopyAsync(dsl.Shared[dsl.U32](k, "stage", 128, dsl.Align(16)), k.Lane().MulC(4),
			dsl.Global[dsl.U32](k, "in", 128, dsl.Align(16)), k.Lane().MulC(4))
		k.CopyCommit()
	})
	require.Equal(t, interp.ExitPending, faultIn(t, p, 1).Kind)
}
