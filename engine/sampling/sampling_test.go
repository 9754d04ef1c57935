package sampling

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// golden is what transformers left of logits; testdata/make_golden.py made it.
type golden struct {
	Cases []struct {
		Logits []*float32 // nil for -inf
		Left   []struct {
			Temperature float64
			TopK        int     `json:"top_k"`
			TopP        float64 `json:"top_p"`
			MinP        float64 `json:"min_p"`
			Probs       [][2]float64
		}
	}
}

func TestWhatIsLeftIsWhatTransformersLeaves(t *testing.T) {
	data, err := os.ReadFile("testdata/golden.json")
	require.NoError(t, err)
	var g golden
	require.NoError(t, json.Unmarshal(data, &g))
	n := 0
	for _, c := range g.Cases {
		logits := make([]float32, len(c.Logits))
		for j, x := range c.Logits {
			logits[j] = float32(math.Inf(-1))
			if x != nil {
				logits[j] = *x
			}
		}
		for _, l := range c.Left {
			p := Params{Temperature: l.Temperature, TopK: l.TopK, TopP: l.TopP, MinP: l.MinP}
			if p.Temperature == 0 {
				p.Temperature = 1
			}
			require.NoError(t, p.Check())
			requireSame(t, l.Probs, logits, p)
			n++
		}
	}
	require.Equal(t, 84, n)
}

// requireSame compares what stays with transformers'. Of equal logits its top-p keeps what its sort happens to put
// last; here all of them stay, which may be more. Tokens that transformers keeps at odds below 10⁻¹³ are too far to be
// drawn.
func requireSame(t *testing.T, want [][2]float64, logits []float32, p Params) {
	t.Helper()
	row := p.Row()
	stays := row.Stays(logits)
	least, wanted := float32(math.Inf(1)), map[int]float64{}
	for _, w := range want {
		token := int(w[0])
		wanted[token] = w[1]
		if w[1] > 1e-13 {
			least = min(least, logits[token])
			require.True(t, stays(logits[token]), "token %d, %+v", token, p)
		}
	}
	more := 0
	for i, x := range logits {
		if _, ok := wanted[i]; stays(x) && !ok {
			require.Equal(t, least, x, "token %d, %+v", i, p)
			more++
		}
	}
	if more > 0 {
		require.NotZero(t, p.TopP)
		return
	}
	for i, q := range probabilities(logits, p) {
		require.InDelta(t, wanted[i], q, 1e-5*wanted[i]+1e-13, "token %d, %+v", i, p)
	}
}

// probabilities are those of the tokens that stay, in float64.
func probabilities(logits []float32, p Params) map[int]float64 {
	row, total, out := p.Row(), 0.0, map[int]float64{}
	stays := row.Stays(logits)
	for i, x := range logits {
		if stays(x) {
			out[i] = math.Exp(float64(x-slices.Max(logits)) / p.Temperature)
			total += out[i]
		}
	}
	for i := range out {
		out[i] /= total
	}
	return out
}

// Over many positions every token comes as often as its probability says.
func TestFrequenciesFollowTheSoftmax(t *testing.T) {
	logits := []float32{0, 1, float32(math.Inf(-1)), 2, -1}
	const n = 20000
	for _, p := range []Params{{Temperature: 1, Seed: 1}, {Temperature: 0.5, Seed: 2},
		{Temperature: 1, TopK: 2, Seed: 3}} {
		count := make([]int, len(logits))
		for position := range n {
			token, err := Sample(logits, p, position)
			require.NoError(t, err)
			count[token]++
		}
		want := probabilities(logits, p)
		for token, c := range count {
			q := want[token]
			require.InDelta(t, q*n, c, 4*math.Sqrt(n*q*(1-q)), "token %d, %+v", token, p)
		}
	}
}

func TestTheDrawDependsOnSeedAndPositionOnly(t *testing.T) {
	logits := make([]float32, 1000)
	p := Params{Temperature: 1, Seed: 42}
	draw := func(p Params) (got []int) {
		for position := range 6 {
			token, err := Sample(logits, p, position)
			require.NoError(t, err)
			got = append(got, token)
		}
		return got
	}
	got := draw(p)
	require.Equal(t, got, draw(p))
	other := p
	other.Seed++
	require.NotEqual(t, got, draw(other))
	other.Seed = p.Seed | 1<<40
	require.NotEqual(t, got, draw(other))
	require.Greater(t, slices.Max(got)-slices.Min(got), 100)
}

func TestGreedyTakesTheFirstOfTheHighest(t *testing.T) {
	token, err := Sample([]float32{1, 3, 3, 2}, Params{}, 7)
	require.NoError(t, err)
	require.Equal(t, 1, token)
}

func TestLogitsOfNoProbabilityAreRefused(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, p := range []Params{{}, {Temperature: 1}, {Temperature: 1, TopK: 1}} {
		_, err := Sample([]float32{0, nan, 1}, p, 0)
		require.EqualError(t, err, "the logit of token 1 is NaN")
		_, err = Sample([]float32{0, 1, inf}, p, 0)
		require.EqualError(t, err, "the logit of token 2 is +Inf")
		_, err = Sample([]float32{-inf, -inf}, p, 0)
		require.EqualError(t, err, "every logit is -inf")
	}
}

func TestSettingsOutsideTheirRangeAreRefused(t *testing.T) {
	for want, p := range map[string]Params{
		"Temperature: found -1, want a finite number from 0": {
			Temperature: -1},
		"Temperature: found NaN, want a finite number from 0":  {Temperature: math.NaN()},
		"Temperature: found +Inf, want a finite number from 0": {Temperature: math.Inf(1)},
		"TopK: found -3, want a whole number from 0":           {Temperature: 1, TopK: -3},
		"TopP: found 1.5, want 0 to 1":                         {Temperature: 1, TopP: 1.5},
		"TopP: found NaN, want 0 to 1":                         {Temperature: 1, TopP: math.NaN()},
		"MinP: found -0.1, want 0 to 1":                        {Temperature: 1, MinP: -0.1},
		"TopK: found 40 with temperature 0, which always takes the highest logit; want a temperature above 0":  {TopK: 40},
		"MinP: found 0.1 with temperature 0, which always takes the highest logit; want a temperature above 0": {MinP: 0.1},
	} {
		require.EqualError(t, p.Check(), want)
	}
	require.NoError(t, Params{}.Check())
	require.NoError(t, Params{TopP: 1}.Check())
	require.NoError(t, Params{Temperature: 2, TopK: 1, TopP: 0.5, MinP: 1}.Check())
}

// The least share that there is keeps the highest logit, also where float32 has no such number.
func TestTopPOfNextToNothingKeepsOneToken(t *testing.T) {
	for _, p := range []float64{math.SmallestNonzeroFloat64, 1e-44, 1e-30, 1e-3} {
		for seed := range uint64(20) {
			got, err := Sample([]float32{1, 2, 3, 2.5, 0}, Params{Temperature: 2, TopP: p, Seed: seed}, 5)
			require.NoError(t, err)
			require.Equal(t, 2, got, "%g", p)
		}
	}
}

func BenchmarkSample128k(b *testing.B) {
	logits := make([]float32, 128256)
	for i := range logits {
		logits[i] = float32(8 * math.Sin(float64(i)*1.7))
	}
	for _, p := range []Params{{Temperature: 1}, {Temperature: 0.8, TopK: 50, TopP: 0.95},
		{Temperature: 0.8, TopP: 0.95}} {
		b.Run("", func(b *testing.B) {
			for i := range b.N {
				if _, err := Sample(logits, p, i); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
