package batch

// Where Options.Short is not 0, keys of a sequence of at most Short tokens are rotated otherwise than those of a longer
// one. So a launch is of short sequences or of long ones, in turns where both run; the prefixes of both are kept apart;
// and a sequence that grows beyond Short is fed again, whole.

// isShort reports whether a sequence of n tokens, those to be fed included, is short.
func (s *Scheduler) isShort(tokens int) bool { return s.o.Short > 0 && tokens <= s.o.Short }

// outgrow has jobs that are short no more begin again.
func (s *Scheduler) outgrow() {
	for _, j := range s.running {
		if j.short && !s.isShort(len(j.tokens)) {
			s.release(j)
			j.short = false
			j.keys = j.keyed()
		}
	}
}

// turnOfShort reports whether the next launch is of short sequences.
func (s *Scheduler) turnOfShort() bool {
	short, mixed := s.kinds()
	if mixed {
		return s.turn%2 == 0
	}
	return short
}

// kinds reports whether a job that runs is short, and whether another one is not.
func (s *Scheduler) kinds() (short, mixed bool) {
	long := false
	for _, j := range s.running {
		short, long = short || j.short, long || !j.short
	}
	return short, short && long
}

// room is how many tokens more a job may feed before it is short no more.
func (s *Scheduler) room(j *job) int {
	if !j.short {
		return s.limit
	}
	return s.o.Short - len(j.tokens)
}
