package tune_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/lab/tune"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/stretchr/testify/require"
)

func TestTheLowestPointIsFound(t *testing.T) {
	deep.Only(t)
	l := &land{micros: bowl}
	s, saved := search(t, l)
	s.Dimensions = nil // all
	p, steps, err := s.Run(t.Context())
	require.NoError(t, err)
	requireLowest(t, p)
	require.Equal(t, []any{p.Start.Held * p.Start.StageBytes, p.Start.Queries, p.Start.Vectors},
		[]any{p.Chosen.Held * p.Chosen.StageBytes, p.Chosen.Queries, p.Chosen.Vectors}, "what changes nothing stays")
	require.Len(t, *saved, len(p.Trials)+1, "after every trial and at the end")
	require.Equal(t, *p, (*saved)[len(*saved)-1])
	require.InDelta(t, 1-bowl(p.Chosen)/bowl(p.Start), tune.Gain(steps), 1e-4)
	require.Equal(t, []string{"stage-bytes", "stages", "in-flight", "leads", "held", "consumers", "splits", "queries",
		"merge", "vectors"}, names(steps[:10]))
	again, _, err := s.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, p, again, "the same search makes the same profile")
}

func names(steps []tune.Step) (all []string) {
	for _, s := range steps {
		all = append(all, s.Dimension)
	}
	return all
}

// A GPU that loses 0.5 % with every measurement: against the time that the search began
// with everything would soon be worse.
func TestDriftCancels(t *testing.T) {
	s, _ := search(t, &land{micros: bowl, drift: 0.005})
	p, _, err := s.Run(t.Context())
	require.NoError(t, err)
	requireLowest(t, p)
}

func TestNoiseChoosesNothing(t *testing.T) {
	s, _ := search(t, &land{micros: flat, noise: 0.05})
	p, _, err := s.Run(t.Context())
	require.NoError(t, err)
	require.True(t, p.Finished)
	require.Equal(t, p.Start, p.Chosen)
	requireBelowNoise := false
	for _, trial := range p.Trials {
		requireBelowNoise = requireBelowNoise || trial.Ratio < 0.997
	}
	require.True(t, requireBelowNoise, "no candidate looked better by more than 0.3 %%: the noise was not tried")
}

func TestLessThanTheLeastGainIsNone(t *testing.T) {
	deep.Only(t)
	for gain, chosen := range map[float64]bool{0.0025: false, 0.0035: true} {
		s, _ := search(t, &land{micros: func(c tune.Choice) float64 {
			if c.Consumers == 7 {
				return 1000 * (1 - gain)
			}
			return 1000
		}})
		p, _, err := s.Run(t.Context())
		require.NoError(t, err)
		require.Equal(t, chosen, p.Chosen.Consumers == 7, "%v", gain)
	}
}

// A third of the launches, rounded up, is enough to see that something is slower. What is
// not is measured with all of them, and what looks better with as many again.
func TestASlowerCandidateIsNotMeasuredToTheEnd(t *testing.T) {
	deep.Only(t)
	for us, want := range map[float64]int{1004: 3, 1002: 9, 1000: 9, 998: 9, 996: 18} {
		s, _ := search(t, &land{micros: func(c tune.Choice) float64 {
			if c.Consumers == 7 {
				return us
			}
			return 1000
		}})
		s.Dimensions, s.Rounds = []string{tune.Consumers}, 1
		p, _, err := s.Run(t.Context())
		require.NoError(t, err)
		for _, trial := range p.Trials {
			if trial.Options.Consumers == 7 {
				require.Equal(t, want, trial.Launches, "%v", us)
			}
		}
	}
	for launches, want := range map[int][3]int{1: {1, 1, 2}, 2: {1, 2, 4}, 4: {2, 4, 8}, 9: {3, 9, 18}} {
		for i, us := range []float64{1100, 1000, 900} {
			s, _ := search(t, &land{micros: func(c tune.Choice) float64 {
				if c.Consumers == 7 {
					return us
				}
				return 1000
			}})
			s.Dimensions, s.Rounds, s.Setup.Launches = []string{tune.Consumers}, 1, launches
			p, _, err := s.Run(t.Context())
			require.NoError(t, err)
			at := slices.IndexFunc(p.Trials, func(trial tune.Trial) bool { return trial.Options.Consumers == 7 })
			require.Equal(t, want[i], p.Trials[at].Launches, "%v µs, %d launches", us, launches)
		}
	}
}

func TestASearchWithoutLaunchesIsRefused(t *testing.T) {
	l := &land{micros: flat}
	s, saved := search(t, l)
	s.Setup.Launches = 0
	_, _, err := s.Run(t.Context())
	require.EqualError(t, err, "nothing can be searched: launches is 0, want at least 1")
	require.Empty(t, l.measured)
	require.Empty(t, *saved)
}

