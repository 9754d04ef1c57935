package batch

import (
	"errors"
	"fmt"

	"github.com/mkgen/mkgen/engine/pages"
	"github.com/mkgen/mkgen/engine/prefix"
)

// Options are what a Scheduler is made of.
type Options struct {
	Stepper   Stepper
	Pool      *pages.Pool // all its pages free; the Scheduler's from now on
	Page      int         // tokens a page, at least 1
	Vocab     int         // logits a row
	Positions int         // the model's, at least 1

	// MaxSequences is how many sequences run at a time: 1 to MaxSequences and to the
	// stepper's rows, 0 for as many as can be.
	MaxSequences int
	// Piece other than 0, at most the stepper's rows, or a Prefiller's, has every prompt fed in pieces that
	// end at its multiples and at the prompt's end, whatever else runs: see the package's
	// documentation. 0 shares rows as there are.
	Piece int
	// Beside is how many tokens a Prefiller's launch has at most while sequences decode, without Piece: of a prompt with
	// cached tokens, where those that decode have decoding ones together, and apart is whether some of them do not ride
	// along, so that a step follows before they have their next token. More than the stepper's rows; nil for as many as
	// the launch takes.
	Beside func(cached, decoding int, apart bool) int
	// Short other than 0 is how many tokens a sequence has at most whose keys are other ones than a longer sequence's
	// (models.Config.ShortPositions): see short.go.
	Short int
	// DraftRows is how many rows a step may have for drafts to be among them: see lookup.go. 0 has none; it does not go
	// with Piece, since what comes together is not up to the prompt alone.
	DraftRows int
	// StepsPerLaunch is how many steps a launch has at most, at least 1.
	StepsPerLaunch int
	// Interrupt (nil for never) is asked after each step of a launch of several
	// whether the launch is to end, because there is something new.
	Interrupt func() bool
}

// Scheduler shares a stepper among jobs. Not safe for concurrent use.
type Scheduler struct {
	o       Options
	pool    *pages.Pool
	tree    *prefix.Tree
	limit   int    // tokens that a sequence can have in the cache
	running []*job // in the order of Add
	queue   []*job // in the order of Add; all newer than those that run
	turn    int    // launches: who of those that share rows gets the first
	next    int    // number of the next job
	logits  []float32
	closed  bool
	owed    []*job   // that have taken tokens since their HandOut
	scoring *scoring // of the last launch; nil: its clients have all

	prefills  int  // launches of a Prefiller
	prefilled bool // the last launch was a Prefiller's, and others had no part in it
}

// New makes a Scheduler, or says what is wrong with o.
func New(o Options) (*Scheduler, error) {
	rows := o.Stepper.Rows()
	if rows < 1 {
		return nil, fmt.Errorf("a stepper of %d rows, want at least 1", rows)
	}
	most, alone := min(MaxSequences, rows), rows
	if p, ok := o.Stepper.(Prefiller); ok {
		alone = max(rows, p.PrefillRows())
	}
	if o.MaxSequences == 0 {
		o.MaxSequences = most
	}
	switch {
	case o.MaxSequences < 1 || o.MaxSequences > most:
		return nil, fmt.Errorf("%d sequences at a time, want 1 to %d: each needs a row of every step, of which there are %d",
			o.MaxSequences, most, rows)
	case o.Piece < 0 || o.Piece > alone:
		return nil, fmt.Errorf("pieces of %d tokens, want 1 to the %d of a launch, or 0 for any", o.Piece, alone)
	case o.Beside != nil && (o.Beside(0, 0, false) <= rows || o.Beside(0, 0, false) > alone):
		return nil, fmt.Errorf("tokens of a prompt in a launch beside others: %d, want more than the %d rows of a step and at most the %d of a launch",
			o.Beside(0, 0, false), rows, alone)
	case o.DraftRows < 0 || o.DraftRows > 0 && o.Piece > 0:
		return nil, fmt.Errorf("%d rows for drafts with pieces of %d tokens, want at least 0, and one or the other",
			o.DraftRows, o.Piece)
	case o.Short < 0:
		return nil, fmt.Errorf("short sequences of %d tokens, want at least 0", o.Short)
	case o.StepsPerLaunch < 1:
		return nil, fmt.Errorf("%d steps a launch, want at least 1", o.StepsPerLaunch)
	case o.Page < 1 || o.Positions < 1 || o.Pool.Size() < 1:
		return nil, fmt.Errorf("%d pages of %d tokens and %d positions, want at least 1 each", o.Pool.Size(), o.Page,
			o.Positions)
	case o.Pool.Free() != o.Pool.Size():
		return nil, fmt.Errorf("%d of %d KV pages are free, want all", o.Pool.Free(), o.Pool.Size())
	}
	if o.Interrupt == nil {
		o.Interrupt = func() bool { return false }
	}
	return &Scheduler{o: o, pool: o.Pool, tree: prefix.New(o.Pool, o.Page), limit: min(o.Pool.Size()*o.Page, o.Positions)},
		nil
}

// Limit is how many tokens a sequence can have in the cache.
func (s *Scheduler) Limit() int { return s.limit }

// Busy reports whether there are jobs.
func (s *Scheduler) Busy() bool { return len(s.running)+len(s.queue) > 0 }

// Counts says how many sequences run and how many wait.
func (s *Scheduler) Counts() (running, queued int) { return len(s.running), len(s.queue) }

// Room reports whether a sequence may start beside those that run, if there are
// pages for it.
func (s *Scheduler) Room() bool { return len(s.running) < s.o.MaxSequences && len(s.queue) == 0 }

// Pages is how many pages are free, how many of the others hold nothing but
// remembered prefixes, and how many there are.
func (s *Scheduler) Pages() (free, idle, all int) {
	_, idle = s.tree.Pages()
	return s.pool.Free(), idle, s.pool.Size()
}

// Add queues a job behind all others. prompt has at least one token, is kept and
// must not change. A prompt that never fits leaves at once.
func (s *Scheduler) Add(prompt []int, c Client) {
	switch {
	case s.closed:
		panic("BUG: a job added to a closed scheduler")
	case len(prompt) == 0:
		panic("BUG: a job without a token")
	case len(prompt) > s.limit:
		c.Leave(Stats{}, ErrFull)
		return
	}
	s.queue = append(s.queue, s.job(prompt, c))
	s.next++
}

// Forget gives up the pages that hold nothing but remembered prefixes.
func (s *Scheduler) Forget() {
	_, idle := s.tree.Pages()
	s.tree.Evict(idle)
}

// Close ends all jobs with err and gives every page back. A page that is missing
// then is an error. A second Close does nothing.
func (s *Scheduler) Close(err error) error {
	if s.closed {
		return nil
	}
	s.closed = true
	s.fail(err)
	for len(s.queue) > 0 {
		j := s.queue[0]
		s.queue = s.queue[1:]
		s.settle()
		j.client.Leave(j.stats, err)
	}
	s.Forget()
	return errors.Join(s.Check(), s.pool.Leak())
}

// fail ends all jobs that run.
func (s *Scheduler) fail(err error) {
	for len(s.running) > 0 {
		s.leave(s.running[0], err)
	}
}
