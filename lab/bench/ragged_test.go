package bench

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/mkgen/mkgen/lab/bench/ceiling"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// fakeSteps is a runner whose steps take 100 µs and one more each call.
type fakeSteps struct {
	calls []string
	wrong bool // every call chooses other tokens
}

func (f *fakeSteps) Steps(_ context.Context, shape Shape, cached, n int) (r Round, err error) {
	f.calls = append(f.calls, string(shape))
	for i := range n {
		d := time.Duration(100+len(f.calls)) * time.Microsecond
		r.Device += d
		r.Wall += 2 * d
		r.Each = append(r.Each, d)
		r.Chosen = append(r.Chosen, cached+i)
		if f.wrong {
			r.Chosen[i] += len(f.calls)
		}
	}
	return r, nil
}

func raggedBench(t *testing.T, f *fakeSteps) *raggedSteps {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	return &raggedSteps{Config: c, Runner: f, Rows: 8, OneRow: map[int]float64{100: 80},
		Ceiling: func(context.Context) (ceiling.Measured, error) {
			return ceiling.Measured{Variant: ceiling.Variants()[0], GBps: 4600, Min: 4500, Max: 4700}, nil
		}}
}

func TestStepsOfSeveralRowsAreMeasuredInBothShapes(t *testing.T) {
	f := &fakeSteps{}
	b := raggedBench(t, f)
	cases, err := b.Run(t.Context(), Method{Contexts: []int{100}, Rounds: 5, Tokens: 128, WarmUp: 2})
	require.NoError(t, err)
	require.Equal(t, strings.Fields(strings.Repeat("sequences ", 6)+strings.Repeat("chunk ", 6)), f.calls)
	require.Len(t, cases, 2)
	many, chunk := cases[0], cases[1]
	require.Equal(t, []any{8, 8, Sequences, 1024, 1024}, []any{many.Batch, many.Tokens, many.Feed, many.TokensPerRound,
		many.TokensPerLaunch})
	require.Equal(t, []any{1, 8, Chunk, 128, 8}, []any{chunk.Batch, chunk.Tokens, chunk.Feed, chunk.TokensPerRound,
		chunk.TokensPerLaunch})
	require.Equal(t, []float64{104, 13, 26, 0}, []float64{many.StepMicros, many.DeviceMicros, many.Micros, many.Ratio})
	require.Equal(t, []float64{110, 80, 1.375}, []float64{chunk.StepMicros, chunk.OneRowMicros, chunk.Ratio})
	require.InEpsilon(t, 8e6/220, chunk.TokensPerSecond, 1e-5)
	for i := range cases {
		require.InDelta(t, BytesPerStep(b.Config, 0, 0, cases[i].Feed, 8, 100, cases[i].TokensPerRound/8),
			8*cases[i].BytesPerToken, 1e-6)
		require.Empty(t, cases[i].disagreements())
		cases[i].Ratio += 0.01
		require.Len(t, cases[i].disagreements(), 1)
	}
	var table strings.Builder
	require.NoError(t, WriteStepTable(&table, cases, Ungated))
	require.Contains(t, table.String(), "8 of one sequence")
}

func TestRoundsThatChooseOtherTokensAreNoMeasurement(t *testing.T) {
	_, err := raggedBench(t, &fakeSteps{wrong: true}).Run(t.Context(), Method{Contexts: []int{100}, Rounds: 5, Tokens: 4})
	require.EqualError(t, err,
		"sequences, context 100: two rounds from the same state chose different tokens: the kernel is not deterministic")
}

func TestAStepReadsWeightsOnceAndKVOnceASequence(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	w, kv, rows := float64(c.WeightBytes()), float64(c.KVBytesPerToken()), 7*2*float64(c.Hidden)
	require.Equal(t, w+100*kv+rows, BytesPerStep(c, 0, 0, Chunk, 8, 100, 16))
	require.Equal(t, w+8*(100+1.5)*kv+rows, BytesPerStep(c, 0, 0, Sequences, 8, 100, 4))
}

func TestOneRowIsTheMedianOfSingleSteps(t *testing.T) {
	f := &fake{}
	of, err := OneRow(t.Context(), f, Method{Contexts: []int{100, 200}, Rounds: 1, Tokens: 21, WarmUp: 4})
	require.NoError(t, err)
	require.Equal(t, map[int]float64{100: 112, 200: 234}, of)
	require.Equal(t, [2]int{100, 4}, f.calls[0])
	require.Equal(t, [2]int{100, 1}, f.calls[1])
}

func TestTheBatchOfACaseFollowsFromItsRows(t *testing.T) {
	for _, c := range []struct {
		batch, tokens int
		feed          Shape
		ok            bool
	}{{1, 0, "", true}, {1, 8, Chunk, true}, {8, 8, Sequences, true}, {8, 0, "", false}, {1, 8, Sequences, false},
		{1, 8, "", false}, {1, 0, Chunk, false}} {
		r := sample().Cases[0]
		r.Batch, r.Tokens, r.Feed = c.batch, c.tokens, c.feed
		require.Equal(t, c.ok, !strings.Contains(strings.Join(r.problems(), "\n"), "want a batch of"), "%+v", c)
	}
}
