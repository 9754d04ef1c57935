package batch

// Prompt lookup: where the last tokens of a sequence are tokens that it had before, those that followed then are drafts
// of what follows now. A step feeds them beside the sequence's own next token; of what it chooses for each, everything
// up to the first that differs from the draft stands. Only tokens by argmax can be verified so.

const (
	lookupTokens = 3 // that must be the same
	// A step with drafts costs about 1.2 of one without, and is a launch of its own: below this many tokens accepted a
	// step, as a running mean, drafts lose.
	leastAccepted = 0.4
	meanWeight    = 0.2
	firstPause    = 64 // tokens without drafts when they have lost; twice as many each time
	longestPause  = 4096
)

// lookup is a sequence's index of what followed which tokens.
type lookup struct {
	places  map[uint64]int // behind which token those of a key came last; nil before the first find
	indexed int            // tokens in it
	mean    float64        // accepted a step
	pause   int            // of the next time that drafts lose
	resume  int            // tokens of the sequence until which there are none
	found   int            // tokens of the sequence when something was looked for last
	at      int            // and where it was found, 0 for nowhere
}

func newLookup() *lookup { return &lookup{mean: 1, pause: firstPause} }

// lookupKey returns the key of the last tokens: another one for others of a vocabulary of up to 2^21. Beyond that some
// have the same, and drafts that are refused.
func lookupKey(tokens []int) (key uint64) {
	for _, token := range tokens[len(tokens)-lookupTokens:] {
		key = key<<(64/lookupTokens) ^ uint64(token)
	}
	return key
}

// find is where tokens like the last ones end; 0 for nowhere. The last ones are indexed afterwards, so that they do not
// find themselves.
func (l *lookup) find(tokens []int) int {
	n := len(tokens)
	if n < lookupTokens || n < l.resume {
		return 0
	}
	if l.found == n {
		return l.at
	}
	if l.places == nil {
		l.places = make(map[uint64]int, n)
	}
	for i := max(l.indexed, lookupTokens); i < n; i++ {
		l.places[lookupKey(tokens[:i])] = i
		l.indexed = i + 1
	}
	l.found, l.at = n, l.places[lookupKey(tokens)]
	return l.at
}

// drafts are up to n tokens that may follow. Where the earlier ones run into the last they go on with themselves.
func (l *lookup) drafts(tokens []int, n int) []int {
	at := l.find(tokens)
	if at == 0 || n < 1 {
		return nil
	}
	drafts := make([]int, n)
	for i := range drafts {
		if at+i < len(tokens) {
			drafts[i] = tokens[at+i]
		} else {
			drafts[i] = drafts[at+i-len(tokens)]
		}
	}
	return drafts
}

// judge notes how many drafts of a step were accepted, of a sequence that has n tokens now.
func (l *lookup) judge(accepted, tokens int) {
	if l.mean += meanWeight * (float64(accepted) - l.mean); l.mean >= leastAccepted {
		return
	}
	l.resume, l.mean = tokens+l.pause, 2*leastAccepted
	l.pause = min(2*l.pause, longestPause)
}

// drafting reports whether a job's next step would have drafts.
func (s *Scheduler) drafting(j *job) bool {
	return s.o.DraftRows > 0 && j.client.Drafts() && j.lookup.find(j.tokens) > 0
}

// draftRoom is how many rows a step of these parts has for drafts.
func (s *Scheduler) draftRoom(parts []part) int {
	left := min(s.o.DraftRows, s.o.Stepper.Rows())
	for _, p := range parts {
		left -= p.rows
	}
	return left
}

// draft gives rows that are left to drafts, of those that choose, one after the other.
func (s *Scheduler) draft(parts []part) {
	left := s.draftRoom(parts)
	for i := range parts {
		p := &parts[(i+s.turn)%len(parts)]
		if left < 1 {
			return
		}
		if p.chooses() && p.rows == 1 && s.drafting(p.j) {
			room := min(left, p.j.client.Want()-1, s.limit-p.j.cached-1, s.room(p.j))
			p.drafts = p.j.lookup.drafts(p.j.tokens, room)
			p.rows += len(p.drafts)
			left -= len(p.drafts)
		}
	}
}

// undraft takes drafts out of parts for which there are not enough pages; ok is false where there are none.
func undraft(parts []part) (ok bool) {
	for i := range parts {
		p := &parts[i]
		ok = ok || len(p.drafts) > 0
		p.rows, p.drafts = p.rows-len(p.drafts), nil
	}
	return ok
}

// accept hands out what a step chose for a part with drafts, up to the first that differs from its draft, and returns
// how many of them stand.
func (l *launch) accept(i int, p part) (accepted int, err error) {
	j := p.j
	for k := 0; ; k++ {
		token, err := l.s.o.Stepper.Choice(i, k)
		if err != nil {
			return accepted, err
		}
		if j.done = j.done || j.client.Gone(); j.done {
			break
		}
		l.s.take(j, token)
		if j.done || k == len(p.drafts) || token != p.drafts[k] {
			break
		}
		accepted++
	}
	j.lookup.judge(accepted, len(j.tokens))
	j.stats.Drafted += len(p.drafts)
	j.stats.Accepted += accepted
	return accepted, nil
}
