package batch

import (
	"cmp"
	"math"
	"slices"

	"github.com/mkgen/mkgen/engine/prefix"
)

// job is one sequence.
type job struct {
	id      int // by Add
	client  Client
	tokens  []int // the prompt and what was chosen
	keys    []int // what the tree knows them by: tokens, or those of keyed
	prompt  int   // tokens of it
	piece   int   // see Options.Piece; 0: none. A job whose prompt is scored has pieces that a step has the rows for
	longest int   // Options.Piece
	short   bool  // see Options.Short
	plain   bool  // keys are tokens

	cached  int      // tokens in the cache, fewer than tokens
	pages   []uint32 // of these, and during a launch of those to come
	cursor  prefix.Cursor
	reached int // the most that cached ever was
	served  int // launches when it had rows last, or started
	stats   Stats
	lookup  *lookup // nil without Options.DraftRows
	halved  bool    // a piece of it has come in halves
	done    bool    // the client wants no more
	owed    bool    // it is among those of Scheduler.owed
	// unscored is why log-probabilities that the client waits for cannot be made; nil: they can.
	unscored error
}

func (s *Scheduler) job(prompt []int, c Client) *job {
	j := &job{id: s.next, client: c, tokens: slices.Clip(prompt), prompt: len(prompt), piece: s.o.Piece,
		longest: s.o.Piece, short: s.isShort(len(prompt)), plain: s.o.Piece == 0 && s.o.Short == 0}
	if j.scores() {
		j.piece = min(j.piece, s.o.Stepper.Rows())
	}
	if s.o.DraftRows > 0 {
		j.lookup = newLookup()
	}
	j.keys = j.keyed()
	return j
}

// pending is how many tokens are to be fed, at least 1.
func (j *job) pending() int { return len(j.tokens) - j.cached }

// scores reports whether logits that follow tokens before the prompt's last are wanted, of the job's next ones.
func (j *job) scores() bool { return j.cached < j.prompt-1 && j.toScore() != math.MaxInt }

// toScore is behind which token of the prompt a score is wanted next.
func (j *job) toScore() int {
	from, _ := j.client.ToScore()
	return from
}

// take gives a job and its client a token.
func (s *Scheduler) take(j *job, token int) {
	j.tokens = append(j.tokens, token)
	if j.plain {
		j.keys = j.tokens
	} else {
		j.keys = append(j.keys, j.key(len(j.tokens)-1))
	}
	j.done = !j.client.Take(token)
	if !j.owed {
		j.owed = true
		s.owed = append(s.owed, j)
	}
}

// grow makes room for n tokens more, while a launch runs: a prompt is copied when the first token comes behind it.
func (j *job) grow(n int) {
	j.tokens = slices.Grow(j.tokens, n)
	if j.plain {
		j.keys = j.tokens
	} else {
		j.keys = slices.Grow(j.keys, n)
	}
}

func (s *Scheduler) pagesOf(tokens int) int { return (tokens + s.o.Page - 1) / s.o.Page }

// follow moves a job that stands at the end of a page, or at its beginning, on
// behind the tokens that the tree has. One token is left to be fed: what follows it
// is asked for.
func (s *Scheduler) follow(j *job) {
	if j.cached != len(j.pages)*s.o.Page {
		return
	}
	keys := j.keys[j.cached:max(j.cached, min(len(j.keys)-1, j.toScore()))]
	if j.piece > 0 {
		keys = keys[:j.whole(s.tree.Match(&j.cursor, keys), s.o.Page)]
	}
	more := s.tree.Follow(&j.cursor, keys)
	j.pages = append(j.pages, more...)
	j.cached += len(more) * s.o.Page
	j.stats.Reused += max(0, min(j.cached, j.prompt)-j.reached)
	j.reached = max(j.reached, j.cached)
}

// advance says that the cache holds n tokens of a job, as far as it has as many.
// Whole pages go to the tree, pages without a token back to the pool.
func (s *Scheduler) advance(j *job, n int) {
	j.cached = min(n, len(j.tokens))
	j.reached = max(j.reached, j.cached)
	for i := j.cursor.Pages(); (i+1)*s.o.Page <= j.cached; i++ {
		j.pages[i] = s.tree.Put(&j.cursor, j.keys[i*s.o.Page:(i+1)*s.o.Page], j.pages[i])
	}
	s.shorten(j, s.pagesOf(j.cached))
}

// shorten gives back the pages of a job from the n-th on, none of them the tree's.
func (s *Scheduler) shorten(j *job, n int) {
	if err := s.pool.Give(j.pages[n:]); err != nil {
		panic("BUG: " + err.Error())
	}
	j.pages = j.pages[:n]
}

// release gives all pages of a job back; the tree remembers those it has.
func (s *Scheduler) release(j *job) {
	s.shorten(j, j.cursor.Pages())
	s.tree.Leave(&j.cursor)
	j.pages, j.cached = nil, 0
}

// leave ends a job that runs.
func (s *Scheduler) leave(j *job, err error) {
	s.settle()
	s.release(j)
	i := slices.Index(s.running, j)
	s.running = slices.Delete(s.running, i, i+1)
	j.client.Leave(j.stats, cmp.Or(j.unscored, err)) // a client that is full has tokens without theirs, too
}

// preempt sends the newest job that runs back to the head of the queue.
func (s *Scheduler) preempt() {
	last := len(s.running) - 1
	j := s.running[last]
	s.running = s.running[:last]
	s.release(j)
	j.stats.Preempted++
	s.queue = slices.Insert(s.queue, 0, j)
}

// sweep ends the jobs whose clients are gone, and those that have come to the limit.
func (s *Scheduler) sweep() {
	for _, j := range slices.Clone(s.running) {
		switch {
		case j.done || j.client.Gone():
			s.leave(j, nil)
		case len(j.tokens) > s.limit:
			s.leave(j, ErrFull)
		}
	}
	var gone []*job
	s.queue = slices.DeleteFunc(s.queue, func(j *job) bool {
		if j.client.Gone() {
			gone = append(gone, j)
			return true
		}
		return false
	})
	for _, j := range gone {
		s.settle()
		j.client.Leave(j.stats, nil)
	}
}

// admit starts jobs from the head of the queue while there is room for them.
func (s *Scheduler) admit() {
	for len(s.queue) > 0 && len(s.running) < s.o.MaxSequences {
		j := s.queue[0]
		s.follow(j)
		s.running = append(s.running, j)
		if len(s.running) > 1 && !s.fits() {
			s.running = s.running[:len(s.running)-1]
			s.release(j)
			return
		}
		s.queue = s.queue[1:]
		j.served = s.turn
	}
}

// fits reports whether there are pages for all tokens that the running jobs have
// to feed, and for one page more of each but the first: so that what starts is not
// sent back at once.
func (s *Scheduler) fits() bool {
	need := len(s.running) - 1
	for _, j := range s.running {
		need += s.pagesOf(len(j.tokens)) - len(j.pages)
	}
	return need <= s.available()
}

// available is how many pages there are for the taking.
func (s *Scheduler) available() int {
	_, idle := s.tree.Pages()
	return s.pool.Free() + idle
}
