package grid_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/stretchr/testify/require"
)

// relay passes values around: in every round each CTA adds its left
// neighbour's value of the round before to its own, behind barriers.
func relay(t testing.TB, sms, consumers, rounds int, epoch uint32, barriers bool) *rig.Rig {
	r := rig.New(t, rig.Setup{SMs: sms, Consumers: consumers})
	n := r.Env.Threads()
	// initialised, so that only order is at stake
	v := rig.InOut[dsl.U32](r, "v", make([]byte, 4*(rounds+1)*sms*n), (rounds+1)*sms*n)
	counter := rig.InOut[dsl.U32](r, "barrier", rig.U32Bytes(epoch), 1)
	start := r.Scalar("epoch", epoch)
	r.Body(func(*pipeline.Consumer) {
		k, e := r.K, r.Env
		bar := grid.NewGridBarrier(e, counter, start)
		own := e.CTA.MulC(n).Add(e.Tid)
		left := e.CTA.AddC(sms - 1).RemC(sms).MulC(n).Add(e.Tid.XorC(n - 1))
		v.Store(own, own)
		k.For(k.U32(0), k.U32(rounds), func(i dsl.Val[dsl.U32]) {
			if barriers {
				bar.Sync()
			}
			from := i.MulC(sms * n)
			v.Store(from.Add(own).AddC(sms*n), v.Load(from.Add(left)).Add(v.Load(from.Add(own))))
		})
	}, nil)
	return r
}

func TestGridBarrierOrdersEveryRound(t *testing.T) {
	// the last three wrap on the way
	for _, epoch := range []uint32{0, 1000, 1<<31 - 3, 1<<32 - 1, 1<<32 - 5, 1<<32 - 12} {
		for _, g := range []struct{ sms, consumers int }{{1, 1}, {2, 2}, {4, 1}, {7, 2}} {
			t.Run(fmt.Sprint(epoch, g), func(t *testing.T) {
				const rounds = 4
				got := relay(t, g.sms, g.consumers, rounds, epoch, true).Run()
				v, n := rig.U32s(got["v"]), 32*g.consumers
				row := func(i int) []uint32 { return v[i*g.sms*n : (i+1)*g.sms*n] }
				for i := range rounds {
					for at, x := range row(i + 1) {
						left := (at/n+g.sms-1)%g.sms*n + (at%n ^ (n - 1))
						require.Equal(t, row(i)[left]+row(i)[at], x, "round %d, element %d", i, at)
					}
				}
				require.Equal(t, epoch+uint32(rounds*g.sms), rig.U32s(got["barrier"])[0], "the counter wraps and is never reset")
			})
		}
	}
}

func TestMissingGridBarrierIsReported(t *testing.T) {
	r := relay(t, 3, 1, 1, 0, false)
	program := r.Load()
	for seed := range uint64(8) {
		_, err := r.Once(program, seed)
		var f *interp.Fault
		require.True(t, errors.As(err, &f), "seed %d finds nothing", seed)
		require.Equal(t, interp.DataRace, f.Kind)
		require.Len(t, f.Sides, 2)
		for _, s := range f.Sides {
			require.Contains(t, s.Pos.String(), "grid/barrier_test.go:")
		}
	}
}

// A stale epoch lets the barrier pass too early or never: both are reported.
func TestWrongEpochIsReported(t *testing.T) {
	for epoch, want := range map[uint32]string{1: "deadlock", ^uint32(0): "data race"} {
		r := relay(t, 3, 1, 1, 0, true)
		r.Params["epoch"] = uint64(epoch)
		program := r.Load()
		found := false
		for seed := uint64(0); seed < 16 && !found; seed++ {
			_, err := r.Once(program, seed)
			found = err != nil
			if found {
				require.Regexp(t, want, err.Error())
			}
		}
		require.True(t, found, "epoch %d", epoch)
	}
}
