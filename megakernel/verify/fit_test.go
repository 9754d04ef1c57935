package verify

import (
	"strings"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// like is the tiny model with other sizes.
func like(t *testing.T, change func(c *models.Config)) models.Config {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.BOS, c.EOS = models.NoToken, nil
	change(&c)
	return c
}

func narrow(c *models.Config) {
	c.Heads, c.KVHeads, c.HeadDim, c.Hidden, c.Intermediate, c.Vocab, c.Layers = 48, 3, 16, 8, 72, 33, 30
}

func least(c *models.Config) {
	c.Layers, c.Hidden, c.Vocab = 1, 8, 3
}

func single(c *models.Config) {
	c.Layers, c.Hidden, c.Intermediate, c.Vocab, c.Heads, c.KVHeads = 1, 8, 8, 1, 1, 1
}

// A sound kernel passes whatever its shape: sizes are chosen at which it
// exercises what it must, and where there are none the report says so.
func TestSoundKernelsOfAwkwardShapesPass(t *testing.T) {
	deep.Only(t)
	for name, test := range map[string]struct {
		change        func(c *models.Config)
		o             megakernel.Options
		turns, uneven string // wanted
	}{
		"two SMs": {func(*models.Config) {}, megakernel.Options{SMs: 2}, "at least 3", "at least 1"},
		"one position": {func(c *models.Config) { c.MaxPositions = 1 }, megakernel.Options{}, "at least 3",
			"at least 1"},
		"one SM": {func(*models.Config) {}, megakernel.Options{SMs: 1}, "at least 3",
			"at least 0, one SM has all"},
		"narrow": {narrow, megakernel.Options{SMs: 7, Page: 2, Splits: 128, Consumers: 16}, "at least 3",
			"at least 1"},
		"least":                {least, megakernel.Options{}, "at least 3", "at least 1"},
		"least, few consumers": {least, megakernel.Options{SMs: 5, Consumers: 2, Splits: 1}, "at least 3", "at least 1"},
		"least, fixed ring": {least, megakernel.Options{Stages: 32, InFlight: 4, StageBytes: 4096},
			"so few copies for 32 stages", "at least 1"},
		"single, many SMs": {single, megakernel.Options{}, "at least 3", "at least 1"},
		"single, two SMs":  {single, megakernel.Options{SMs: 2, InFlight: 3}, "at least 3", "at least 1"},
		"one token": {func(c *models.Config) {
			c.Vocab, c.Heads, c.KVHeads, c.HeadDim, c.Hidden, c.Intermediate, c.Layers = 1, 128, 8, 192, 136, 40, 30
		}, megakernel.Options{Splits: 1, Stages: 5, StageBytes: 16384, InFlight: 1}, "at least 3", "at least 1"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Check(t.Context(), Request{Config: like(t, test.change), Options: test.o, Seeds: 1, Steps: 2})
			require.NoError(t, err)
			require.NoError(t, r.Err())
			wants := map[string]string{}
			for _, c := range r.Conditions {
				wants[c.Name] = c.Want
			}
			require.Contains(t, wants["the ring went round"], test.turns)
			require.Equal(t, test.uneven, wants["matrices shared unevenly"])
		})
	}
}

// What is predicted of the ring is what the executor sees it do.
func TestTurnsOfTheRingArePredicted(t *testing.T) {
	for i, change := range []func(*models.Config){func(*models.Config) {}, narrow, least} {
		for j, o := range []megakernel.Options{{SMs: 3, Splits: 2}, {SMs: 2, Splits: 3, Stages: 7},
			{SMs: 5, Splits: 1, Stages: 2}} {
			if i != j && !deep.On() {
				continue
			}
			c := like(t, change)
			c.Layers = 1
			mk, err := megakernel.Build(c, o)
			require.NoError(t, err)
			trial, err := NewTrial(mk, 2)
			require.NoError(t, err)
			run, err := trial.Run(t.Context(), mk.IR, 1)
			require.NoError(t, err)
			require.Empty(t, run.Findings)
			require.Equal(t, turns(mk), run.ran.turns, "%+v", o)
		}
	}
}

// What the user fixed of the ring stays, and so does all of it where more layers
// are enough.
func TestTheRingShrinksNoFurtherThanNeedBe(t *testing.T) {
	ring := func(o megakernel.Options) [3]int { return [3]int{o.Stages, o.StageBytes, o.InFlight} }
	for _, test := range []struct {
		change func(*models.Config)
		o      megakernel.Options
		same   bool
	}{
		{func(*models.Config) {}, megakernel.Options{}, true},
		{narrow, megakernel.Options{SMs: 7, Splits: 128}, true},
		{single, megakernel.Options{}, false},
		{least, megakernel.Options{Stages: 16, StageBytes: 4096, InFlight: 5}, true},
	} {
		real, err := megakernel.Build(like(t, test.change), test.o)
		require.NoError(t, err)
		small, err := fit(real, test.o, 2)
		require.NoError(t, err)
		require.Equal(t, test.same, ring(real.Options) == ring(small.Options), "%v, %v", ring(real.Options),
			ring(small.Options))
	}
}

// An SM of the small kernel has more work items than one of the real kernel, and its
// shared memory room for them beside the real ring.
func TestMoreWorkItemsAnSMLeaveTheRingAsItIs(t *testing.T) {
	c, err := models.Lookup("llama3-70b")
	require.NoError(t, err)
	o := megakernel.Options{Tokens: 16, Attention: "window=1024/causal"}
	real, err := megakernel.Build(c, o)
	require.NoError(t, err)
	small, err := fit(real, o, 2)
	require.NoError(t, err)
	require.Greater(t, small.Limits(0).ItemsPerCTA, real.Limits(0).ItemsPerCTA)
	require.Greater(t, small.Plan.SharedBytes, real.Options.SharedLimit)
	require.Equal(t, real.Options.Stages, small.Options.Stages)
}

// The fewest logits tell as little about how large they are as they please.
func TestTheScaleOfFewLogitsIsNotTheirs(t *testing.T) {
	mk, err := megakernel.Build(like(t, func(c *models.Config) { c.Vocab = 1 }), megakernel.Options{SMs: 2})
	require.NoError(t, err)
	trial, err := NewTrial(mk, 2)
	require.NoError(t, err)
	require.GreaterOrEqual(t, trial.scale, 1.0)
	for i := range trial.want {
		require.LessOrEqual(t, rms(trial.want[i]), 10*trial.scale)
	}
}

// A wish that is less than usual says why, in the report too.
func TestAWishCutShortSaysWhy(t *testing.T) {
	mk, err := megakernel.Build(like(t, least), megakernel.Options{SMs: 2, Stages: 32, Splits: 1})
	require.NoError(t, err)
	w := within(mk)
	require.Less(t, w.turns, wantTurns)
	c := because(Condition{Name: "the ring went round", Want: "at least 1", Met: true}, w.turnsWhy)
	var text strings.Builder
	require.NoError(t, (&Report{Conditions: []Condition{c}}).Write(&text))
	require.Contains(t, text.String(), "at least 1, so few    ok\n                             copies for 32 stages\n")
}
