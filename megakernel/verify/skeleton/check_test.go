package skeleton

import (
	"bytes"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline/machine"
	"github.com/stretchr/testify/require"
)

func lookup(t *testing.T, name string) models.Config {
	c, err := models.Lookup(name)
	require.NoError(t, err)
	return c
}

// fewTokens is c with a small vocabulary: the head has most of a short run's weights.
func fewTokens(c models.Config) models.Config {
	c.Vocab, c.BOS, c.EOS = 4096, 1, []int{2}
	return c
}

func quick(t *testing.T) models.Config { return fewTokens(lookup(t, "llama3.2-1b")) }

func TestThePlanOfEverySMIsCarriedOut(t *testing.T) {
	contexts := []int{5000}
	if deep.On() {
		contexts = []int{100, 5000} // ascending
	}
	for _, c := range deep.Most([]models.Config{quick(t), lookup(t, "tiny")}, 1) {
		r, err := Check(t.Context(), Request{Config: c, Seed: 1, Steps: deep.Count(3, 2), Contexts: contexts})
		require.NoError(t, err)
		require.NoError(t, r.Err(), r)
		require.Len(t, r.Launches, len(contexts))
		mk, err := megakernel.Build(twoLayers(c), megakernel.Options{})
		require.NoError(t, err)
		for _, l := range r.Launches {
			require.Equal(t, mk.Plan.PackedBytes*int64(l.Steps), l.WeightBytes)
			tokens := 0
			for s := range l.Steps {
				tokens += l.Context + s
			}
			require.EqualValues(t, tokens*2*mk.KV.Heads*mk.KV.TokenBytes(), l.KVBytes)
			require.EqualValues(t, l.Steps*2*mk.KV.Heads*mk.KV.TokenBytes(), l.KVStored)
			require.Positive(t, l.Packets)
		}
	}
}

func twoLayers(c models.Config) models.Config {
	c.Layers = 2
	return c
}

// Every registered model makes one step with a small vocabulary and one layer: the LM head is one loop more of what
// layers have. Those of models.Checked but the largest make it as they are, with two layers, and 8B the launches of
// mkgen verify --skeleton, too: what a context or a step more shows of another it shows of 8B.
func TestThePlanOfEveryModelIsCarriedOut(t *testing.T) {
	deep.Only(t)
	carriedOut := func(name string, q Request) {
		t.Run(name, func(t *testing.T) {
			q.Seed = 2
			r, err := Check(t.Context(), q)
			require.NoError(t, err)
			require.NoError(t, r.Err(), r)
		})
	}
	whole := map[string]bool{}
	for _, c := range models.Checked() {
		whole[c.Name] = c.Name != "llama3-70b"
	}
	all := models.All()
	require.Greater(t, len(all), len(whole))
	for _, c := range all {
		q := Request{Config: c, Steps: 1, Contexts: []int{min(5000, c.MaxPositions-1)}}
		if !whole[c.Name] {
			q.Config, q.Layers = fewTokens(c), 1
		}
		carriedOut(c.Name, q)
	}
	carriedOut("llama3-8b, three launches", Request{Config: fewTokens(lookup(t, "llama3-8b"))})
}

// Races are looked for in one step of two layers, in which the ring goes round several times.
func TestThePlanHasNoRaces(t *testing.T) {
	deep.Only(t)
	c := fewTokens(lookup(t, "qwen3-0.6b"))
	r, err := Check(t.Context(), Request{Config: c, Steps: 1, Seed: 3, Contexts: []int{100}, Races: true})
	require.NoError(t, err)
	require.NoError(t, r.Err(), r)
	mk, err := megakernel.Build(twoLayers(c), megakernel.Options{})
	require.NoError(t, err)
	require.Greater(t, r.Launches[0].WeightBytes, int64(2*mk.Options.SMs*mk.Plan.Stages*mk.Options.StageBytes))
}

