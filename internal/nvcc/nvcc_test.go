package nvcc

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// compiler finds nvcc or skips the test, unless MKGEN_NEED_NVCC is set, as .ci/run does: there a missing nvcc is a
// failure.
func compiler(t *testing.T) *Compiler {
	t.Helper()
	c, err := Find("")
	if errors.Is(err, ErrNotFound) && os.Getenv("MKGEN_NEED_NVCC") == "" {
		t.Skip("needs nvcc: " + err.Error())
	}
	require.NoError(t, err)
	return c
}

func TestCompileOfTheProbeKernelHasNoSpills(t *testing.T) {
	c := compiler(t)
	out := filepath.Join(t.TempDir(), "probe.cubin")
	report, err := c.Compile(t.Context(), "testdata/ptx_probe.cu", out, Options{Arch: "sm_90a"})
	require.NoError(t, err)
	require.Len(t, report.Functions, 1)
	f := report.Functions[0]
	require.Equal(t, "ptx_probe", f.Name)
	require.True(t, f.Entry)
	require.Positive(t, f.Registers)
	stores, loads := report.Spills()
	require.Zero(t, stores+loads)
	cubin, err := os.ReadFile(out)
	require.NoError(t, err)
	require.True(t, bytes.HasPrefix(cubin, []byte("\x7fELF")))
	require.EqualValues(t, len(cubin), report.CubinBytes)
	left, err := filepath.Glob(filepath.Join(filepath.Dir(out), ".nvcc-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestCompileReportsSpills(t *testing.T) {
	c := compiler(t)
	report, err := c.Compile(t.Context(), "testdata/spills.cu", filepath.Join(t.TempDir(), "s.cubin"),
		Options{Arch: "sm_90a"})
	require.NoError(t, err)
	stores, loads := report.Spills()
	require.Positive(t, stores)
	require.Positive(t, loads)
	require.Equal(t, 32, report.Functions[0].Registers)
}

func TestCompileOfWrongSourceCarriesNvccsTextAndLeavesTheOldCubin(t *testing.T) {
	c := compiler(t)
	dir := t.TempDir()
	src, out := filepath.Join(dir, "wrong.cu"), filepath.Join(dir, "out.cubin")
	require.NoError(t, os.WriteFile(src, []byte(`extern "C" __global__ void k() { undeclared = 1; }`), 0o644))
	require.NoError(t, os.WriteFile(out, []byte("old"), 0o644))
	_, err := c.Compile(t.Context(), src, out, Options{Arch: "sm_90a"})
	require.ErrorContains(t, err, `identifier "undeclared" is undefined`)
	require.ErrorContains(t, err, src)
	kept, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Equal(t, "old", string(kept))
}

func TestCompileWithoutAKernelIsRefused(t *testing.T) {
	c := compiler(t)
	src := filepath.Join(t.TempDir(), "empty.cu")
	require.NoError(t, os.WriteFile(src, nil, 0o644))
	_, err := c.Compile(t.Context(), src, filepath.Join(t.TempDir(), "o.cubin"), Options{Arch: "sm_90a"})
	require.ErrorContains(t, err, "no kernel")
}

func TestCompileRefusesBadArguments(t *testing.T) {
	c := &Compiler{Path: "/nowhere/nvcc", Version: "0"}
	_, err := c.Compile(t.Context(), "testdata/spills.cu", filepath.Join(t.TempDir(), "o"), Options{Arch: "hopper"})
	require.ErrorContains(t, err, `architecture "hopper": want one such as sm_90a`)
	_, err = c.Compile(t.Context(), "testdata/absent.cu", filepath.Join(t.TempDir(), "o"), Options{Arch: "sm_90a"})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = c.Compile(t.Context(), "testdata/spills.cu", "/nowhere/o", Options{Arch: "sm_90a"})
	require.ErrorContains(t, err, "output")
}

func TestCompileStopsWithItsContext(t *testing.T) {
	slow := script(t, "exec sleep 60\n")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := (&Compiler{Path: slow}).Compile(ctx, "testdata/spills.cu", filepath.Join(t.TempDir(), "o"),
		Options{Arch: "sm_90a"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// What nvcc started ends with it: a child would otherwise compile on and write into a folder that is gone.
func TestCompileStopsWhatNvccStarted(t *testing.T) {
	dir := t.TempDir()
	alive := filepath.Join(dir, "alive")
	slow := script(t, "(sleep 1; touch "+alive+") &\ntouch "+alive+".started\nwait\n")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for {
			if _, err := os.Stat(alive + ".started"); err == nil {
				cancel()
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	_, err := (&Compiler{Path: slow}).Compile(ctx, "testdata/spills.cu", filepath.Join(dir, "o"), Options{Arch: "sm_90a"})
	require.ErrorIs(t, err, context.Canceled)
	time.Sleep(1500 * time.Millisecond)
	require.NoFileExists(t, alive)
}

// script writes an executable shell script and returns its path.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nvcc")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o755))
	return path
}
