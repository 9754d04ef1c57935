package bench

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/mkgen/mkgen/lab/bench/ceiling"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

func TestMedianAndPercentiles(t *testing.T) {
	require.True(t, math.IsNaN(median(nil)))
	require.True(t, math.IsNaN(percentile(nil, 50)))
	require.Equal(t, 3.0, median([]float64{9, 3, 1}))
	require.Equal(t, 2.0, median([]float64{9, 1, 3, 1}))
	v := make([]float64, 1000)
	for i := range v {
		v[i] = float64(1000 - i)
	}
	require.Equal(t, []float64{500, 990, 1000}, []float64{percentile(v, 50), percentile(v, 99), percentile(v, 100)})
	require.Equal(t, 7.0, percentile([]float64{7}, 99))
	require.Equal(t, 1000.0, v[0], "the argument is left alone")
	require.Equal(t, []float64{0, 123457, 0.333333, -1},
		[]float64{significant(0), significant(123456.7), significant(1.0 / 3), significant(-1)})
}

// fake is a Runner whose token with n tokens before it takes n µs on the device
// and 2n µs by the host's clock; round r takes r µs a token more.
type fake struct {
	calls  [][2]int // cached, n
	rounds int
	wrong  int // from this call on other tokens are chosen
	err    error
}

func (f *fake) Tokens(_ context.Context, cached, n int) (r Round, err error) {
	f.calls = append(f.calls, [2]int{cached, n})
	f.rounds++
	for i := range n {
		d := time.Duration(cached+i+f.rounds) * time.Microsecond
		r.Device += d
		r.Each = append(r.Each, d)
		token := i
		if f.wrong > 0 && f.rounds >= f.wrong {
			token++
		}
		r.Chosen = append(r.Chosen, token)
	}
	r.Wall = 2 * r.Device
	return r, f.err
}

// faked is a Bench of fakes with a ceiling of 4600 GB/s.
func faked(t *testing.T, many *fake) (*Bench, *[]int) {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	var order []int // number of the runner's calls at each measurement of the ceiling
	b := &Bench{Config: c, Runner: many, Each: "by the GPU", PerLaunch: 128,
		Ceiling: func(context.Context) (ceiling.Measured, error) {
			order = append(order, len(many.calls))
			return ceiling.Measured{Variant: ceiling.Variants()[0], GBps: 4600, Min: 4500, Max: 4700}, nil
		}}
	return b, &order
}

func TestACaseIsTheMedianOfItsRounds(t *testing.T) {
	many := &fake{}
	b, ceilings := faked(t, many)
	cases, err := b.Run(t.Context(), Method{Contexts: []int{100, 200}, Rounds: 5, Tokens: 3, WarmUp: 2})
	require.NoError(t, err)
	require.Equal(t, []int{0, 6}, *ceilings, "the ceiling comes before each case")
	require.Equal(t, [2]int{100, 2}, many.calls[0], "warm-up")
	require.Equal(t, [2]int{100, 3}, many.calls[1])

	// Rounds 2 to 6 of tokens at 100, 101, 102: 103 to 107 µs a token.
	c := cases[0]
	require.Len(t, c.Rounds, 5)
	require.InDelta(t, 103, c.Rounds[0].Device, 1e-9)
	require.InDelta(t, 107, c.Rounds[4].Device, 1e-9)
	require.InDelta(t, 105, c.DeviceMicros, 1e-9)
	require.InDelta(t, 210, c.Micros, 1e-9)
	require.Equal(t, 4761.9, c.TokensPerSecond)
	// Single tokens: rounds 2 to 6 of 100 to 102, hence 102 to 108.
	require.Equal(t, []float64{105, 108, 108}, []float64{c.P50, c.P99, c.Max})
	want := float64(b.Config.WeightBytes()) + 101*float64(b.Config.KVBytesPerToken())
	require.Equal(t, want, c.BytesPerToken)
	require.InEpsilon(t, want/105/1e3, c.GBps, 1e-5)
	require.InEpsilon(t, c.GBps/4600, c.Share, 1e-5)
	require.Equal(t, []any{"tiny", "bf16", 1, 100, 3, 128}, []any{c.Model, c.DType, c.Batch, c.Context, c.TokensPerRound,
		c.TokensPerLaunch})
	low, high := c.spread()
	require.InDeltaSlice(t, []float64{103, 107}, []float64{low, high}, 1e-9)
}

func TestRoundsThatChooseOtherTokensAreRefused(t *testing.T) {
	b, _ := faked(t, &fake{wrong: 3})
	_, err := b.Run(t.Context(), Method{Contexts: []int{7}, Rounds: 3, Tokens: 2})
	require.EqualError(t, err,
		"context 7: two rounds from the same state chose different tokens: the kernel is not deterministic")
}

func TestTimesOfTokensAreBetweenStampsThatWrap(t *testing.T) {
	require.Equal(t, []time.Duration{700, 256}, apart([]uint32{1<<32 - 600, 100, 356}))
	require.Empty(t, apart([]uint32{5}))
	require.Empty(t, apart(nil))
}

