package bench_test

import (
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/bench/ceiling"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/stretchr/testify/require"
)

// top is a ceiling, as if it had been measured.
func top() ceiling.Measured {
	return ceiling.Measured{Variant: ceiling.Variants()[0], GBps: 10, Min: 9, Max: 11}
}

// The cases of a decoder are those of the suite, but for their times.
func TestADecoderMeasuresWhatASuiteDoes(t *testing.T) {
	s := tinySuite(t)
	want, err := s.Run(t.Context())
	require.NoError(t, err)
	d, err := tinySuite(t).Decoder(t.Context())
	require.NoError(t, err)
	require.Nil(t, d.Gate)
	for _, w := range want.Cases {
		c, err := d.Measure(t.Context(), top(), 1, w.Context)
		require.NoError(t, err)
		require.NoError(t, c.Consistent())
		require.Equal(t, []any{w.Model, w.DType, w.Batch, w.Context, w.BytesPerToken, w.TokensPerRound, w.TokensPerLaunch,
			w.PerTokenFrom, w.Weights},
			[]any{c.Model, c.DType, c.Batch, c.Context, c.BytesPerToken, c.TokensPerRound, c.TokensPerLaunch, c.PerTokenFrom,
				c.Weights})
		require.Equal(t, top(), c.Ceiling)
	}
	require.NoError(t, d.Close())
}

// A kernel of four rows decodes fewer sequences, too, in the pages that it is given.
func TestADecoderOfSeveralRowsTakesFewerSequences(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a kernel on the executor")
	}
	s := raggedSuite(t)
	s.Method = bench.Method{Contexts: []int{6}, Rounds: 2, Tokens: 2}
	s.Pages = 3 * 2 // three sequences of 8 tokens, in pages of 4
	d, err := s.Decoder(t.Context())
	require.NoError(t, err)
	for _, n := range []int{2, 3} {
		c, err := d.Measure(t.Context(), top(), n, 6)
		require.NoError(t, err)
		require.NoError(t, c.Consistent())
		require.Equal(t, []any{n, n, bench.Sequences, 2 * n}, []any{c.Batch, c.Tokens, c.Feed, c.TokensPerRound})
		require.InEpsilon(t, bench.BytesPerStep(s.Kernel.Config, 0, s.Kernel.KVTokenBytes(), bench.Sequences, n, 6, 2),
			c.BytesPerToken*float64(n), 1e-9)
		step, low, high := c.Step()
		require.InEpsilon(t, c.StepMicros, step, 1e-4)
		require.True(t, low <= step && step <= high)
	}
	_, err = d.Measure(t.Context(), top(), 4, 6)
	require.ErrorContains(t, err, "4 sequences of 8 tokens take 8 pages, there are 6")
	require.NoError(t, d.Close())
}

// With a reference the kernel is judged before its cases, which say so.
func TestADecoderIsJudgedFirst(t *testing.T) {
	deep.Only(t)
	if testing.Short() {
		t.Skip("runs several kernels on the executor")
	}
	s := tinySuite(t)
	var err error
	s.Reference, err = gate.OpenReference(writeReference(t, s.Kernel.Config, 2))
	require.NoError(t, err)
	s.Rules = small()
	d, err := s.Decoder(t.Context())
	require.NoError(t, err)
	require.NoError(t, d.Gate.Err())
	c, err := d.Measure(t.Context(), top(), 1, 3)
	require.NoError(t, err)
	require.Equal(t, d.Gate.Gate, c.Gate)
	require.NoError(t, d.Close())
}

func TestFiguresThatDoNotAgreeAreInconsistent(t *testing.T) {
	d, err := tinySuite(t).Decoder(t.Context())
	require.NoError(t, err)
	c, err := d.Measure(t.Context(), top(), 1, 3)
	require.NoError(t, err)
	require.NoError(t, d.Close())
	c.Share *= 2
	require.ErrorContains(t, c.Consistent(), "share is ")
	c.P99 = 0
	require.ErrorContains(t, c.Consistent(), "a figure is 0, want all positive")
}
