package batchtest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/tasks/draw"
)

// Stepper is the fake. It refuses a launch that breaks the rules: too many rows, a
// page list that is too short or too long, a page written by one sequence and seen
// by another, a slot read that was never written.
type Stepper struct {
	T     int          // rows of a step
	Long  int          // tokens of a launch of one sequence, or Of, and one step, where they are more
	Of    int          // sequences of such a launch at most, where it may have several
	Least int          // tokens of such a launch at least that are worth it, where they are more than T
	Hosts bool         // of such a launch the host chooses, where a sequence does not take its highest logit
	Page  int          // tokens a page
	Pages int          // of the cache
	Ends  map[int]bool // tokens that end a launch
	// Ahead is how many steps it runs on when it should stop: like a GPU it hears
	// late.
	Ahead int
	// Few has the model say the tokens below it alone, so that it repeats itself; 0 for the whole vocabulary.
	Few int
	// Pieces makes results depend on which tokens came together.
	Pieces bool
	// Fail is the error of the next launch, which is forgotten then. It has run all
	// the same.
	Fail error
	// Most is how many tokens the sequences of a launch have at most when it ends, 0 for
	// any number; more are a kv.LimitError.
	Most int
	// Heavy is how many cached tokens the rows of a launch read together at most, 0 for any number; more are a
	// kv.LimitError.
	Heavy int
	// Before (nil for none) is called before each launch.
	Before func(r batch.StepRequest)

	Launches int
	Quiet    int      // launches that chose nothing
	Fed      int      // tokens of all launches
	Log      []string // a line a launch: steps, then cached+new tokens of each sequence

	short bool               // of this launch
	cells map[[2]uint32]cell // by page and slot
	last  []int              // tokens that follow, of the last step
	rows  [][]int            // and of its rows, by sequence

	wanted [][]int // tokens that are scored, by sequence

	asked  []draw.Rule // of the sequences of this launch
	follow [][]int     // tokens that follow by argmax, of each of its steps
	logits [Vocab]float32
}

// Rows is T.
func (f *Stepper) Rows() int { return f.T }

// PrefillRows is Long.
func (f *Stepper) PrefillRows() int { return f.Long }

// PrefillSequences is Of, or 1.
func (f *Stepper) PrefillSequences() int { return max(1, f.Of) }

// PrefillLeast is Least, or T + 1.
func (f *Stepper) PrefillLeast() int { return max(f.Least, f.T+1) }

// PrefillDraws is whether Hosts is not set.
func (f *Stepper) PrefillDraws() bool { return !f.Hosts }

func (f *Stepper) slot(q *batch.Sequence, i int) [2]uint32 {
	return [2]uint32{q.Pages[i/f.Page], uint32(i % f.Page)}
}

// feed writes a token's cell at position i of a sequence, one of n that come together
// from position begin on.
func (f *Stepper) feed(q *batch.Sequence, i, token, begin, n int) error {
	h := opening(f.short)
	if i > 0 {
		var ok bool
		if h, ok = f.cells[f.slot(q, i-1)]; !ok {
			return fmt.Errorf("slot %v was never written", f.slot(q, i-1))
		}
	}
	if f.cells == nil {
		f.cells = map[[2]uint32]cell{}
	}
	if h = h.then(token); f.Pieces {
		h = h.rounded(begin, n)
	}
	f.cells[f.slot(q, i)] = h
	f.Fed++
	return nil
}

// next is what follows the n tokens that a sequence has in the cache.
func (f *Stepper) next(q *batch.Sequence, n int) (int, error) {
	all := make([]cell, n)
	for i := range n {
		var ok bool
		if all[i], ok = f.cells[f.slot(q, i)]; !ok {
			return 0, fmt.Errorf("slot %v was never written", f.slot(q, i))
		}
	}
	if f.Few > 0 {
		return choose(all) % f.Few, nil
	}
	return choose(all), nil
}