// What looked better in the first two measurements and not in the third is not chosen.
func TestABetterCandidateIsMeasuredThreeTimes(t *testing.T) {
	seen := map[tune.Choice]int{}
	s, _ := search(t, &land{micros: func(c tune.Choice) float64 {
		if c.Consumers != 7 {
			return 1000
		}
		seen[c]++
		if seen[c] <= 9*len(contexts) { // the launches of the first two measurements
			return 900
		}
		return 1100
	}})
	p, _, err := s.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, p.Start, p.Chosen)
}

func TestWhatFailsIsATrialWithItsError(t *testing.T) {
	deep.Only(t)
	l := &land{micros: bowl, broken: func(c tune.Choice) error {
		if c.Consumers == 10 {
			return errors.New("it hangs")
		}
		return nil
	}, refused: func(c tune.Choice) error {
		if c.InFlight == 2 {
			return errors.New("too many registers")
		}
		return nil
	}}
	s, _ := search(t, l)
	p, _, err := s.Run(t.Context())
	require.NoError(t, err)
	require.True(t, p.Finished)
	require.Equal(t, 11, p.Chosen.Consumers)
	require.NotEqual(t, 2, p.Chosen.InFlight)
	failed := map[string]int{}
	for _, trial := range p.Trials {
		if trial.Error != "" {
			failed[trial.Error]++
			require.Nil(t, trial.Micros)
		}
	}
	require.Positive(t, failed["it hangs"])
	require.Positive(t, failed["too many registers"])
	for _, c := range l.measured {
		require.NotEqual(t, 2, c.InFlight, "what does not compile is not run")
	}
}

func TestAnIncumbentThatFailsEndsTheSearch(t *testing.T) {
	l := &land{micros: bowl, broken: func(tune.Choice) error { return errors.New("the GPU is lost") }}
	s, saved := search(t, l)
	_, _, err := s.Run(t.Context())
	require.ErrorContains(t, err, "the GPU is lost")
	require.Empty(t, *saved)
	s, _ = search(t, &land{micros: bowl, refused: func(tune.Choice) error { return errors.New("no compiler") }})
	_, _, err = s.Run(t.Context())
	require.EqualError(t, err, "no compiler")
}

func TestADimensionIsCompiledBeforeItRuns(t *testing.T) {
	l := &land{micros: flat}
	s, _ := search(t, l)
	s.Dimensions = []string{tune.Consumers}
	at := -1
	l.before = func(int) {
		if at < 0 {
			at = len(l.compiled)
		}
	}
	p, _, err := s.Run(t.Context())
	require.NoError(t, err)
	require.Len(t, p.Trials, 4)
	require.Equal(t, 1+len(p.Trials), at, "the start and all candidates")
	require.Len(t, l.compiled, at)
}

// Wherever a search is interrupted, a second run makes the rest of the trials, none
// twice, and finds the same.
func TestAnInterruptedSearchGoesOn(t *testing.T) {
	deep.Only(t)
	whole := &land{micros: bowl}
	s, _ := search(t, whole)
	want, _, err := s.Run(t.Context())
	require.NoError(t, err)
	for _, stop := range []int{0, 1, 7, len(whole.measured) - 1} {
		ctx, cancel := context.WithCancel(t.Context())
		first := &land{micros: bowl, before: func(n int) {
			if n == stop {
				cancel()
			}
		}}
		s, saved := search(t, first)
		_, _, err := s.Run(ctx)
		require.ErrorIs(t, err, context.Canceled)
		second := &land{micros: bowl}
		s, _ = search(t, second)
		made := 0
		if n := len(*saved); n > 0 {
			s.Before = &(*saved)[n-1]
			made = len(s.Before.Trials)
		}
		got, _, err := s.Run(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, got, "interrupted at %d", stop)
		rest := 0
		for _, trial := range got.Trials[made:] {
			rest += map[int]int{3: 2, 9: 4, 18: 6}[trial.Launches] // measurements
		}
		require.Len(t, second.measured, rest, "interrupted at %d", stop)
	}
}

func TestTheTimeEndsASearchBetweenTrials(t *testing.T) {
	deep.Only(t)
	now := time.Unix(0, 0)
	l := &land{micros: bowl, before: func(int) { now = now.Add(time.Second) }}
	s, saved := search(t, l)
	s.Now, s.Budget = func() time.Time { return now }, 25*time.Second
	p, _, err := s.Run(t.Context())
	require.NoError(t, err)
	require.False(t, p.Finished)
	require.GreaterOrEqual(t, len(l.measured), 25)
	require.LessOrEqual(t, len(l.measured), 28)
	require.Equal(t, *p, (*saved)[len(*saved)-1])
	for runs := 0; !p.Finished; runs++ {
		require.Less(t, runs, 10)
		s.Before = p
		p, _, err = s.Run(t.Context())
		require.NoError(t, err)
	}
	requireLowest(t, p)
}

