package batch_test

import (
	"context"
	"errors"
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
}

func (s *scorer) Run(ctx context.Context, r batch.StepRequest) ([][]int, error) {
	if s.begun != nil {
		s.begun(s.Launches + 1)
	}
	return s.Stepper.Run(ctx, r)
}

func (s *scorer) Scores() (batch.Scores, error) {
	scores, err := s.Stepper.Scores()
	launch := s.Launches
	return func(i, step, token int) (sampling.Logprobs, error) {
		if s.wait(launch); step == s.fails {
			return sampling.Logprobs{}, errors.New("no number")
		}
		return scores(i, step, token)
	}, errors.Join(err, s.bad)
}

// newScorer is a scheduler on such a fake, with one client that wants tokens.
func newScorer(t *testing.T, want int) (*batch.Scheduler, *scorer, *drawn) {
	t.Helper()
	f := &scorer{Stepper: &batchtest.Stepper{T: 2, Page: 4, Pages: 60, Ahead: 2}, wait: func(int) {}, fails: -1}
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