func TestAReportSaysWhatWasRunAndFound(t *testing.T) {
	m := mutants[1]
	mk, err := megakernel.Build(twoLayers(quick(t)), megakernel.Options{})
	require.NoError(t, err)
	r, err := check(t.Context(), Request{Config: quick(t), Seed: 1, Steps: 1, Contexts: []int{5000}}, m.edit(mk))
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, r.Write(&b))
	for _, want := range []string{"132 SMs, 2 of 16 layers and the LM head", "producer ", "    5000", "copies from page",
		"called from attention/attention.go"} {
		require.Contains(t, b.String(), want)
	}
	require.EqualError(t, r.Err(), "llama3.2-1b fails verification of its plan: unexpected access")
}

func TestRefusedRequests(t *testing.T) {
	c := lookup(t, "tiny")
	for want, r := range map[string]Request{
		"skeleton: a kernel of 16 rows a step, want one of 1": {Config: c, Options: megakernel.Options{Tokens: 16}},
		"skeleton: 9 layers of tiny, want 1 to 2":             {Config: c, Layers: 9},
		"skeleton: a context of 0 tokens, want at least 1":    {Config: c, Contexts: []int{0}},
		"skeleton: a step that is a graph of kernels, want one kernel": {Config: c,
			Options: megakernel.Options{Launch: megakernel.LaunchGraph}},
	} {
		_, err := Check(t.Context(), r)
		require.EqualError(t, err, want)
	}
}

// No one finding stands for all: what is missing at the end is missed as well.
func TestWhatIsMissing(t *testing.T) {
	c := quick(t)
	r, err := Request{Config: twoLayers(c), Contexts: []int{100}}.complete()
	require.NoError(t, err)
	mk, err := megakernel.Build(r.Config, r.Options)
	require.NoError(t, err)
	d, err := open(t.Context(), mk, mk.IR, &r)
	require.NoError(t, err)
	w := newWatch(d, 100, 1)
	require.ErrorContains(t, w.end(), "SM 0 ends with 0 of")
	for sm := range w.streams {
		w.streams[sm].step = 1
	}
	require.ErrorContains(t, w.end(), "token 0 of layer 0, KV head 0 was copied 0 times in step 0 at position 100, want 1")
	for i := range w.cache.read[0] {
		w.cache.read[0][i] = 1
	}
	require.EqualError(t, w.end(), "byte 0 of token 100 of layer 0, KV head 0 was not stored in step 0")
	require.ErrorContains(t, d.checkArrivals(1), "the counter of the grid barrier is")
}

func TestCopiesThatOverlap(t *testing.T) {
	var s stream
	for _, c := range []struct {
		from, end int64
		again     bool
	}{{16, 32, false}, {48, 64, false}, {32, 48, false}, {0, 16, false}, {63, 80, true}, {64, 80, false}, {8, 16, true},
		{0, 100, true}} {
		require.Equal(t, c.again, s.add(c.from, c.end), "%d to %d", c.from, c.end)
	}
	require.EqualValues(t, 80, s.done)
}

func TestTimes(t *testing.T) {
	var all []string
	for _, n := range []int{1, 2, 3, 4, 11, 12, 13, 21, 112} {
		all = append(all, strings.TrimSuffix(nth(n), " time"))
	}
	require.Equal(t, []string{"1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "112th"}, all)
}

// A step predicted reads the bytes that the kernel copies, in layers with a window and without.
func TestPredictedBytesOfWindowsAreThoseCopied(t *testing.T) {
	c := twoLayers(quick(t))
	for _, attention := range []string{"window=1000/causal", "window=1000+sinks=40/window=70"} {
		o := megakernel.Options{Attention: attention}
		r, err := Check(t.Context(), Request{Config: c, Options: o, Seed: 1, Steps: 1, Contexts: []int{5000}})
		require.NoError(t, err)
		require.NoError(t, r.Err(), r)
		mk, err := megakernel.Build(c, o)
		require.NoError(t, err)
		for _, p := range mk.Predict(machine.H200(), 5000, 1).Phases {
			if p.Name == "attention" {
				require.Equal(t, r.Launches[0].KVBytes, int64(p.Runs)*p.Bytes, attention)
				require.Less(t, mk.KVBytes(5000), r.Launches[0].KVBytes, "whole chunks")
			}
		}
	}
}
