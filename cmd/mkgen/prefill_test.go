package main

import (
	"fmt"
	"io"
	"testing"

	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// TestPrefillByDefault says where prefill kernels are built without --prefill, and that the flag decides where it is
// given.
func TestPrefillByDefault(t *testing.T) {
	kernel := func(model string, rows int) *megakernel.Kernel {
		c, err := models.Lookup(model)
		if err != nil {
			t.Fatal(err)
		}
		mk, err := megakernel.Build(c, megakernel.Options{Tokens: rows})
		if err != nil {
			t.Fatal(err)
		}
		return mk
	}
	wide, one, heads := kernel("llama3.2-1b", 16), kernel("llama3.2-1b", 1), kernel("gemma-3-4b", 16)
	cuda, sim := runFlags{device: deviceCUDA}, runFlags{device: deviceSim}
	with := func(r runFlags, set func(*runFlags)) *runFlags { set(&r); return &r }
	long := func(r *runFlags) { r.longest = worthPrefill }
	for name, c := range map[string]struct {
		r    *runFlags
		of   *megakernel.Kernel
		want int
	}{
		"a long prompt on a GPU": {with(cuda, long), wide, defaultPrefill},
		"a short prompt":         {with(cuda, func(r *runFlags) { r.longest = worthPrefill - 1 }), wide, 0},
		"a server":               {with(cuda, func(r *runFlags) { r.serves = true }), wide, defaultPrefill},
		"one row":                {with(cuda, long), one, 0},
		"heads of 256":           {with(cuda, long), heads, 1024},
		"the executor":           {with(sim, long), wide, 0},
		"none":                   {with(cuda, func(r *runFlags) { long(r); r.prefill = noPrefill }), wide, 0},
		"a number, heads of 256": {with(sim, func(r *runFlags) { r.prefill = 64 }), heads, 64},
	} {
		if got, asked := c.r.prefillTokens(c.of); got != c.want || asked != (c.r.prefill != 0) {
			t.Errorf("%s: %d tokens, asked for: %v; want %d", name, got, asked, c.want)
		}
	}
	for _, wrong := range []string{"0", "-1", "some", "1.5", "4097"} {
		want := fmt.Sprintf("mkgen: --prefill: found %q, want a whole number from 1 to 4096", wrong)
		for command, rest := range map[string]string{"run": ", or none\n", "verify": "\n", "bench": "\n", "compile": "\n"} {
			code, _, stderr := mkgen(command, "--model", "tiny", "--prefill", wrong)
			if code != 2 || stderr != want+rest {
				t.Errorf("%s --prefill %s: code %d, %q", command, wrong, code, stderr)
			}
		}
	}
	if code, _, stderr := mkgen("run", "--model", "tiny", "--prefill", "none", "--max-tokens", "1", "x"); code != 0 {
		t.Errorf("--prefill none: %s", stderr)
	}
}

// TestPrefillChunkReachesTheEngine says that --prefill-chunk decides the tokens of launches beside others, whatever
// they generate, and that without it the engine's options have the prediction of --machine, or nothing.
func TestPrefillChunkReachesTheEngine(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 2, Tokens: 2})
	require.NoError(t, err)
	for _, chunk := range []count{0, 3, 24, 64} {
		r, o := runFlags{device: deviceSim, prefill: 64, prefillChunk: chunk}, engine.Options{}
		require.NoError(t, r.addPrefill(t.Context(), io.Discard, mk, nil, deviceOptions{}, &o))
		require.NotEmpty(t, o.Prefill)
		for _, m := range o.Prefill {
			require.NoError(t, m.Device.Close())
		}
		if chunk == 0 {
			require.Nil(t, o.PrefillChunk)
			continue
		}
		for _, cached := range []int{0, 400} {
			require.Equal(t, int(chunk), o.PrefillChunk(cached, 9*cached, cached > 0))
		}
	}
}
