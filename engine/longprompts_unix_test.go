//go:build unix

package engine_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/engine/runtime/devicetest"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// What the host takes from a prompt of 100 tokens behind cached ones to its first and only token, on a device that
// computes nothing.
func BenchmarkFirstTokenBehindCachedOnes(b *testing.B) {
	for _, cached := range []int{2_048, 8_192, 32_000} {
		b.Run(strconv.Itoa(cached), func(b *testing.B) {
			e := prefilling(b, 49_152)
			defer func() { require.NoError(b, e.Close()) }()
			r := rand.New(rand.NewPCG(1, 1))
			prompt := make([]int, cached+100)
			ask := func() {
				prompt = slices.Clone(prompt) // the last one is the engine's
				for i := cached; i < len(prompt); i++ {
					prompt[i] = r.IntN(128_256)
				}
				s, err := e.Submit(b.Context(), engine.Request{Tokens: prompt, MaxTokens: 1, IgnoreEnds: true})
				require.NoError(b, err)
				res, err := s.Wait()
				require.NoError(b, err)
				require.Len(b, res.Tokens, 1)
			}
			ask()
			b.ReportAllocs()
			for b.Loop() {
				ask()
			}
		})
	}
}

// prefilling returns an Engine of llama3-8b with prefill kernels, on devices that compute nothing.
func prefilling(b *testing.B, tokens int) *engine.Engine {
	c, err := models.Lookup("llama3-8b")
	require.NoError(b, err)
	c.MaxPositions = 131_072
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 132, Tokens: 16, Draws: true})
	require.NoError(b, err)
	all, err := megakernel.BuildPrefills(mk, 1024, "")
	require.NoError(b, err)
	o := engine.Options{Kernel: mk, Device: devicetest.New(mk, 1000, 0), Weights: devicetest.Nothing{}, KVTokens: tokens,
		TokensPerLaunch: 16, HangTimeout: time.Minute}
	for _, p := range all {
		o.Prefill = append(o.Prefill, engine.PrefillMember{Kernel: p, Device: devicetest.New(mk, 1000, 0)})
	}
	e, err := engine.New(b.Context(), o)
	require.NoError(b, err)
	return e
}
