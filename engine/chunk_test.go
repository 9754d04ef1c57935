package engine

import (
	"testing"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/batch/batchtest"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// chunked is an Engine on a fake with steps of 4 rows and launches of prompts of 32 tokens, with PrefillChunk of 8.
func chunked(t *testing.T, pin int) (*Engine, *batchtest.Stepper) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 2, Tokens: 4, Page: fakePage})
	require.NoError(t, err)
	return newFake(t, func(o *Options) {
		o.Kernel, o.KVTokens, o.TokensPerLaunch, o.Pin = mk, 400, 1, pin*mk.ChunkTokens()
		o.PrefillChunk = func(int, int, bool) int { return 8 }
	}, func(f *batchtest.Stepper) { f.T, f.Long = 4, 32 })
}

// With Pin a prompt comes in pieces of PrefillChunk tokens though nobody else runs; without it a prompt that runs alone
// has launches of as many as a prefill kernel takes.
func TestPinnedPromptsComeInPiecesOfPrefillChunk(t *testing.T) {
	for pin, want := range [][]string{{"1 0+32", "1 32+8"}, {"1 0+8", "1 8+8", "1 16+8", "1 24+8", "1 32+8"}} {
		e, f := chunked(t, pin)
		_, err := e.Generate(t.Context(), Request{Tokens: make([]int, 40), MaxTokens: 1}, nil)
		require.NoError(t, err)
		require.Equal(t, want, f.Log)
	}
}

// Beside a request that generates, a prompt's launches have PrefillChunk tokens, and steps of rows come between them.
func TestPromptsBesideOthersComeInLaunchesOfPrefillChunk(t *testing.T) {
	e, f := chunked(t, 0)
	begun, goOn := make(chan struct{}), make(chan struct{})
	f.Before = func(batch.StepRequest) {
		if f.Launches == 1 { // of the other request
			close(begun)
			<-goOn
		}
	}
	other := ask(t, e, Request{Tokens: []int{1}, MaxTokens: 30})
	<-begun
	prompt := ask(t, e, Request{Tokens: make([]int, 40), MaxTokens: 1})
	close(goOn)
	for _, s := range []*Stream{prompt, other} {
		_, err := s.Wait()
		require.NoError(t, err)
	}
	require.Equal(t, []string{"1 0+1", "1 0+8", "1 1+1 8+3", "1 11+8", "1 2+1 19+3", "1 22+8"}, f.Log[:6])
}