func TestErrorsOfRunnerAndCeilingEndTheRun(t *testing.T) {
	broken := errors.New("broken")
	b, _ := faked(t, &fake{err: broken})
	_, err := b.Run(t.Context(), Method{Contexts: []int{7}, Rounds: 3, Tokens: 2, WarmUp: 1})
	require.ErrorIs(t, err, broken)
	b, _ = faked(t, &fake{})
	b.Ceiling = func(context.Context) (ceiling.Measured, error) { return ceiling.Measured{}, broken }
	_, err = b.Run(t.Context(), Method{Contexts: []int{7}})
	require.ErrorIs(t, err, broken)
}

// Bytes by the configuration are the plan's unpadded matrices, the gains, one
// embedding row, and the KV that the plan counts.
func TestBytesPerTokenAreWhatThePlanReads(t *testing.T) {
	for _, c := range models.Checked() {
		mk, err := megakernel.Build(c, megakernel.Options{})
		if err != nil {
			continue // no kernel for one GPU
		}
		gains := int64(2*c.Layers+2) * int64(c.Hidden) * 2 // with the embedding row
		for _, context := range []int{0, 1, 3072} {
			require.Equal(t, float64(mk.Plan.WeightBytes()+gains+mk.KVBytes(context)), BytesPerToken(c, 0, 0, context, 1),
				"%s at %d", c.Name, context)
		}
		mean := (BytesPerToken(c, 0, 0, 10, 1) + BytesPerToken(c, 0, 0, 11, 1) + BytesPerToken(c, 0, 0, 12,
			1) + BytesPerToken(c, 0, 0, 13, 1)) / 4
		require.InDelta(t, mean, BytesPerToken(c, 0, 0, 10, 4), 1e-3)
	}
}

func TestContextsBeyondTheModelsPositionsAreSetAside(t *testing.T) {
	m := DefaultMethod()
	fit, beyond := m.Fit(models.Config{MaxPositions: 8192})
	require.Equal(t, []int{128, 1024, 3072, 6144}, fit)
	require.Equal(t, []int{32768}, beyond)
	require.Equal(t, 32768+128, m.Positions())
	require.Empty(t, m.Refuse())
	m.Rounds = 4
	require.Equal(t, "4 rounds, want at least 5", m.Refuse())
	m.Rounds, m.Tokens = 5, 127
	require.Equal(t, "127 tokens a round, want at least 128", m.Refuse())
}

// judged is a gate that was passed.
func judged() gate.Record {
	at := 700
	return gate.Record{Rules: gate.RulesVersion, KLReference: 2e-3, KLOwn: 9e-4, KLOurs: 1e-3, Positions: 2048,
		Sequences: 3, Lengths: []int{512, 512, 6300}, WorstSeq: gate.Worst{Sequence: 1, KLReference: 3e-3, KLOwn: 2e-3,
			KLOurs: 2e-3, Limit: 3e-3},
		WorstPos:     gate.Worst{Sequence: 2, Position: &at, KLReference: 4e-3, KLOwn: 2e-3, KLOurs: 5e-3, Limit: 7e-2},
		FaultsCaught: gate.Faults(), Passed: true}
}

// sample is a record with which nothing is wrong.
func sample() *Record {
	r := &Record{GPU: "NVIDIA H200", Driver: "580.159.04", CUDA: "13.0", Commit: "abc",
		Options: Options{Compiler: "nvcc 13.0.88", Pages: "shuffled",
			Options: megakernel.Options{Consumers: 8, InFlight: 3, Page: 16, SMs: 132, Splits: 16, StageBytes: 16384, Stages: 12,
				Watchdog: "grid"}}}
	c, err := models.Lookup("llama3-8b")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	for _, cached := range []int{128, 1024, 3072, 6144} {
		k := Case{Model: c.Name, DType: "bf16", Batch: 1, Context: cached, TokensPerRound: 128, TokensPerLaunch: 128,
			PerTokenFrom: "by the GPU", Weights: "random, seed 1", BytesPerToken: BytesPerToken(c, 0, 0, cached, 128),
			CeilingGBps: 4630, Ceiling: ceiling.Measured{Variant: ceiling.Variants()[3], GBps: 4630, Min: 4620, Max: 4640},
			Gate: judged(), Replayed: 128}
		for i := range 5 {
			us := k.BytesPerToken / 4630 / 1e3 / 0.93 * (1 + 0.004*float64(i-2))
			k.Rounds = append(k.Rounds, RoundTimes{Wall: us + 8, Device: us})
		}
		k.complete([]float64{k.Rounds[1].Device, k.Rounds[2].Device, k.Rounds[4].Device + 30})
		r.Cases = append(r.Cases, k)
	}
	return r
}

// Of a layer with a window a step reads the tokens that it sees: one fewer than the window, which has its own.
func TestBytesOfWindows(t *testing.T) {
	c, err := models.Lookup("gemma-3-4b")
	require.NoError(t, err)
	layer := float64(c.KVBytesPerToken()) / float64(c.Layers)
	weights := float64(c.WeightBytes())
	require.InDelta(t, weights+34*1000*layer, BytesPerToken(c, 0, 0, 1000, 1), 1)
	require.InDelta(t, weights+(29*1023+5*6144)*layer, BytesPerToken(c, 0, 0, 6144, 1), 1)
	require.InDelta(t, weights+(29*(1022+2./3)+5*1023)*layer, BytesPerToken(c, 0, 0, 1022, 3), 1)
}
