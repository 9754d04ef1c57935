package bench_test

import (
	"context"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/stretchr/testify/require"
)

// prefillSuite is one of tiny on the executor, whose prefill kernel may be of another model than its decode kernels.
func prefillSuite(t *testing.T, kv attention.KVType, spoil func(c *models.Config)) *bench.PrefillSuite {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	s := &bench.PrefillSuite{Machine: bench.Executor{Seed: 1}, Lengths: []int{18, 40}, Rounds: 1,
		Weights: func(context.Context) (runtime.Weights, error) {
			return runtime.FromTensors(synth.NewWeights(1, c), runtime.LoadOptions{}), nil
		}}
	for _, rows := range []int{16, 1} {
		mk, err := megakernel.Build(c, megakernel.Options{SMs: 2, Tokens: rows, KV: kv})
		require.NoError(t, err)
		s.Decode = append(s.Decode, mk)
	}
	other := c
	if spoil != nil {
		spoil(&other)
	}
	of, err := megakernel.Build(other, megakernel.Options{SMs: 2, Tokens: 16, KV: kv})
	require.NoError(t, err)
	for _, tokens := range []int{32, 20} {
		p, err := megakernel.BuildPrefill(of, megakernel.PrefillOptions{Tokens: tokens, Groups: 1, Sequences: 2})
		require.NoError(t, err)
		s.Prefill = append(s.Prefill, p)
	}
	return s
}

func TestPromptsAreMeasuredThroughThePrefillKernel(t *testing.T) {
	s := prefillSuite(t, attention.KVBF16, nil)
	out, err := s.Run(t.Context())
	require.NoError(t, err)
	require.Len(t, out.Cases, 2)
	require.Positive(t, out.Cases[1].Seconds())
	// 18 tokens of tiny's two layers: 2·(320+96+704)·96 + 2·96·(192 − 96) + 2·96·352 operations, and 2·19·192 of
	// attention.
	require.InDelta(t, 2*18*(2*(320*96+96*192+704*96+96*352)+2*19*192), out.Cases[0].FLOP, 1)
	var text strings.Builder
	require.NoError(t, out.Write(&text, s.Machine.Facts()))
	require.Contains(t, text.String(), "of the executor: no measure of a GPU")
}

func TestAPrefillKernelThatIsWrongIsNotMeasured(t *testing.T) {
	for name, spoil := range map[string]func(c *models.Config){
		"another rotation":  func(c *models.Config) { c.Rope.Theta = 50 },
		"another ε of norm": func(c *models.Config) { c.NormEps = 0.5 },
	} {
		for kv, most := range map[attention.KVType]string{attention.KVBF16: "0.05", attention.KVE4M3: "0.15"} {
			_, err := prefillSuite(t, kv, spoil).Run(t.Context())
			require.ErrorContains(t, err, "of those without a prefill kernel, want at most "+most, "%s, %s", name, kv)
		}
	}
}

// The prefill kernels are as good as the reference at every position of two sequences, in chunks of many sizes between
// decode steps, and with each planted fault they are not.
func TestPrefillKernelsAreJudgedWithPlantedFaults(t *testing.T) {
	deep.Only(t)
	s := prefillSuite(t, attention.KVBF16, nil)
	s.Rules, s.Tensors = small(), synth.NewWeights(1, s.Decode[0].Config)
	var err error
	s.Reference, err = gate.OpenReference(writeReference(t, s.Decode[0].Config, 1, 40, 26))
	require.NoError(t, err)
	s.Progress = func(what string) { t.Log(what) }
	out, err := s.Run(t.Context())
	require.NoError(t, err)
	for _, d := range out.Gate.Details {
		t.Logf("%+v", d)
	}
	require.True(t, out.Gate.Details[0].Passed, "%v", out.Gate.Details[0].Reasons)
	require.NoError(t, out.Gate.Err())
	require.Equal(t, 40+26, out.Gate.Gate.Positions)
	require.Equal(t, []string{gate.MergeWeightWrong}, out.Gate.Gate.FaultsAbsent)
	require.Len(t, out.Gate.Gate.FaultsCaught, 4)
	l := out.Gate.Gate.Launches
	require.Positive(t, l.Mixed)
	require.GreaterOrEqual(t, l.Several, l.Mixed)
	require.Equal(t, 2, l.Sequences)
	require.Greater(t, l.Tokens, 20, "the smaller kernel takes no more")
}
