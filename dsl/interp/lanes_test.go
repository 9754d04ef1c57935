package interp_test

import (
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/stretchr/testify/require"
)

// handshake lets warp 0 and warp 1 pass a stage to and fro by two mbarriers, four times: use is what warp 0 does
// between the wait for full and the arrival at empty of its lane 0, fill what warp 1 does from the wait for empty on.
func handshake(k *dsl.Kernel, use func(), fill func(empty, full dsl.MBars, parity dsl.Val[dsl.U32])) {
	full, empty := dsl.NewMBars(k, "full", 1), dsl.NewMBars(k, "empty", 1)
	k.If(k.Tid().EqC(0), func() {
		full.Init(dsl.At(0), k.U32(1))
		empty.Init(dsl.At(0), k.U32(1))
		k.FenceMBarInit()
	})
	k.Barrier()
	rounds := func(body func(parity dsl.Val[dsl.U32])) func() {
		return func() {
			k.For(k.U32(0), k.U32(4), func(i dsl.Val[dsl.U32]) { body(i.AndC(1)) }, dsl.Unroll(1))
		}
	}
	k.Roles(
		dsl.Role{Name: "drain", First: 0, End: 1, Body: rounds(func(parity dsl.Val[dsl.U32]) {
			full.Wait(dsl.At(0), parity)
			use()
			k.If(k.Lane().EqC(0), func() { empty.Arrive(dsl.At(0)) })
		})},
		dsl.Role{Name: "fill", First: 1, End: 2,
			Body: rounds(func(parity dsl.Val[dsl.U32]) { fill(empty, full, parity.XorC(1)) })},
	)
}

// oneLane fills by one lane, which is late for nothing.
func oneLane(k *dsl.Kernel) func(empty, full dsl.MBars, parity dsl.Val[dsl.U32]) {
	return func(empty, full dsl.MBars, parity dsl.Val[dsl.U32]) {
		k.If(k.Lane().EqC(0), func() {
			empty.Wait(dsl.At(0), parity)
			full.Arrive(dsl.At(0))
		})
	}
}

// byCopies fills by bulk copies that the first lanes issue behind what lies between them and the expected bytes.
func byCopies(k *dsl.Kernel, lanes int, between func()) func(empty, full dsl.MBars, parity dsl.Val[dsl.U32]) {
	src := dsl.Global[dsl.U32](k, "src", 128, dsl.ReadOnly())
	dst := dsl.Shared[dsl.U32](k, "dst", 128, dsl.Align(16))
	return func(empty, full dsl.MBars, parity dsl.Val[dsl.U32]) {
		empty.Wait(dsl.At(0), parity)
		k.If(k.Lane().EqC(0), func() { full.ArriveExpect(dsl.At(0), k.U32(16*lanes)) })
		between()
		k.If(k.Lane().LtC(lanes), func() {
			at := k.Lane().MulC(4)
			dsl.BulkCopy(dst, at, src, at, k.U32(16), full, dsl.At(0))
		})
	}
}

// shuffled is a shuffle, which orders no accesses.
func shuffled(k *dsl.Kernel) func() {
	out := dsl.Global[dsl.U32](k, "out", 32)
	return func() { out.Store(k.Lane(), dsl.WarpSum(k.Lane())) }
}

// Lanes that wait for a phase of an mbarrier have done so before the next phase can complete, or are reported.
func TestALaneThatMayMissAPhaseIsReported(t *testing.T) {
	nothing := func() {}
	type kernel = *dsl.Kernel
	for name, tt := range map[string]struct {
		body func(k kernel)
		want string // of the report; "" for none
	}{
		"nothing joins the lanes": {func(k kernel) { handshake(k, nothing, oneLane(k)) },
			"may still wait for phase 0 of mbarrier 0 of @full when phase 1 completes"},
		"syncwarp":    {func(k kernel) { handshake(k, k.SyncWarp, oneLane(k)) }, ""},
		"a shuffle":   {func(k kernel) { handshake(k, shuffled(k), oneLane(k)) }, ""},
		"an election": {func(k kernel) { handshake(k, func() { k.Elect() }, oneLane(k)) }, ""},
		"a barrier":   {func(k kernel) { handshake(k, func() { k.NamedBarrier(1, 1) }, oneLane(k)) }, ""},
		"an assertion": {func(k kernel) { handshake(k, func() { dsl.Uniform(k.Warp(), dsl.CTAScope) }, oneLane(k)) },
			"may still wait for phase 0 of mbarrier 0 of @full"},
		"half the warp": {func(k kernel) {
			handshake(k, func() { k.If(k.Lane().LtC(16), func() { k.Nanosleep(k.U32(1)) }) }, oneLane(k))
		}, "may still wait for phase 0 of mbarrier 0 of @full"},
		"a copy behind a syncwarp": {func(k kernel) { handshake(k, k.SyncWarp, byCopies(k, 1, k.SyncWarp)) },
			""},
		"a copy behind a shuffle": {func(k kernel) {
			handshake(k, k.SyncWarp, byCopies(k, 1, shuffled(k)))
		}, ""},
		"a copy behind nothing": {func(k kernel) { handshake(k, k.SyncWarp, byCopies(k, 1, nothing)) },
			"may still wait for phase -1 of mbarrier 0 of @empty when phase 0 completes"},
		"a copy of each lane": {func(k kernel) { handshake(k, k.SyncWarp, byCopies(k, 32, nothing)) }, ""},
		"copies of half a warp": {func(k kernel) { handshake(k, k.SyncWarp, byCopies(k, 16, nothing)) },
			"cta 0 warp 1 lane 16"},
	} {
		t.Run(name, func(t *testing.T) {
			p := build(t, 2, 1, tt.body)
			if tt.want == "" {
				clean(t, p, 24)
				return
			}
			for seed := range 24 { // no schedule is needed for it
				_, err := p.Run(bufs(p), interp.Options{Seed: uint64(seed)})
				var f *interp.Fault
				require.ErrorAs(t, err, &f)
				require.Equal(t, interp.PhaseSkipped, f.Kind, f.Error())
				require.Contains(t, f.Error(), tt.want)
				require.Len(t, f.Sides, 2, f.Error())
			}
		})
	}
}

// What a lane waits for behind the point where the lanes were together is not before it.
func TestAWaitBehindAShuffleIsNotBeforeIt(t *testing.T) {
	p := build(t, 2, 1, func(k *dsl.Kernel) {
		full, empty := dsl.NewMBars(k, "full", 1), dsl.NewMBars(k, "empty", 1)
		k.If(k.Tid().EqC(0), func() { full.Init(dsl.At(0), k.U32(1)); empty.Init(dsl.At(0), k.U32(1)) })
		k.Barrier()
		lane0, shuffle := k.Lane().EqC(0), shuffled(k)
		k.Roles(
			dsl.Role{Name: "drain", First: 0, End: 1, Body: func() {
				for i := range 2 {
					shuffle()
					full.Wait(dsl.At(0), k.U32(i))
					k.If(lane0, func() { empty.Arrive(dsl.At(0)) })
				}
			}},
			dsl.Role{Name: "fill", First: 1, End: 2, Body: func() {
				for i := range 2 {
					k.If(lane0, func() { empty.Wait(dsl.At(0), k.U32(1-i)); full.Arrive(dsl.At(0)) })
				}
			}},
		)
	})
	require.ErrorContains(t, errOf(p), "lane 1, wait.mbar @full")
}

func errOf(p *interp.Program) error {
	_, err := p.Run(bufs(p), interp.Options{Seed: 1})
	return err
}
