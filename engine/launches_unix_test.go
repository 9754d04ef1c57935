//go:build unix

package engine_test

import (
	"sync"
	"testing"
	"time"

	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/engine/runtime/devicetest"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/internal/cputime"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/bundled"
	"github.com/stretchr/testify/require"
)

// anything is a mask that rules nothing out.
type anything struct{}

func (anything) Mask(allowed []uint32) {
	for i := range allowed {
		allowed[i] = 1<<32 - 1
	}
}
func (anything) Accept(int) error { return nil }

// What the host takes of 16 requests at once, on a device that computes nothing: gap is the time from a launch's end to
// the next one's start, of launches of 16 steps. A device's calls, which a GPU's driver makes longer, are not in it.
func BenchmarkLaunchesOf16Requests(b *testing.B) {
	const rows, tokens = 16, 256
	drawn := sampling.Params{Temperature: 0.8, TopP: 0.95, TopK: 50, Seed: 1}
	for _, c := range []struct {
		name string
		of   engine.Request
	}{
		{"greedy", engine.Request{}},
		{"sampled", engine.Request{Sampling: drawn}},
		{"logprobs", engine.Request{Sampling: drawn, Logprobs: true, TopLogprobs: 20}},
		{"masked", engine.Request{Sampling: drawn, Mask: anything{}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			e, d := onDevice(b, rows)
			defer func() { require.NoError(b, e.Close()) }()
			m := cputime.NewMeter(b)
			for i := 0; b.Loop(); i++ {
				var all sync.WaitGroup
				for row := range rows {
					all.Go(func() {
						r := c.of
						r.Tokens, r.MaxTokens, r.IgnoreEnds = []int{5, 6, row, i % 300}, tokens, true
						s, err := e.Submit(b.Context(), r)
						require.NoError(b, err)
						for range s.Pieces() {
						}
						res, err := s.Wait()
						require.NoError(b, err)
						require.Len(b, res.Tokens, tokens)
					})
				}
				all.Wait()
			}
			m.Report(b.N * rows * tokens)
			d.ReportGaps(b)
		})
	}
}

// onDevice is an Engine of llama3.2-1b whose launches have 16 steps at most and compute nothing.
func onDevice(b *testing.B, rows int) (*engine.Engine, *devicetest.Device) {
	c, err := models.Lookup("llama3.2-1b")
	require.NoError(b, err)
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 132, Tokens: rows, Draws: true})
	require.NoError(b, err)
	text, _, err := bundled.Tokenizer("tiny")
	require.NoError(b, err)
	d := devicetest.New(mk, text.Size(), 2*time.Millisecond)
	e, err := engine.New(b.Context(), engine.Options{Kernel: mk, Device: d, Weights: devicetest.Nothing{}, Text: text,
		KVTokens: 32768, TokensPerLaunch: 16, HangTimeout: time.Minute})
	require.NoError(b, err)
	return e, d
}
