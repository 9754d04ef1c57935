package sampling

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// penalized is what transformers made of logits; testdata/make_penalties.py made it.
type penalized struct {
	Cases []struct {
		Logits, Scores []float32
		Seen           []int
		Repetition     float64
		Bias           map[int]float64
		Logprobs       []float64
	}
}

func readPenalized(t *testing.T) penalized {
	t.Helper()
	data, err := os.ReadFile("testdata/penalties.json")
	require.NoError(t, err)
	var p penalized
	require.NoError(t, json.Unmarshal(data, &p))
	require.Len(t, p.Cases, 8)
	return p
}

// To the bit: transformers computes in float32, too.
func TestRepetitionAndBiasAreTransformers(t *testing.T) {
	for _, c := range readPenalized(t).Cases {
		p := Penalties{Repetition: c.Repetition, Bias: c.Bias}
		require.NoError(t, p.Check(len(c.Logits)))
		for split := range c.Seen { // some in the prompt, the others in the answer
			require.Equal(t, c.Scores, changed(&p, c.Logits, c.Seen[:split], c.Seen[split:]))
		}
	}
}

// What all of transformers' processors leave together, in their order.
func TestRulesAreTransformersProcessors(t *testing.T) {
	data, err := os.ReadFile("testdata/processors.json") // testdata/make_processors.py made it
	require.NoError(t, err)
	var golden struct {
		Cases []struct {
			Logits               []float32
			Prompt, Answer, Ends []int
			Bias                 map[int]float64
			Least                int
			TopK                 int `json:"top_k"`
			Repetition           float64
			Temperature          float64
			TopP                 float64 `json:"top_p"`
			MinP                 float64 `json:"min_p"`
			Probs                [][2]float64
		}
	}
	require.NoError(t, json.Unmarshal(data, &golden))
	require.Len(t, golden.Cases, 24)
	for _, c := range golden.Cases {
		p := Params{Temperature: c.Temperature, TopK: c.TopK, TopP: c.TopP, MinP: c.MinP}
		require.NoError(t, p.Check())
		r := p.Rule(&Penalties{Repetition: c.Repetition, Bias: c.Bias}, c.Prompt, c.Ends, c.Least)
		for _, token := range c.Answer {
			r.Took(token)
		}
		r.Change(c.Logits, uint32(len(c.Prompt)+len(c.Answer)))
		requireSame(t, c.Probs, c.Logits, p)
	}
}

// changed are logits after a prompt and an answer.
func changed(p *Penalties, logits []float32, prompt, answer []int) []float32 {
	r := Params{}.Rule(p, prompt, nil, 0)
	for _, token := range answer {
		r.Took(token)
	}
	got := slices.Clone(logits)
	r.Change(got, uint32(len(prompt)+len(answer)))
	return got
}

func TestLogprobsAreTorchs(t *testing.T) {
	for _, c := range readPenalized(t).Cases {
		order := make([]int, len(c.Logits))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int {
			if c.Logprobs[a] > c.Logprobs[b] {
				return -1
			}
			return 1
		})
		for token := range c.Logits {
			for n := range 7 {
				got, err := LogprobsOf(c.Logits, token, n)
				require.NoError(t, err)
				require.Equal(t, token, got.Token)
				require.InDelta(t, c.Logprobs[token], got.Logprob.Logprob, 1e-12)
				require.Len(t, got.Top, n)
				for i, l := range got.Top {
					require.Equal(t, order[i], l.Token)
					require.InDelta(t, c.Logprobs[l.Token], l.Logprob, 1e-12)
				}
			}
		}
	}
}

// OpenAI's documentation: mu[j] − c[j]·frequency − (c[j] > 0)·presence, with c[j] how often j is in the answer.
func TestPresenceAndFrequencyAreOfTheAnswer(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	counts, answer := map[int]int{}, []int(nil)
	for range 20 {
		answer = append(answer, r.IntN(8))
		counts[answer[len(answer)-1]]++
	}
	for token, x := range changed(&Penalties{Presence: 0.75, Frequency: 0.5}, make([]float32, 10), []int{1, 2, 9},
		answer) {
		want := -0.5 * float64(counts[token])
		if counts[token] > 0 {
			want -= 0.75
		}
		require.InDelta(t, want, x, 1e-6)
	}
}

func TestOfEqualLogitsTheLowerTokenIsFirst(t *testing.T) {
	got, err := LogprobsOf([]float32{1, 5, 5, 0, 5}, 3, 4)
	require.NoError(t, err)
	var tokens []int
	for _, l := range got.Top {
		tokens = append(tokens, l.Token)
	}
	require.Equal(t, []int{1, 2, 4, 0}, tokens)
}

func TestImpossiblePenaltiesAreRefused(t *testing.T) {
	for _, p := range []Penalties{{Repetition: -1}, {Repetition: math.Inf(1)}, {Presence: math.NaN()},
		{Frequency: math.Inf(1)}, {Bias: map[int]float64{9: 1}}, {Bias: map[int]float64{-1: 1}},
		{Bias: map[int]float64{1: math.Inf(1)}}, {Bias: map[int]float64{1: 1e39}}, {Repetition: 1e-50}} {
		require.ErrorAs(t, p.Check(9), new(*RangeError))
	}
	require.NoError(t, (&Penalties{Bias: map[int]float64{8: math.Inf(-1)}}).Check(9))
}
