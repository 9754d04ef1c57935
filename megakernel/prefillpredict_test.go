package megakernel

import (
	"testing"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// prefillsOf are the prefill kernels for steps of n tokens, and the decode kernel of 16 rows they belong to.
func prefillsOf(t *testing.T, name string, tokens int, o Options,
	activations pipeline.Format) (*Kernel, []*Prefill) {
	t.Helper()
	c, err := models.Lookup(name)
	require.NoError(t, err)
	o.Tokens = 16
	mk, err := Build(c, o)
	require.NoError(t, err)
	all, err := BuildPrefills(mk, tokens, activations)
	require.NoError(t, err)
	return mk, all
}

// Times that were measured on an H100 (docs/prefill.md) are predicted within a fifth; in steps of 1024.
func TestPredictedPromptsAreNearMeasuredOnes(t *testing.T) {
	for _, x := range []struct {
		model             string
		few, many, longer float64 // milliseconds of 128, 1024 and 8192 tokens
		format            pipeline.Format
	}{{"llama3-8b", 6.9, 25.3, 231, ""}, {"llama3.2-1b", 1.78, 4.66, 45.9, ""}, {"qwen3-0.6b", 2.05, 4.35, 45.2, ""},
		{"llama3-8b", 4.89, 16.92, 162.7, pipeline.FormatE4M3}} { // the last one on an H200
		_, all := prefillsOf(t, x.model, 1024, Options{Weights: x.format}, x.format)
		m, sum := PrefillMachine(), 0.0
		if x.format != "" {
			m = machine.H200()
		}
		for cached := 0; cached < 8192; cached += 1024 {
			sum += 1e3 * all[0].Predict(m, 1024, cached)
		}
		got := [3]float64{1e3 * all[len(all)-1].Predict(m, 128, 0), 1e3 * all[0].Predict(m, 1024, 0), sum}
		t.Log(x.model, got)
		for i, want := range [3]float64{x.few, x.many, x.longer} {
			require.InEpsilon(t, want, got[i], 0.21, "%s: %v", x.model, got)
		}
	}
}

// Launches of a prompt of 8192 tokens beside 15 sequences of a few hundred, as an H200 took them one after the other
// (bench/results/h200/2026-11-26-runs-of-a-prompt-beside-sequences.txt), are predicted within a tenth, and so is the
// longest gap between two tokens.
func TestPredictedLaunchesBesideSequencesAreNearMeasuredOnes(t *testing.T) {
	_, all := prefillsOf(t, "llama3-8b", 1024, Options{}, "")
	m := machine.H200()
	for _, x := range []struct {
		tokens         int
		first, longest float64 // milliseconds
	}{{256, 557.2, 19.0}, {512, 347.3, 22.5}} {
		sum, longest := 0.0, 0.0
		for cached := 0; cached < 8192; cached += x.tokens - 15 {
			n := min(x.tokens, 8192-cached+15)
			took := 1e3 * (all[0].Predict(m, n, cached) + launchTime)
			sum, longest = sum+took, max(longest, took)
		}
		t.Log(x.tokens, sum, longest)
		require.InEpsilon(t, x.first, sum, 0.1)
		require.InEpsilon(t, x.longest, longest, 0.1)
	}
}

// Launches beside sequences that decode fit the gap, get shorter as the cache grows, and are never shorter
// than a step of the smallest kernel; those of small models are as long as can be. Where those that decode do not ride
// along, their step is in the gap, too.
func TestAPromptBesideDecodingSequencesIsReadInLaunchesThatFitTheGap(t *testing.T) {
	m := PrefillMachine()
	for _, x := range []struct {
		model string
		o     Options
		want  map[[2]int]int // by cached tokens and those of the others
	}{
		{"llama3-8b", Options{}, map[[2]int]int{{0, 0}: 512, {5000, 3000}: 512, {7900, 3000}: 256,
			{8192, 15 * 1024}: 256, {0, 15 * 8192}: 128, {60000, 15 * 1024}: 128}},
		{"llama3-8b", Options{Head: pipeline.FormatI8}, map[[2]int]int{{0, 0}: 256, {8192, 15 * 1024}: 256}},
		{"llama3-8b", Options{Weights: pipeline.FormatI4G128}, map[[2]int]int{{0, 0}: 512, {60000, 0}: 128}},
		{"qwen3-8b", Options{Weights: pipeline.FormatE4M3}, map[[2]int]int{{0, 0}: 512}},
		{"llama3.2-1b", Options{}, map[[2]int]int{{0, 0}: 1024, {8192, 0}: 1024, {60000, 0}: 768}},
		{"tiny", Options{SMs: 4}, map[[2]int]int{{0, 0}: 1024, {500, 500}: 1024}},
	} {
		mk, all := prefillsOf(t, x.model, 1024, x.o, "")
		chunk := PrefillBeside(mk, all, m)
		if x.model == "llama3-8b" && x.o == (Options{}) {
			assert.Equal(t, 256, chunk(0, 0, true), "whose step is in the gap")
		}
		for at, want := range x.want {
			got := chunk(at[0], at[1], false)
			assert.Equal(t, want, got, "%s %+v, %v cached", x.model, x.o, at)
			assert.LessOrEqual(t, chunk(at[0], at[1], true), got)
		}
	}
}
