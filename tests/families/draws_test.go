package families

import (
	"math"
	"testing"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/tasks/draw"
	"github.com/stretchr/testify/require"
)

// drawn is how a case's sequences draw: with a mask and log-probabilities, and with what truncates and penalties.
func drawn(c models.Config, tokens []int) (params []sampling.Params, rules []draw.Rule) {
	params = []sampling.Params{{Temperature: 2, Seed: 7},
		{Temperature: 1.5, TopK: 20, TopP: 0.9, MinP: 0.01, Seed: 1 << 40}}
	masked := params[0].Rule(&sampling.Penalties{}, nil, nil, 0)
	masked.SetTops(3)
	mask := make([]uint32, draw.MaskWords(c.Vocab))
	for i := range mask {
		mask[i] = 0x5a5a5a5a
	}
	masked.SetMask(mask)
	penalties := sampling.Penalties{Repetition: 1.3, Presence: 0.4, Frequency: 0.2,
		Bias: map[int]float64{5: 3, 20: math.Inf(-1)}}
	return params, []draw.Rule{masked, params[1].Rule(&penalties, tokens, nil, 0)}
}

// Every family's kernels that draw, of one row and of several: logits are the reference's that rounds as the kernel
// does, and tokens are those that the host draws from them.
func TestKernelsDrawTokensForEveryFamily(t *testing.T) {
	eachFamily(t, func(t *testing.T, c *Case, config models.Config, w reference.Weights) {
		tokens := c.Tokens[:3]
		want := logitsOf(t, config, w, tokens, reference.AsKernel(config))
		most := limit(distance(want, logitsOf(t, config, w, tokens, reference.Hooks{})))
		params, rules := drawn(config, tokens)
		for _, rows := range []int{1, 6} {
			o := small
			o.Draws, o.Tokens = true, rows
			if rows > 1 {
				o.Splits = 0
			}
			mk, err := megakernel.Build(config, o)
			require.NoError(t, err)
			sequences := min(rows, len(rules))
			chosen, logits := draws(t, mk, w, tokens, rules[:sequences])
			for i := range sequences {
				require.Less(t, distance([][]float64{wide(logits[i])}, want[len(want)-1:]), most, "%d rows", rows)
				rules[i].Change(logits[i], uint32(len(tokens)))
				token, err := sampling.Sample(logits[i], params[i], len(tokens))
				require.NoError(t, err)
				require.Equal(t, token, chosen[i], "%d rows, sequence %d", rows, i)
			}
		}
	})
}

// draws feeds the same tokens to a sequence for each rule and returns what these choose, and the logits before rules.
func draws(t *testing.T, mk *megakernel.Kernel, w reference.Weights, tokens []int,
	rules []draw.Rule) (chosen []int, logits [][]float32) {
	t.Helper()
	sim, err := runtime.NewSim(mk.IR, 1)
	require.NoError(t, err)
	for range rules {
		logits = append(logits, make([]float32, mk.Config.Vocab))
	}
	if mk.Options.Tokens == 1 {
		s, err := runtime.NewSequence(mk, sim, tensors(w), 2, backwards(1), 0)
		require.NoError(t, err)
		require.NoError(t, s.SetDraw(rules[0]))
		chosen, err = s.Generate(tokens, 1)
		require.NoError(t, err)
		require.NoError(t, s.Logits(logits[0]))
		return chosen, logits
	}
	s, err := runtime.Open(t.Context(), mk, sim, runtime.FromTensors(tensors(w), runtime.LoadOptions{}),
		runtime.Options{Pages: len(rules) + 1})
	require.NoError(t, err)
	q := batch.StepRequest{Steps: 1, Each: func(of []int) bool { chosen = append(chosen, of...); return true }}
	for i, rule := range rules {
		q.Sequences = append(q.Sequences, batch.Sequence{New: tokens, Pages: []uint32{uint32(len(rules) - i)}, Draw: rule})
	}
	_, err = s.Run(t.Context(), q)
	require.NoError(t, err)
	for i := range rules {
		require.NoError(t, s.TokenLogits(i, len(tokens)-1, logits[i]))
	}
	return chosen, logits
}