func TestRoundsEndASearch(t *testing.T) {
	s, _ := search(t, &land{micros: bowl})
	s.Rounds = 1
	p, steps, err := s.Run(t.Context())
	require.NoError(t, err)
	require.False(t, p.Finished)
	require.False(t, s.Over)
	require.Len(t, steps, 4)
	require.NotEqual(t, p.Start, p.Chosen)
}

func TestAProfileOfAnotherSearchIsNotGoneOnWith(t *testing.T) {
	s, _ := search(t, &land{micros: flat})
	s.Dimensions = []string{tune.Merge}
	p, _, err := s.Run(t.Context())
	require.NoError(t, err)
	for want, change := range map[string]func(*tune.Profile){
		`gpu is "other", want "fake GPU"`:     func(p *tune.Profile) { p.GPU = "other" },
		`compiler is "nvcc", want "fake 1.0"`: func(p *tune.Profile) { p.Compiler = "nvcc" },
		`contexts is 1, want 16,128`:          func(p *tune.Profile) { p.Contexts = []int{1} },
		`commit is "x", want "abc"`:           func(p *tune.Profile) { p.Commit = "x" },
		`sms is 3, want 4`:                    func(p *tune.Profile) { p.Setup.Options.SMs = 3 },
		`it began with --stages`:              func(p *tune.Profile) { p.Start.Stages-- },
	} {
		other := *p
		change(&other)
		s.Before = &other
		_, _, err := s.Run(t.Context())
		require.ErrorContains(t, err, "the profile is of another search: "+want)
	}
}

// Two kernels that each look better beside the other must not be taken in turns for ever.
func TestThereIsNoGoingRoundInCircles(t *testing.T) {
	deep.Only(t)
	l := &land{}
	l.micros = func(tune.Choice) float64 { // every candidate looks better than every incumbent
		switch (len(l.measured) - 1) % 6 { // this measurement in its trial's three pairs
		case 1, 2, 5:
			return 900
		}
		return 1000
	}
	s, _ := search(t, l)
	s.Dimensions = []string{tune.Stages, tune.Merge}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	p, _, err := s.Run(ctx)
	require.NoError(t, err)
	require.True(t, p.Finished)
	for _, trial := range p.Trials {
		require.True(t, trial.Better)
	}
}

func TestWhatIsNotSearchedStays(t *testing.T) {
	s, _ := search(t, &land{
		micros: func(c tune.Choice) float64 { return 1000 + float64(c.Stages) + float64(c.StageBytes)/1e3 }})
	s.Start = kernel(t, megakernel.Options{StageBytes: 16 << 10, Stages: 4, InFlight: 2})
	s.Dimensions = []string{tune.StageBytes, tune.Consumers}
	p, _, err := s.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, 8<<10, p.Chosen.StageBytes)
	for _, trial := range p.Trials {
		require.Equal(t, []int{4, 2, s.Start.Options.Held},
			[]int{trial.Options.Stages, trial.Options.InFlight, trial.Options.Held})
	}
}

// Copies in flight that the incumbent's leads leave no room for are candidates where leads
// are searched, with the planner's leads, and none where they are to stay.
func TestLeadsFollowTheCopiesInFlightWhereTheyAreSearched(t *testing.T) {
	for _, c := range []struct {
		dimensions, tried, leads []string
	}{
		{[]string{tune.InFlight}, []string{"4", "5", "6"}, []string{"4:2", "4:2", "4:2"}},
		{[]string{tune.InFlight, tune.Leads}, []string{"1", "2", "4", "5", "6"},
			[]string{"none", "none", "5:2", "none", "none"}},
	} {
		s, _ := search(t, &land{micros: flat})
		s.Dimensions, s.Rounds = c.dimensions, 1
		require.Equal(t, "4:2", s.Start.Options.Leads)
		p, steps, err := s.Run(t.Context())
		require.NoError(t, err)
		require.Equal(t, "4:2", p.Chosen.Leads)
		var tried, leads []string
		for _, trial := range steps[0].Trials {
			tried, leads = append(tried, trial.Options.Value(tune.InFlight)), append(leads, trial.Options.Leads)
		}
		require.Equal(t, c.tried, tried)
		require.Equal(t, c.leads, leads)
	}
}

func TestAnOddTimingIsAnError(t *testing.T) {
	s, _ := search(t, &land{micros: func(tune.Choice) float64 { return 0 }})
	_, _, err := s.Run(t.Context())
	require.ErrorContains(t, err, "context 16: a launch took 0 µs, want a positive time")
	require.NotContains(t, fmt.Sprint(err), "\n")
}
