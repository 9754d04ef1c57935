package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/internal/nvcc/nvcctest"
)

// source writes a .cu file and returns its path.
func source(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "k.cu")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// ran runs the command and returns what it did.
func ran(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(args, &out, &err)
	return code, out.String(), err.String()
}

func TestACleanKernelIsReportedInOneLine(t *testing.T) {
	nvcctest.Need(t)
	code, stdout, stderr := ran("../../nvcc/testdata/ptx_probe.cu")
	require.Zero(t, code, stderr)
	require.Regexp(t, `^ptx_probe\.cu: ptx_probe for sm_90a by nvcc [0-9.]+: [0-9]+ registers, 0 spills, .* s\n$`, stdout)
}

func TestBrokenPromisesAreNamedAndTheOtherFilesStillCompile(t *testing.T) {
	nvcctest.Need(t)
	code, stdout, stderr := ran("../../nvcc/testdata/spills.cu", "../../nvcc/testdata/ptx_probe.cu")
	require.Equal(t, 1, code)
	require.Regexp(t, `spills\.cu: spills: [1-9][0-9]* bytes stored, [1-9][0-9]* loaded, want 0`, stderr)
	require.Contains(t, stdout, "ptx_probe.cu: ")

	code, _, stderr = ran("-max-seconds", "0.001", "../../nvcc/testdata/ptx_probe.cu")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "ptx_probe.cu: not compiled within 1ms")
}

func TestSourcesAreRefusedBeforeCompiling(t *testing.T) {
	nvcctest.Need(t)
	for text, want := range map[string]string{
		"#include <cuda.h>\n__global__ void k() {}":                   "want no #include",
		"// a __global__ in a comment\n":                              "has 0 __global__ functions, want 1",
		"__global__ void a() {}\nextern \"C\" __global__ void b() {}": "has 2 __global__ functions, want 1",
	} {
		code, _, stderr := ran(source(t, text))
		require.Equal(t, 1, code)
		require.Contains(t, stderr, want)
	}
}

func TestWrongFlagsExitWith2(t *testing.T) {
	for _, args := range [][]string{{}, {"-nope"}, {"-max-seconds", "soon", "k.cu"}} {
		code, stdout, stderr := ran(args...)
		require.Equal(t, 2, code)
		require.Empty(t, stdout)
		require.NotEmpty(t, stderr)
	}
}