// check refuses what no launch may be.
func (f *Stepper) check(r batch.StepRequest) error {
	rows := 0
	writer := map[uint32]int{}
	for i, q := range r.Sequences {
		rows += len(q.New)
		want := (q.Cached + len(q.New) + r.Steps - 1 + f.Page - 1) / f.Page
		if len(q.New) < 1 || r.Steps > 1 && len(q.New) > 1 || len(q.Pages) != want {
			return fmt.Errorf("sequence %d: %d new tokens in %d steps and %d pages, want %d", i, len(q.New), r.Steps,
				len(q.Pages), want)
		}
		for _, p := range q.Pages[q.Cached/f.Page:] {
			if w, twice := writer[p]; twice {
				return fmt.Errorf("page %d is written by sequences %d and %d", p, w, i)
			}
			writer[p] = i
		}
	}
	for i, q := range r.Sequences {
		for _, p := range q.Pages {
			if w, written := writer[p]; written && w != i || int(p) >= f.Pages {
				return fmt.Errorf("page %d of sequence %d is written by sequence %d", p, i, w)
			}
		}
	}
	if r.Quiet && r.Steps != 1 {
		return fmt.Errorf("%d steps of which nobody wants the tokens, want 1", r.Steps)
	}
	if f.Long > f.T && r.Steps == 1 && len(r.Sequences) <= f.PrefillSequences() && rows > f.T && rows <= f.Long {
		return nil
	}
	if rows < 1 || rows > f.T || r.Steps < 1 {
		return fmt.Errorf("%d rows and %d steps, want 1 to %d and at least 1", rows, r.Steps, f.T)
	}
	return nil
}

// Run runs the model.
func (f *Stepper) Run(ctx context.Context, r batch.StepRequest) (all [][]int, err error) {
	if n := total(r); f.Most > 0 && n > f.Most {
		return nil, fmt.Errorf("batchtest: %w", kv.LimitError(fmt.Sprintf("%d tokens, want at most %d", n, f.Most)))
	}
	if n := heavy(r); f.Heavy > 0 && n > f.Heavy {
		return nil, fmt.Errorf("batchtest: %w", kv.LimitError(fmt.Sprintf("rows of %d tokens, want at most %d", n, f.Heavy)))
	}
	f.note(r)
	f.short = r.Short
	if f.Before != nil {
		f.Before(r)
	}
	if err := f.check(r); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if r.Begun != nil {
		r.Begun()
	}
	feed, cached := make([][]int, len(r.Sequences)), make([]int, len(r.Sequences))
	for i, q := range r.Sequences {
		feed[i], cached[i] = q.New, q.Cached
	}
	f.follow, f.asked, f.wanted = nil, nil, nil
	for _, q := range r.Sequences {
		f.wanted = append(f.wanted, q.Scored)
		f.asked = append(f.asked, q.Draw.Clone())
	}
	ahead := -1
	for step := 0; step < r.Steps && ahead != 0; step++ {
		chosen, end, err := f.step(r.Sequences, feed, cached)
		if err != nil {
			return nil, err
		}
		if r.Quiet {
			all, f.last, f.Quiet = append(all, slices.Repeat([]int{batch.NoToken}, len(chosen))), nil, f.Quiet+1
			break
		}
		all = append(all, chosen)
		switch {
		case end:
			ahead = 0
		case ahead > 0:
			ahead--
		case !r.Each(chosen) || ctx.Err() != nil:
			if ahead = f.Ahead; r.Mask != nil && masked(r) {
				ahead = 0 // what it chooses without a mask is no choice
			}
		case r.Mask != nil && step+1 < r.Steps:
			for i := range f.asked {
				if f.asked[i].Mask != nil {
					f.asked[i].SetMask(slices.Clone(r.Mask(i)))
				}
			}
		}
	}
	if err := f.Fail; err != nil {
		f.Fail = nil
		return nil, err
	}
	return all, ctx.Err()
}

