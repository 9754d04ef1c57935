package tune

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mkgen/mkgen/internal/jsonfile"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/megakernel"
)

// Measurer is where kernels are timed.
type Measurer interface {
	// Compile leaves everything that Measure will want compiled in the cache, without the
	// GPU, and says what compiled it. Called by several goroutines at once.
	Compile(ctx context.Context, mk *megakernel.Kernel) (compiler string, err error)
	// Measure times n launches of a kernel at every context of the setup, in its order.
	Measure(ctx context.Context, mk *megakernel.Kernel, launches int) ([]bench.Timing, error)
}

// ErrOther is what a search returns (wrapped, with what differs) when the profile of an
// earlier run is of another one.
var ErrOther = errors.New("the profile is of another search")

// Search is a search for the fastest options of one kernel.
type Search struct {
	Start      *megakernel.Kernel // whose options are kept but for what is searched
	Dimensions []string           // what is searched, in this order; nil: all
	Most       int                // candidates of a dimension at most; 0: all
	Rounds     int                // over all dimensions at most; 0: until one changes nothing
	Setup      Setup              // GPU, Commit, Arch, Contexts, Weights, Tokens and Launches; the rest is filled in
	Measurer   Measurer
	Budget     time.Duration        // after which no trial begins; 0: none
	Before     *Profile             // of an earlier run, whose trials are not made again; nil: none
	Save       func(*Profile) error // hears of the profile after every trial
	Progress   func(what string)    // hears what is done next; nil is allowed
	Now        func() time.Time     // nil: time.Now
	Over       bool                 // after Run: whether the budget ended it

	profile *Profile
	begun   time.Time
	steps   []Step
	beaten  []Choice // incumbents of before, which are no candidates again: there is no going round in circles
}

// Step is one dimension of one round.
type Step struct {
	Round     int // from 1
	Dimension string
	Incumbent Choice
	Trials    []Trial
	Chosen    Choice // the incumbent, or the options of a trial
}

// Run searches. A candidate that does not compile or run is a trial with an error; an
// incumbent that does not is an error of the search, as is a context that ended: what
// was measured by then has been saved. An earlier profile of another setup is refused.
func (s *Search) Run(ctx context.Context) (*Profile, []Step, error) {
	if s.Now == nil {
		s.Now = time.Now
	}
	s.begun, s.steps, s.beaten = s.Now(), nil, nil
	if err := s.open(ctx); err != nil {
		return nil, nil, err
	}
	incumbent := s.Start
	for round := 1; ; round++ {
		before := incumbent
		for _, name := range s.dimensions() {
			next, over, err := s.step(ctx, round, name, incumbent)
			if err != nil {
				return nil, nil, err
			}
			if incumbent = next; over {
				s.Over = true
				return s.profile, s.steps, s.Save(s.profile)
			}
		}
		s.profile.Finished = incumbent == before
		if s.profile.Finished || round == s.Rounds {
			return s.profile, s.steps, s.Save(s.profile)
		}
	}
}

// open compiles the first incumbent and takes over the trials of an earlier profile.
func (s *Search) open(ctx context.Context) error {
	if s.profile == nil { // else Ahead has said so
		s.say("compiling the kernel to begin with")
	}
	compiler, err := s.Measurer.Compile(ctx, s.Start)
	if err != nil {
		return err
	}
	setup := s.Setup.Of(s.Start)
	setup.Compiler = compiler
	if err := setup.check(); err != nil {
		return fmt.Errorf("nothing can be searched: %w", err)
	}
	start := ChoiceOf(s.Start)
	s.profile = &Profile{Format: Format, Setup: setup, Kept: s.kept(), Start: start, Chosen: start, Trials: []Trial{}}
	if s.Before == nil {
		return nil
	}
	if err := jsonfile.Differs(s.Before.Setup, setup); err != nil {
		return fmt.Errorf("%w: %w", ErrOther, err)
	}
	if has, wants := s.Before.Start.differs(start); has != wants {
		return fmt.Errorf("%w: it began with %s, want %s", ErrOther, has, wants)
	}
	if kept := without(s.profile.Kept, s.Before.Kept); len(kept) > 0 {
		return fmt.Errorf("%w: it searched %s, want that to stay", ErrOther, strings.Join(kept, ", "))
	}
	if searched := without(s.Before.Kept, s.profile.Kept); len(searched) > 0 {
		return fmt.Errorf("%w: it did not search %s, want that searched", ErrOther, strings.Join(searched, ", "))
	}
	s.profile.Trials, s.profile.Chosen = slices.Clone(s.Before.Trials), s.Before.Chosen
	return nil
}

func (s *Search) dimensions() []string {
	if s.Dimensions != nil {
		return s.Dimensions
	}
	return Dimensions(s.Start.Options.Tokens, s.Start.Options.Launch)
}

// kept are the options that the kernel has and that are not searched.
func (s *Search) kept() []string {
	return without(Dimensions(s.Start.Options.Tokens, s.Start.Options.Launch), s.dimensions())
}

// without are the names that are not among others; nil: none.
func without(names, others []string) (rest []string) {
	for _, name := range names {
		if !slices.Contains(others, name) {
			rest = append(rest, name)
		}
	}
	return rest
}

func (s *Search) say(format string, args ...any) {
	if s.Progress != nil {
		s.Progress(fmt.Sprintf(format, args...))
	}
}

// over says whether the time is.
func (s *Search) over() bool { return s.Budget > 0 && s.Now().Sub(s.begun) >= s.Budget }

// step tries a dimension's candidates and returns the next incumbent, and whether the
// time ended before all were tried.
func (s *Search) step(ctx context.Context, round int, name string,
	incumbent *megakernel.Kernel) (next *megakernel.Kernel, over bool, err error) {
	kernels := s.candidates(incumbent, name)
	step := Step{Round: round, Dimension: name, Incumbent: ChoiceOf(incumbent), Chosen: ChoiceOf(incumbent)}
	next = incumbent
	best := 1.0
	failed, err := s.compile(ctx, name, incumbent, kernels)
	if err != nil {
		return nil, false, err
	}
	for i, mk := range kernels {
		t, ok := s.known(ChoiceOf(mk), ChoiceOf(incumbent))
		if !ok {
			if over = s.over(); over {
				break
			}
			if t, err = s.try(ctx, name, mk, incumbent, failed[i]); err != nil {
				return nil, false, err
			}
			s.profile.Trials = append(s.profile.Trials, t)
			s.say("%s", t.outcome())
		}
		step.Trials = append(step.Trials, t)
		if t.Better && t.Ratio < best {
			best, next, step.Chosen = t.Ratio, mk, t.Options
		}
		s.profile.Chosen = step.Chosen
		if !ok {
			if err := s.Save(s.profile); err != nil {
				return nil, false, err
			}
		}
	}
	s.steps = append(s.steps, step)
	if next != incumbent {
		s.beaten = append(s.beaten, step.Incumbent)
	}
	return next, over, nil
}

// known is the trial of a candidate against an incumbent that was made before. One that
// failed against any incumbent is not tried against another.
func (s *Search) known(candidate, incumbent Choice) (Trial, bool) {
	for _, t := range s.profile.Trials {
		if t.Options == candidate && (t.Against == incumbent || t.Error != "") {
			return t, true
		}
	}
	return Trial{}, false
}
