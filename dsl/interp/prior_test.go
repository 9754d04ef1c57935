package interp_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/stretchr/testify/require"
)

// chained is a kernel of two CTAs that share three buffers with the others of a chain.
func chained(t *testing.T, body func(k *dsl.Kernel, x, y, z dsl.Buf[dsl.U32])) *interp.Program {
	return build(t, 1, 2, func(k *dsl.Kernel) {
		g := func(name string) dsl.Buf[dsl.U32] { return dsl.Global[dsl.U32](k, name, 64) }
		x, y, z := g("x"), g("y"), g("z")
		body(k, x, y, z)
		k.If(k.CTA().EqC(99), func() { // every buffer is used, whatever the test
			for _, b := range []dsl.Buf[dsl.U32]{x, y, z} {
				b.Store(dsl.At(0), b.Load(dsl.At(1)))
			}
		})
	})
}

// at is this thread's element.
func at(k *dsl.Kernel) dsl.Val[dsl.U32] { return k.CTA().MulC(32).Add(k.Lane()) }

// chain runs programs one behind the other, the first as an ordinary launch and the others
// as programmatic dependent ones, and returns the first fault, under several schedules the same.
func chain(t *testing.T, programs ...*interp.Program) *interp.Fault {
	t.Helper()
	var first *interp.Fault
	for seed := range uint64(8) {
		mem := interp.NewMemory()
		for _, name := range []string{"x", "y", "z"} {
			mem.Bind(name, make([]byte, 256))
		}
		var fault *interp.Fault
		for i, p := range programs {
			if _, err := p.Run(mem, interp.Options{Seed: seed, Dependent: i > 0}); err != nil {
				require.True(t, errors.As(err, &fault), err)
				break
			}
		}
		if seed == 0 {
			first = fault
		}
		require.Equal(t, first == nil, fault == nil, "seed %d: %v", seed, fault)
		if fault != nil {
			require.Equal(t, first.Kind, fault.Kind)
		}
	}
	return first
}

func TestDependentLaunchesMustWaitForWhatTheLaunchBeforeDid(t *testing.T) {
	type buf = dsl.Buf[dsl.U32]
	writesX := chained(t, func(k *dsl.Kernel, x, _, _ buf) {
		k.LaunchDependents()
		k.WaitForPrior()
		x.Store(at(k), at(k))
	})
	readsX := chained(t, func(k *dsl.Kernel, x, y, _ buf) {
		k.LaunchDependents()
		k.WaitForPrior()
		y.Store(at(k), x.Load(at(k)))
	})
	readsTooEarly := chained(t, func(k *dsl.Kernel, x, y, _ buf) {
		v := x.Load(at(k))
		k.WaitForPrior()
		y.Store(at(k), v)
	})
	writesTooEarly := chained(t, func(k *dsl.Kernel, x, _, _ buf) {
		x.Store(at(k), k.U32(1))
		k.WaitForPrior()
	})
	readsZ := chained(t, func(k *dsl.Kernel, _, y, z buf) { // which nobody writes
		v := z.Load(at(k))
		k.WaitForPrior()
		y.Store(at(k), v)
	})
	oneWaits := chained(t, func(k *dsl.Kernel, x, y, _ buf) { // and its warp with it
		k.If(k.Lane().EqC(0), k.WaitForPrior)
		k.SyncWarp()
		y.Store(at(k), x.Load(at(k)))
	})
	otherCTAWaits := chained(t, func(k *dsl.Kernel, x, y, _ buf) {
		k.If(k.CTA().EqC(0), k.WaitForPrior)
		y.Store(at(k), x.Load(at(k)))
	})
	nobodyWaits := chained(t, func(k *dsl.Kernel, _, _, z buf) {
		k.LaunchDependents()
		z.Store(at(k), at(k))
	})

	require.Nil(t, chain(t, writesX, readsX, writesX))
	require.Nil(t, chain(t, writesX, readsZ))
	require.Nil(t, chain(t, writesX, oneWaits))
	require.Nil(t, chain(t, readsTooEarly), "an ordinary launch has nothing to wait for")
	for _, f := range []*interp.Fault{chain(t, writesX, readsTooEarly), chain(t, writesX, otherCTAWaits),
		chain(t, writesX, writesTooEarly), chain(t, readsX, writesTooEarly)} {
		require.NotNil(t, f)
		require.Equal(t, interp.DataRace, f.Kind, f)
		require.Equal(t, "x", f.Buffer)
		require.True(t, strings.Contains(f.Error(), "a launch before this one, which may not have ended before griddep.wait"),
			f)
	}
	f := chain(t, writesX, nobodyWaits)
	require.NotNil(t, f)
	require.Equal(t, interp.NeverWaited, f.Kind)
}

