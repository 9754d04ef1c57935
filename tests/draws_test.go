package tests

import (
	"testing"

	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// How the tests draw: not at all, plainly, and with all that truncates.
var draws = []sampling.Params{
	{},
	{Temperature: 1.5, Seed: 7},
	{Temperature: 0.8, TopK: 50, TopP: 0.95, Seed: 1 << 40},
	{Temperature: 3, TopK: 5, MinP: 0.1, Seed: 9},
	{Temperature: 2, TopP: 0.5, Seed: 10},
	{Temperature: 5, TopK: 3, TopP: 0.6, Seed: 11}, // what is drawn first rarely stays
}

// The kernel draws from its own logits as the host does, a token a launch or many.
func TestTheKernelDrawsAsTheHostDoes(t *testing.T) {
	prompt := synth.Tokens(2, 0, 9, 320)
	for _, p := range draws {
		s, _, c := tinySessionOf(t, 3, megakernel.Options{SMs: 4, Draws: true})
		require.NoError(t, s.SetDraw(p.Row()))
		var want []int
		feed, logits := prompt, make([]float32, c.Vocab)
		for range 5 {
			chosen, err := s.Generate(feed, 1)
			require.NoError(t, err)
			require.NoError(t, s.Logits(logits))
			token, err := sampling.Sample(logits, p, s.Pos())
			require.NoError(t, err)
			require.Equal(t, []int{token}, chosen)
			want, feed = append(want, token), chosen
		}
		s, _, _ = tinySessionOf(t, 4, megakernel.Options{SMs: 4, Draws: true})
		require.NoError(t, s.SetDraw(p.Row()))
		got, err := s.Generate(prompt, 5)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}
