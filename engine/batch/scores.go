package batch

import (
	"fmt"

	"github.com/mkgen/mkgen/engine/sampling"
)

// What does not decide the next launch waits until that runs: readers are given the tokens of a launch's last step, and
// its log-probabilities are made, those of 16 sequences and steps in most of a millisecond of a CPU. The stepper has
// begun to take what they are made of off the device before.

// scoring is a launch whose tokens' log-probabilities are being made.
type scoring struct {
	of     []taken
	scores Scores
	begun  bool
	done   chan struct{} // closed when the clients have them
}

// taken is what a job took in a launch of the tokens whose log-probabilities it waits for.
type taken struct {
	j      *job // nil: it waits for none
	part   int  // of the launch
	at     int  // position of the first token
	tokens []int
	err    error // why there are no log-probabilities of some
}

// handOut does what waits for the next launch to run.
func (s *Scheduler) handOut() {
	for _, j := range s.owed {
		j.owed = false
		j.client.HandOut()
	}
	s.owed = s.owed[:0]
	if g := s.scoring; g != nil && !g.begun {
		g.begun = true
		go g.run()
	}
}

// score has clients be given the log-probabilities of what they took in the last launch.
func (s *Scheduler) score(all []taken) {
	s.wait()
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
	s.scoring = &scoring{of: of, scores: scores, done: make(chan struct{})}
}

func (g *scoring) run() {
	defer close(g.done)
	for i := range g.of {
		one := &g.of[i]
		all := make([]sampling.Logprobs, 0, len(one.tokens))
		for step, token := range one.tokens {
			l, err := g.scores(one.part, step, token)
			if err != nil {
				one.err = fmt.Errorf("position %d: %w", one.at+step, err)
				break
			}
			all = append(all, l)
		}
		one.j.client.Scored(all)
	}
}

// settle waits until clients have all that waited for the next launch.
func (s *Scheduler) settle() {
	s.handOut()
	s.wait()
}

// wait waits for log-probabilities that are being made.
func (s *Scheduler) wait() {
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