// With griddep.launch behind griddep.wait there are two launches under way at most; before
// it, as many as there is room for.
func TestHowFarBackADependentLaunchMustThink(t *testing.T) {
	type buf = dsl.Buf[dsl.U32]
	writesX := chained(t, func(k *dsl.Kernel, x, _, _ buf) {
		k.WaitForPrior()
		x.Store(at(k), at(k))
	})
	between := func(early bool) *interp.Program {
		return chained(t, func(k *dsl.Kernel, _, _, z buf) {
			if early {
				k.LaunchDependents()
			}
			k.WaitForPrior()
			if !early {
				k.LaunchDependents()
			}
			z.Store(at(k), at(k))
		})
	}
	readsX := chained(t, func(k *dsl.Kernel, x, y, _ buf) {
		v := x.Load(at(k))
		k.WaitForPrior()
		y.Store(at(k), v)
	})
	require.Nil(t, chain(t, writesX, between(false), readsX))
	f := chain(t, writesX, between(true), readsX)
	require.NotNil(t, f)
	require.Equal(t, interp.DataRace, f.Kind)
	require.NotNil(t, chain(t, writesX, between(true), between(true), readsX))
	require.Nil(t, chain(t, writesX, between(true), between(false), readsX))
}

// What the async proxy reads must be fenced, as across every other sync.
func TestCopiesOfWhatTheLaunchBeforeWroteWantAProxyFence(t *testing.T) {
	program := func(fence bool) *interp.Program {
		return build(t, 1, 1, func(k *dsl.Kernel) {
			x := dsl.Global[dsl.U32](k, "x", 64, dsl.Align(16))
			y, z := dsl.Global[dsl.U32](k, "y", 64), dsl.Global[dsl.U32](k, "z", 64)
			stage := dsl.Shared[dsl.U32](k, "stage", 64, dsl.Align(16))
			bar := dsl.NewMBars(k, "bar", 1)
			k.If(k.Lane().EqC(0), func() {
				bar.Init(dsl.At(0), k.U32(1))
				k.FenceMBarInit()
				k.WaitForPrior()
				if fence {
					k.FenceProxyAsyncGlobal()
				}
				bar.ArriveExpect(dsl.At(0), k.U32(256))
				dsl.BulkCopy(stage, dsl.At(0), x, dsl.At(0), k.U32(256), bar, dsl.At(0))
			})
			k.SyncWarp()
			bar.Wait(dsl.At(0), k.U32(0))
			y.Store(k.Lane(), stage.Load(k.Lane()))
			k.If(k.CTA().EqC(99), func() { x.Store(dsl.At(0), z.Load(dsl.At(0))) })
		})
	}
	writesX := chained(t, func(k *dsl.Kernel, x, _, _ dsl.Buf[dsl.U32]) {
		k.WaitForPrior()
		x.Store(at(k), at(k))
	})
	require.Nil(t, chain(t, writesX, program(true)))
	f := chain(t, writesX, program(false))
	require.NotNil(t, f)
	require.Equal(t, interp.ProxyRace, f.Kind)
}
