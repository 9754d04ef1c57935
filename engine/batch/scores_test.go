package batch_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/batch/batchtest"
	"github.com/mkgen/mkgen/engine/pages"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/stretchr/testify/require"
)

// scorer is a fake whose log-probabilities wait for what wait says, and fail for the token at a step.
type scorer struct {
	*batchtest.Stepper
	begun func(launch int) // unless nil, when a launch begins
	wait  func(launch int) // of which the log-probabilities are
	fails int              // step of each launch; -1 for none
	bad   error            // of Scores

	making  atomic.Int32  // log-probabilities that are being made
	others  chan struct{} // one of a prompt's token that was made then
	prompts int           // log-probabilities of prompts' tokens

	running func(launch int) // unless nil, before each step's tokens are taken
	silent  bool             // it does not say that a launch has begun
}

func (s *scorer) Run(ctx context.Context, r batch.StepRequest) ([][]int, error) {
	if s.begun != nil {
		s.begun(s.Launches + 1)
	}
	if s.silent {
		r.Begun = nil
	}
	if each := r.Each; s.running != nil {
		r.Each = func(chosen []int) bool {
			s.running(s.Launches)
			return each(chosen)
		}
	}
	return s.Stepper.Run(ctx, r)
}

func (s *scorer) Scores() (batch.Scores, error) {
	scores, err := s.Stepper.Scores()
	launch := s.Launches
	return func(i, step, token int) (sampling.Logprobs, error) {
		s.making.Add(1)
		defer s.making.Add(-1)
		if s.wait(launch); step == s.fails {
			return sampling.Logprobs{}, errors.New("no number")
		}
		return scores(i, step, token)
	}, errors.Join(err, s.bad)
}

func (s *scorer) TokenLogprobs(i, k, token, tops int) (sampling.Logprobs, error) {
	if s.prompts++; s.making.Load() > 0 {
		select {
		case s.others <- struct{}{}:
		default:
		}
	}
	return s.Stepper.TokenLogprobs(i, k, token, tops)
}

// newScorer is a scheduler on such a fake, with one client that wants tokens.
func newScorer(t *testing.T, want int) (*batch.Scheduler, *scorer, *drawn) {
	t.Helper()
	f := &scorer{Stepper: &batchtest.Stepper{T: 2, Page: 4, Pages: 60, Ahead: 2}, wait: func(int) {}, fails: -1,
		others: make(chan struct{}, 1)}
	s, err := batch.New(batch.Options{Stepper: f, Pool: pages.New(60), Page: 4, Vocab: batchtest.Vocab, Positions: 1000,
		StepsPerLaunch: 4})
	require.NoError(t, err)
	d := &drawn{client: &client{t: t, prompt: count(1, 2), want: want, stop: -1}}
	d.rule.SetTops(2)
	s.Add(d.prompt, d)
	return s, f, d
}

// finish steps until there is nothing to do.
func finish(t *testing.T, s *batch.Scheduler) {
	t.Helper()
	for s.Busy() {
		require.NoError(t, s.Step(t.Context()))
	}
	require.NoError(t, s.Close(errors.New("closed")))
}

// The next launch does not wait for log-probabilities, and a client has those of all tokens before it leaves.
func TestLogprobsAreMadeWhileTheNextLaunchRuns(t *testing.T) {
	s, f, d := newScorer(t, 11)
	next := make([]chan struct{}, 5)
	for i := range next {
		next[i] = make(chan struct{})
	}
	f.begun = func(launch int) { close(next[launch]) }
	f.wait = func(launch int) {
		if launch == 4 { // the last
			return
		}
		select {
		case <-next[launch+1]:
		case <-time.After(10 * time.Second):
			t.Errorf("launch %d waits for the log-probabilities of the one before", launch+1)
		}
	}
	d.onEnd = func() { require.Len(t, d.scored, 11) }
	finish(t, s)
	require.Equal(t, batchtest.Alone(d.prompt, 11, false), d.got)
	for i, l := range d.scored {
		require.Equal(t, d.got[i], l.Token)
	}
}

// Tokens are handed out while the launch runs that chose them, those of its last step when the next one does: that one
// does not wait for readers.
func TestTokensOfALastStepAreHandedOutWhenTheNextLaunchRuns(t *testing.T) {
	for _, says := range []bool{true, false} { // whether the stepper says that a launch has begun
		s, f, d := newScorer(t, 9)
		var before, running []int
		f.begun = func(int) { before = append(before, len(d.got)-int(d.handed.Load())) }
		f.running = func(int) { running = append(running, len(d.got)-int(d.handed.Load())) }
		f.silent = !says
		finish(t, s)
		require.Equal(t, batchtest.Alone(d.prompt, 9, false), d.got)
		if says {
			require.Equal(t, []int{0, 1, 1}, before, "launches of 1, 4 and 4 tokens")
			require.Equal(t, make([]int, 9), running)
		} else {
			require.Equal(t, []int{0, 0, 0}, before)
		}
	}
}

// Where log-probabilities cannot be made the client leaves with why, and has those before.
func TestLogprobsThatFailEndTheJob(t *testing.T) {
	s, f, d := newScorer(t, 11)
	f.fails = 2
	finish(t, s)
	require.EqualError(t, d.err, "position 5: no number", "of the launch behind the one that feeds two tokens")
	require.Len(t, d.scored, 3)
	s, f, d = newScorer(t, 11)
	f.bad = errors.New("bad")
	finish(t, s)
	require.ErrorIs(t, d.err, f.bad)
	require.Empty(t, d.scored)
}

// What log-probabilities are made of lies where those of the next launch's prompts are read to: those wait.
func TestLogprobsOfPromptsWaitForThoseOfTheLaunchBefore(t *testing.T) {
	s, f, _ := newScorer(t, 11)
	f.wait = func(int) {
		select {
		case <-f.others:
			t.Error("log-probabilities of a prompt are read while those of the launch before are made")
		case <-time.After(20 * time.Millisecond):
		}
	}
	require.NoError(t, s.Step(t.Context())) // the first token's are being made
	prompt := &client{t: t, prompt: count(3, 6), want: 2, stop: -1, scores: true}
	s.Add(prompt.prompt, prompt)
	finish(t, s)
	require.Len(t, prompt.scored, 5)
	require.Equal(t, 5, f.prompts)
}

// A client that leaves while its log-probabilities are made has them before, whoever makes it leave.
func TestAClientThatLeavesHasItsLogprobsBefore(t *testing.T) {
	for name, end := range map[string]func(s *batch.Scheduler, f *scorer, d *drawn) error{
		"gone": func(s *batch.Scheduler, _ *scorer, d *drawn) error { d.gone = true; return s.Step(t.Context()) },
		"closed": func(s *batch.Scheduler, _ *scorer, _ *drawn) error {
			return s.Close(errors.New("closed"))
		},
		"the next launch fails": func(s *batch.Scheduler, f *scorer, _ *drawn) error {
			bad := errors.New("no device")
			f.Fail = bad
			require.ErrorIs(t, s.Step(t.Context()), bad)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, f, d := newScorer(t, 11)
			f.wait = func(int) { time.Sleep(5 * time.Millisecond) }
			require.NoError(t, s.Step(t.Context()))
			d.onEnd = func() { require.Len(t, d.scored, 1) } // of the launch that ended
			require.NoError(t, end(s, f, d))
			require.True(t, d.left)
			require.NoError(t, s.Close(errors.New("closed")))
		})
	}
}
