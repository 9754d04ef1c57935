package interp

import "slices"

// Policy names a way of making schedules; each finds other mistakes soon.
type Policy uint8

// The policies. PolicyBySeed is one of the others, which the seeds take in turn: see PolicyOf.
const (
	PolicyBySeed     Policy = iota
	PolicyUniform           // any warp, few steps
	PolicyBursts            // any warp, many steps
	PolicyStarve            // one warp runs only when nothing else can
	PolicyEarlyCopy         // copies complete as soon as they are issued
	PolicyLateCopy          // copies complete only when nothing else can run
	PolicyRoundRobin        // warps in order, one step each
	PolicyPCT               // priorities drawn at random, with few changes: see pct.go; seeds do not come to it in turn
	numPolicies
)

var policyNames = [numPolicies]string{"by seed", "uniform", "bursts", "starve", "early copies", "late copies",
	"round robin", "pct"}

// String is the policy's name.
func (p Policy) String() string { return policyNames[p] }

// Policies lists the names of all but PolicyBySeed, in the order in which seeds take them.
func Policies() []string { return slices.Clone(policyNames[PolicyUniform:]) }

// PolicyOf is the policy of a seed with PolicyBySeed: seeds 1, 2, … have PolicyUniform, PolicyBursts, …
// and from the seventh on the same again. Seed 0 has the last one. The 2³² seeds from FirstPCT on have PolicyPCT.
func PolicyOf(seed uint64) Policy {
	if seed >= FirstPCT && seed < FirstPCT+1<<32 {
		return PolicyPCT
	}
	n := uint64(PolicyRoundRobin)
	return Policy(1 + (seed+n-1)%n)
}

// scheduler holds the runnable warps and draws the next one.
type scheduler struct {
	policy Policy
	run    []*warp
	victim *warp
	burst  int     // the longest burst
	copies float64 // probability that a scheduling point completes a copy
	stale  float64 // probability that a strong load looks for an older value
	last   int
	pct    *priorities
}

func (s *scheduler) init(m *machine) {
	s.policy = m.o.Policy
	if s.policy == PolicyBySeed {
		s.policy = PolicyOf(m.o.Seed)
	}
	s.run = append(s.run, m.warps...)
	for i, w := range s.run {
		w.runPos = int32(i)
	}
	s.burst, s.copies = 16, []float64{0.02, 0.2, 0.7}[m.rng.IntN(3)]
	s.stale = []float64{0, 0.1, 0.5}[m.rng.IntN(3)]
	switch s.policy {
	case PolicyBursts:
		s.burst = 4000
	case PolicyStarve:
		s.victim = m.warps[m.rng.IntN(len(m.warps))]
		s.burst = 64
	case PolicyEarlyCopy:
		s.copies, s.burst = 1, 64
	case PolicyLateCopy:
		s.copies, s.burst = 0, 64
	case PolicyRoundRobin:
		s.burst = 1
	case PolicyPCT:
		s.pct = newPriorities(m)
	}
}

// next draws a warp and the number of steps it may take, completing copies on
// the way; nil when nothing can run.
func (s *scheduler) next(m *machine) (*warp, int) {
	if s.pct != nil {
		return s.pct.next(m)
	}
	if len(m.flight) > 0 {
		switch {
		case s.copies == 1:
			for len(m.flight) > 0 && m.fault == nil {
				m.complete(0)
			}
		case m.rng.Float64() < s.copies:
			m.complete(m.rng.IntN(len(m.flight)))
		}
	}
	for len(s.run) == 0 && len(m.flight) > 0 && m.fault == nil {
		m.complete(m.rng.IntN(len(m.flight)))
	}
	if len(s.run) == 0 {
		return nil, 0
	}
	if s.policy == PolicyRoundRobin {
		s.last++
		return s.run[s.last%len(s.run)], 1
	}
	w := s.run[m.rng.IntN(len(s.run))]
	if w == s.victim && len(s.run) > 1 {
		w = s.run[(int(w.runPos)+1)%len(s.run)]
	}
	return w, 1 + m.rng.IntN(s.burst)
}

// stop takes w out of the runnable warps.
func (s *scheduler) stop(w *warp) {
	last := s.run[len(s.run)-1]
	s.run[w.runPos] = last
	last.runPos = w.runPos
	s.run = s.run[:len(s.run)-1]
	w.runPos = -1
}

// block suspends w until wake.
func (s *scheduler) block(w *warp) {
	w.state = blocked
	s.stop(w)
}

// wake makes a blocked warp runnable; others are left alone.
func (s *scheduler) wake(w *warp) {
	if w.state != blocked {
		return
	}
	w.state = running
	w.runPos = int32(len(s.run))
	s.run = append(s.run, w)
}

// again wakes a warp that a waiters' list names, to look at its condition once
// more. A list may still name a warp that has gone on by another way and is now
// blocked at a barrier: only the barrier wakes that.
func (s *scheduler) again(w *warp) {
	if w.wait.kind != waitBarrier {
		s.wake(w)
	}
}