// masked reports whether a sequence of a launch has a mask.
func masked(r batch.StepRequest) bool {
	return slices.ContainsFunc(r.Sequences, func(q batch.Sequence) bool { return q.Draw.Mask != nil })
}

// total is how many tokens the sequences of a launch have when it ends.
func total(r batch.StepRequest) (n int) {
	for _, q := range r.Sequences {
		n += q.Cached + len(q.New) + r.Steps - 1
	}
	return n
}

func heavy(r batch.StepRequest) (n int) {
	for _, q := range r.Sequences {
		n += len(q.New) * q.Cached
	}
	return n
}

func (f *Stepper) note(r batch.StepRequest) {
	f.Launches++
	line := fmt.Sprint(r.Steps)
	for _, q := range r.Sequences {
		line += fmt.Sprintf(" %d+%d", q.Cached, len(q.New))
	}
	f.Log = append(f.Log, line)
}

// step feeds tokens and makes those it chooses the next to feed.
func (f *Stepper) step(qs []batch.Sequence, feed [][]int, cached []int) (chosen []int, end bool, err error) {
	f.rows = nil
	var follow []int
	for i := range qs {
		begin := cached[i]
		var token int
		var rows []int
		for _, fed := range feed[i] {
			if err := f.feed(&qs[i], cached[i], fed, begin, len(feed[i])); err != nil {
				return nil, false, err
			}
			cached[i]++
			if token, err = f.next(&qs[i], cached[i]); err != nil {
				return nil, false, err
			}
			rows = append(rows, token)
		}
		f.rows = append(f.rows, rows)
		logits := make([]float32, Vocab)
		logits[token] = 1
		follow = append(follow, token)
		token = f.asked[i].Choose(logits, uint32(cached[i]))
		f.asked[i].Took(token)
		chosen = append(chosen, token)
		feed[i] = []int{token}
		end = end || f.Ends[token]
	}
	f.last, f.follow = chosen, append(f.follow, follow)
	return chosen, end, nil
}

// Logits are 1 for the token that follows and 0 for all others.
func (f *Stepper) Logits(i int, dst []float32) error {
	clear(dst)
	dst[f.last[i]] = 1
	return nil
}

// Scores are of tokens that follow with logit 1 while all others have 0.
func (f *Stepper) Scores() (batch.Scores, error) {
	follow, tops := f.follow, make([]int, len(f.asked))
	for i := range f.asked {
		tops[i] = f.asked[i].Tops()
	}
	return func(i, step, token int) (sampling.Logprobs, error) {
		if step >= len(follow) {
			return sampling.Logprobs{}, fmt.Errorf("log-probabilities of step %d, the launch had %d", step, len(follow))
		}
		return f.logprobs(follow[step][i], token, tops[i])
	}, nil
}

// Choice is the token that follows a row.
func (f *Stepper) Choice(i, k int) (int, error) {
	if f.last == nil {
		return 0, errors.New("a choice of a quiet launch")
	}
	return f.rows[i][k], nil
}

// TokenLogprobs are of a row's logits: 1 for the token that follows and 0 for all others.
func (f *Stepper) TokenLogprobs(i, k, token, tops int) (sampling.Logprobs, error) {
	if f.last == nil {
		return sampling.Logprobs{}, errors.New("log-probabilities of a quiet launch")
	}
	if f.wanted[i][k] != token {
		return sampling.Logprobs{}, fmt.Errorf("log-probabilities of token %d behind new token %d of sequence %d, "+
			"want one that the launch was to score", token, k, i)
	}
	return f.logprobs(f.rows[i][k], token, tops)
}

// logprobs are made of memory that Scores and TokenLogprobs share, as runtime.Session's are.
func (f *Stepper) logprobs(follows, token, tops int) (sampling.Logprobs, error) {
	clear(f.logits[:])
	f.logits[follows] = 1
	return sampling.LogprobsOf(f.logits[:], token, tops)
}
