package batch

import (
	"fmt"

	"github.com/mkgen/mkgen/engine/sampling"
)

// Log-probabilities of a launch's tokens are made and given to clients while the next launch runs: those of 16
// sequences and steps take a CPU most of a millisecond. What they are made of is off the device before.

// scoring is a launch whose tokens' log-probabilities are being made.
type scoring struct {
	of   []taken
	done chan struct{} // closed when the clients have them
}

// taken is what a job took in a launch of the tokens whose log-probabilities it waits for.
type taken struct {
	j      *job // nil: it waits for none
	part   int  // of the launch
	at     int  // position of the first token
	tokens []int
	err    error // why there are no log-probabilities of some
}

// score begins to give clients the log-probabilities of what they took in the last launch.
func (s *Scheduler) score(all []taken) {
	s.settle()
	var of []taken
	for i := range all {
		if all[i].part = i; len(all[i].tokens) > 0 && all[i].j.unscored == nil {
			of = append(of, all[i])
		}
	}
	if len(of) == 0 {
		return
	}
	scores, err := s.o.Stepper.Scores()
	if err != nil {
		for i := range of {
			of[i].j.unscored = err
		}
		return
	}
	s.scoring = &scoring{of: of, done: make(chan struct{})}
	go s.scoring.run(scores)
}

func (g *scoring) run(scores Scores) {
	defer close(g.done)
	for i := range g.of {
		one := &g.of[i]
		all := make([]sampling.Logprobs, 0, len(one.tokens))
		for step, token := range one.tokens {
			l, err := scores(one.part, step, token)
			if err != nil {
				one.err = fmt.Errorf("position %d: %w", one.at+step, err)
				break
			}
			all = append(all, l)
		}
		one.j.client.Scored(all)
	}
}

// settle waits until clients have the log-probabilities that are being made.
func (s *Scheduler) settle() {
	if s.scoring == nil {
		return
	}
	<-s.scoring.done
	for i := range s.scoring.of {
		if one := &s.scoring.of[i]; one.err != nil {
			one.j.unscored = one.err
		}
	}
	s.scoring = nil
}
