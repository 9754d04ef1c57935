//go:build cuda

package compile

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/mkgen/mkgen/internal/nvcc/nvcctest"
	"github.com/stretchr/testify/require"
)

// library makes the NVRTC beside nvcc the one that is found, unless $NVRTC_HOME has lib64/libnvrtc.so.13 or .12 to be
// tested.
func library(t *testing.T) {
	t.Helper()
	home := os.Getenv("NVRTC_HOME")
	if home == "" {
		home = filepath.Dir(filepath.Dir(nvcctest.Need(t).Path))
	}
	t.Setenv("CUDA_HOME", home)
	if _, err := openNVRTC(); err != nil && os.Getenv("MKGEN_NEED_NVCC") == "" {
		t.Skip(err)
	}
}

func TestNVRTCCompilesTiny(t *testing.T) {
	library(t)
	opt := Options{With: NVRTC, Dir: t.TempDir()}
	r, err := Kernel(t.Context(), tiny(t), opt)
	require.NoError(t, err)
	checkTiny(t, r)
	require.Regexp(t, `^NVRTC 1[23]\.[0-9]+$`, r.Compiler)
	t.Logf("%s: %d registers, %d bytes, %v", r.Compiler, r.Registers, r.Bytes, r.Took)
	again, err := Kernel(t.Context(), tiny(t), opt)
	require.NoError(t, err)
	require.True(t, again.Cached)
	opt.Flags = []string{"--maxrregcount=64"}
	other, err := Kernel(t.Context(), tiny(t), opt)
	require.NoError(t, err)
	require.False(t, other.Cached)
	require.NotEqual(t, r.Registers, other.Registers)
}

func TestNVRTCsErrorsLeadToTheTemplate(t *testing.T) {
	library(t)
	checkBroken(t, Options{With: NVRTC, NoCache: true}, false)
}

func TestCancellingNVRTCReturnsAtOnceAndItWorksOn(t *testing.T) {
	library(t)
	s := tiny(t)
	var wg sync.WaitGroup
	for _, after := range []time.Duration{0, 10, 100, 300} {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), after*time.Millisecond)
			defer cancel()
			start := time.Now()
			_, err := Kernel(ctx, s, Options{With: NVRTC, NoCache: true})
			if err != nil { // a fast machine may be done by then
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Less(t, time.Since(start), after*time.Millisecond+2*time.Second)
			}
		})
	}
	wg.Wait()
	r, err := Kernel(t.Context(), s, Options{With: NVRTC, NoCache: true})
	require.NoError(t, err)
	checkTiny(t, r)
}
