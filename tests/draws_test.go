package tests

import (
	"math"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
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

// What changes their logits.
var penalties = sampling.Penalties{Repetition: 1.3, Presence: 0.4, Frequency: 0.2,
	Bias: map[int]float64{5: 3, 70: 2, 200: math.Inf(-1)}}

// The kernel draws from its own logits as the host does, a token a launch or many.
func TestTheKernelDrawsAsTheHostDoes(t *testing.T) {
	prompt, ends := synth.Tokens(2, 0, 9, 320), synth.Tokens(3, 0, 100, 320)
	for i, p := range draws {
		if i%3 != 2 && !deep.On() { // two that truncate
			continue
		}
		s, _, c := tinySessionOf(t, 3, megakernel.Options{SMs: 4, Draws: true})
		mask := slices.Repeat([]uint32{[]uint32{0xdeadbeef, 1<<32 - 1}[i%2]}, 10)
		row := p.Rule(&penalties, prompt, ends, 3)
		row.SetTops(4 * i)
		row.SetMask(mask)
		var want []int
		feed, logits := prompt, make([]float32, c.Vocab)
		for range 5 {
			require.NoError(t, s.SetDraw(row))
			chosen, err := s.Generate(feed, 1)
			require.NoError(t, err)
			require.NoError(t, s.Logits(logits))
			of, err := sampling.LogprobsOf(logits, chosen[0], row.Tops())
			require.NoError(t, err)
			row.Change(logits, uint32(s.Pos()))
			token, err := sampling.Sample(logits, p, s.Pos())
			require.NoError(t, err)
			require.Equal(t, []int{token}, chosen)
			row.Took(token)
			scores, err := s.Logprobs(token)
			require.NoError(t, err)
			requireNear(t, of, scores)
			want, feed = append(want, token), chosen
		}
		s, _, _ = tinySessionOf(t, 4, megakernel.Options{SMs: 4, Draws: true})
		row = p.Rule(&penalties, prompt, ends, 3)
		row.SetMask(mask)
		require.NoError(t, s.SetDraw(row))
		got, err := s.Generate(prompt, 5)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// An engine whose kernel makes the log-probabilities, many tokens a launch, gives those that the host makes of all
// logits.
func TestLogprobsOfTheKernelAreTheHosts(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for _, rows := range deep.Most([]int{3, 1}, 1) { // with -deep of more tokens than a launch has
		answers := func(drawn bool) (all []engine.Result) {
			mk, err := megakernel.Build(c, megakernel.Options{SMs: 3, Tokens: rows, Draws: drawn})
			require.NoError(t, err)
			sim, err := runtime.NewSim(mk.IR, 5)
			require.NoError(t, err)
			device, pin := &launches{Sim: sim}, 0
			if rows > 1 { // what a launch computes is then the same whatever runs beside it
				pin = 2 * mk.ChunkTokens()
			}
			e, err := engine.New(t.Context(), engine.Options{Kernel: mk, Device: device, KVTokens: 128, Ends: []int{}, Pin: pin,
				Weights: runtime.FromTensors(synth.NewWeights(1, c), runtime.LoadOptions{})})
			require.NoError(t, err)
			defer func() { require.NoError(t, e.Close()) }()
			var streams []*engine.Stream
			for i, n := range []int{20, -1}[:min(rows, 2)] {
				s, err := e.Submit(t.Context(), engine.Request{Tokens: synth.Tokens(uint64(i), 0, 13, c.Vocab),
					MaxTokens: deep.Count(19, 6), Sampling: draws[2*i], Penalties: []sampling.Penalties{{},
						penalties}[i], MinTokens: 4, StopTokens: synth.Tokens(3, 0, 40, c.Vocab),
					Logprobs: n >= 0, TopLogprobs: max(n, 0), PromptLogprobs: i == 0})
				require.NoError(t, err)
				streams = append(streams, s)
			}
			for _, s := range streams {
				got, err := s.Wait()
				require.NoError(t, err)
				all = append(all, got)
			}
			require.Equal(t, drawn, device.logits == 0, "the host reads no logits")
			return all
		}
		want := answers(false)
		for i, got := range answers(true) {
			require.Equal(t, want[i].Tokens, got.Tokens)
			require.Len(t, got.Logprobs, len(want[i].Logprobs))
			for j, w := range want[i].Logprobs {
				requireNear(t, w, got.Logprobs[j])
			}
			require.Len(t, want[0].PromptLogprobs, 12)
			require.Len(t, got.PromptLogprobs, len(want[i].PromptLogprobs))
			for j, w := range want[i].PromptLogprobs {
				requireNear(t, w, got.PromptLogprobs[j])
			}
		}
	}
}

// requireNear wants log-probabilities of the same tokens, as far as float32's sums have them.
func requireNear(t *testing.T, want, got sampling.Logprobs) {
	t.Helper()
	near := func(want, got sampling.Logprob) {
		require.Equal(t, want.Token, got.Token)
		require.InDelta(t, want.Logprob, got.Logprob, 2e-6)
	}
	near(want.Logprob, got.Logprob)
	require.Len(t, got.Top, len(want.Top))
	for i := range want.Top {
		near(want.Top[i], got.Top[i])
	}
}

// Where SMs are few a warp merges lists of several tokens of a launch, one after the other: without the sync between
// them it collects those of the next where lanes still read.
func TestTokensThatAWarpMergesAreApart(t *testing.T) {
	all := killSubjects(t)
	i := slices.IndexFunc(all, func(s killSubject) bool { return s.name == "one layer in the ring, draws, one SM" })
	s := all[i].open(t)
	ms := slices.DeleteFunc(mutantsOf(s.ir), func(m mutant) bool {
		return m.Class != mutate.Remove || m.Key.Op != "syncwarp" || m.Key.Behind != "ld @draws"
	})
	require.Len(t, ms, 1)
	o, err := s.try(t.Context(), ms[0], 1)
	require.NoError(t, err)
	require.Equal(t, "data race", o.Report)
	require.Contains(t, o.Place, "sample/highest.go")
}
