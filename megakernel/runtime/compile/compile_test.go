package compile

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/internal/nvcc"
	"github.com/stretchr/testify/require"
)

func TestFiguresOfACompilation(t *testing.T) {
	opt, count := fake(t)
	opt.NoCache = true
	r, err := Kernel(t.Context(), source("one"), opt)
	require.NoError(t, err)
	require.Positive(t, r.Took)
	require.GreaterOrEqual(t, r.Elapsed, r.Took)
	r.Took, r.Elapsed = 0, 0
	require.Equal(t, &Result{Cubin: []byte("\x7fELFone\n"), Compiler: "nvcc 13.0.88", Arch: "sm_90a", Function: "k", Registers: 103, SpillStores: 4,
		SpillLoads: 8, SpillBytes: 12, Stack: 16, Barriers: 2, Shared: 64, Bytes: 8}, r)
	require.NoDirExists(t, opt.Dir)
	empty(t, os.Getenv("TMPDIR"))
	_, err = Kernel(t.Context(), source("one"), opt)
	require.NoError(t, err)
	require.Equal(t, 2, count())
}

func TestFlagsAreThoseOfTheLayoutAndTheCallers(t *testing.T) {
	opt, _ := fake(t)
	opt.Flags = []string{"-lineinfo"}
	_, err := Kernel(t.Context(), source("one"), opt)
	require.NoError(t, err)
	ran, err := os.ReadFile(os.Getenv("FAKE_RUNS"))
	require.NoError(t, err)
	require.Regexp(t, `^-std=c\+\+17 -O3 -gencode=arch=compute_90a,code=sm_90a -cubin -Xptxas -v -lineinfo -o \S+ \S+/kernel\.cu\n$`, string(ran))
	target, err := emit.TargetFor("sm_90a")
	require.NoError(t, err)
	require.Equal(t, []string{"--gpu-architecture=sm_90a", "--std=c++17", "--ptxas-options=-v", "-lineinfo"}, nvrtcArguments(target, opt.Flags))
}

func TestMistakesOfTheCallerAreNamed(t *testing.T) {
	opt, _ := fake(t)
	for want, call := range map[string]func() (Source, Options){
		`compile: kernel of test: architecture "sm_80" is unknown, want one of: sm_90a`: func() (Source, Options) { s := source("x"); s.Arch = "sm_80"; return s, opt },
		`compile: kernel of test: the text is empty`:                                    func() (Source, Options) { s := source("x"); s.Text = nil; return s, opt },
		`compile: kernel of test: compiler "clang" is unknown, want nvcc or nvrtc`:      func() (Source, Options) { o := opt; o.With = "clang"; return source("x"), o },
	} {
		s, o := call()
		_, err := Kernel(t.Context(), s, o)
		require.EqualError(t, err, want)
	}
}

func TestACompilerThatIsTooOldIsRefused(t *testing.T) {
	opt, count := fake(t)
	t.Setenv("FAKE_VERSION", "11.8.89")
	_, err := Kernel(t.Context(), source("one"), opt)
	require.EqualError(t, err, "compile: kernel of test: nvcc: "+opt.NvccPath+", asked for, is of CUDA 11.8.89, want CUDA 12 or newer")
	require.Zero(t, count())
}

func TestWithoutACompilerTheErrorSaysWhatWasLookedForWhere(t *testing.T) {
	if _, err := os.Stat("/usr/local/cuda"); err == nil {
		t.Skip("this machine has a /usr/local/cuda")
	}
	if _, err := exec.LookPath("nvcc"); err == nil {
		t.Skip("this machine has an nvcc on PATH")
	}
	for _, name := range []string{"NVCC", "CUDA_HOME", "LD_LIBRARY_PATH"} {
		t.Setenv(name, "")
	}
	t.Setenv("MKGEN_CACHE", t.TempDir())
	if _, err := openNVRTC(); err == nil {
		t.Skip("the dynamic linker finds an NVRTC by itself")
	}
	_, err := Kernel(t.Context(), source("one"), Options{})
	require.ErrorIs(t, err, ErrNoCompiler)
	require.ErrorIs(t, err, nvcc.ErrNotFound)
	require.ErrorContains(t, err, "looked at $NVCC, $CUDA_HOME, PATH and /usr/local/cuda/bin/nvcc")
	require.ErrorContains(t, err, "no NVRTC")
	for _, with := range []string{Nvcc, NVRTC} {
		_, err = Kernel(t.Context(), source("one"), Options{With: with})
		require.ErrorIs(t, err, ErrNoCompiler)
	}
}

func TestCancellingStopsTheCompilerAndLeavesNothing(t *testing.T) {
	for _, noCache := range []bool{true, false} {
		opt, count := fake(t)
		opt.NoCache = noCache
		t.Setenv("FAKE_SLEEP", "60")
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for {
				if _, err := os.Stat(os.Getenv("FAKE_RUNS")); err == nil {
					cancel()
					return
				}
				time.Sleep(5 * time.Millisecond)
			}
		}()
		start := time.Now()
		_, err := Kernel(ctx, source("one"), opt)
		require.ErrorIs(t, err, context.Canceled)
		require.EqualError(t, err, "compile: kernel of test: context canceled")
		require.Less(t, time.Since(start), 30*time.Second)
		require.Equal(t, 1, count())
		empty(t, os.Getenv("TMPDIR"))
		files, err := filepath.Glob(filepath.Join(opt.Dir, "*"))
		require.NoError(t, err)
		for _, f := range files {
			require.Equal(t, ".lock", filepath.Ext(f))
		}
		t.Setenv("FAKE_SLEEP", "0") // and the next one is not held up
		r, err := Kernel(t.Context(), source("one"), opt)
		require.NoError(t, err)
		require.False(t, r.Cached)
	}
}
