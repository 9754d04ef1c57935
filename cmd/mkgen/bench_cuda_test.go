//go:build cuda

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/engine/compile"
	"github.com/mkgen/mkgen/engine/runtime/cuda"
	"github.com/mkgen/mkgen/pipeline/machine"
	"github.com/stretchr/testify/require"
)

// fakeMachine is a GPU on the fake driver (scripts/build-cuda --fake), whose
// modules have one kernel, called "kernel"; without it the test is skipped.
func fakeMachine(t *testing.T) *gpuMachine {
	t.Helper()
	dev, err := cuda.Open(0)
	if os.Getenv("MKGEN_FAKE_DRIVER") != "" {
		require.NoError(t, err)
	}
	if err != nil || dev.Name() != "mkgen fake GPU" {
		t.Skip("needs the fake driver: scripts/build-cuda --fake test ./cmd/mkgen")
	}
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return &gpuMachine{dev: dev, arch: "sm_90a", compile: func(context.Context, *ir.Kernel) (*compile.Result, error) {
		return &compile.Result{Cubin: []byte("\x7fELF"), Compiler: "none 1.0"}, nil
	}}
}

func oneStore(t *testing.T, grid int) *ir.Kernel {
	t.Helper()
	k := dsl.New("kernel", dsl.Options{Warps: 1, Grid: grid, SharedLimit: 1 << 10})
	dsl.Global[dsl.U32](k, "x", 32).Store(k.Lane(), k.Lane())
	built, err := k.Finish()
	require.NoError(t, err)
	return built
}

func TestAMachineLoadsKernelsAndPlantsOthers(t *testing.T) {
	m := fakeMachine(t)
	require.Equal(t, "mkgen fake GPU", m.Facts().GPU)
	require.Positive(t, m.Facts().SMs)
	free, err := m.Free()
	require.NoError(t, err)
	require.Positive(t, free)
	k, err := m.Load(t.Context(), oneStore(t, 1))
	require.NoError(t, err)
	require.Equal(t, "none 1.0", m.Facts().Compiler)
	require.NoError(t, k.Alloc("x", 128))
	require.NoError(t, k.Start(nil))
	require.NoError(t, k.Wait())
	more := dsl.New("kernel", dsl.Options{Warps: 1, Grid: 1, SharedLimit: 1 << 10})
	for _, name := range []string{"x", "y"} {
		dsl.Global[dsl.U32](more, name, 32).Store(more.Lane(), more.Lane())
	}
	planted, err := more.Finish()
	require.NoError(t, err)
	restore, err := k.Plant(t.Context(), planted)
	require.NoError(t, err)
	require.ErrorContains(t, k.Start(nil), `no buffer "y"`)
	require.NoError(t, k.Alloc("y", 128))
	require.NoError(t, k.Start(nil))
	require.NoError(t, k.Wait())
	restore()
	require.NoError(t, k.Start(nil))
	require.NoError(t, k.Wait())
	require.NoError(t, k.Close())
}

// What is measured on a GPU is not held against the figures of another one.
func TestAMachineFileIsOfTheGPUAtHand(t *testing.T) {
	require.NoError(t, fakeMachine(t).dev.Close())
	path := filepath.Join(t.TempDir(), "m.json")
	require.NoError(t, machine.H200().WriteFile(path))
	for _, flag := range []string{"--ablate", "--budget", ""} {
		args := []string{"bench", "--model", "tiny", "--sms", "2", "--machine", path}
		if flag != "" {
			args = append(args, flag)
		}
		code, _, stderr := mkgen(args...)
		require.Equal(t, 1, code, flag)
		require.Equal(t, "mkgen: --machine "+path+
			": it is of NVIDIA H200, this one is mkgen fake GPU; mkgen calibrate measures it\n", stderr, flag)
	}
}

func TestAMachineRefusesWhatDoesNotFitOrCompile(t *testing.T) {
	m := fakeMachine(t)
	_, err := m.Load(t.Context(), oneStore(t, 1000))
	require.ErrorContains(t, err, "4 SMs, needed are 1000")
	m.compile = func(context.Context, *ir.Kernel) (*compile.Result, error) { return nil, errors.New("no compiler") }
	_, err = m.Load(t.Context(), oneStore(t, 1))
	require.EqualError(t, err, "no compiler")
}
