package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/engine/pages"
	"github.com/mkgen/mkgen/models"
)

// session is what a sequence needs of a runtime.Session.
type session interface {
	Stream(ctx context.Context, prompt []int, n int, each func(token int) bool) ([]int, error)
	Logits(dst []float32) error
	Pos() int
	Rewind(pos int) error
	SetTable(table []uint32) error
	SetShort(short bool) error
}

// sequence is the tokens in a session's KV cache and the pages that hold them.
type sequence struct {
	s      session
	pool   *pages.Pool
	page   int      // tokens a page
	limit  int      // tokens that fit
	most   int      // of a short sequence, see models.Config.ShortPositions
	short  bool     // the sequence is one
	guard  uint32   // the page of table entries without one of their own
	tokens []int    // in the cache: Pos of them
	held   []uint32 // the sequence's pages, in order
	table  []uint32 // as the session has it
}

// newSequence starts with nothing in the cache; the session's table names the
// guard, page pool.Size(), in all of its pool.Size() entries.
func newSequence(s session, pool *pages.Pool, page int, c *models.Config) *sequence {
	guard := uint32(pool.Size())
	return &sequence{s: s, pool: pool, page: page, limit: min(pool.Size()*page, c.MaxPositions), most: c.ShortPositions(), guard: guard,
		table: slices.Repeat([]uint32{guard}, pool.Size())}
}

// common is how many tokens of a prompt are in the cache already. One at least
// stays to be fed: what follows it is asked for.
func (q *sequence) common(prompt []int) int {
	n := 0
	for n < len(prompt)-1 && n < len(q.tokens) && prompt[n] == q.tokens[n] {
		n++
	}
	return n
}

// keep forgets all but the first n tokens (or all there are) and gives back the
// pages that hold none of them.
func (q *sequence) keep(n int) {
	n = min(n, len(q.tokens))
	if err := q.s.Rewind(n); err != nil {
		panic("BUG: " + err.Error())
	}
	q.tokens = q.tokens[:n]
	used := q.pagesOf(n)
	if used >= len(q.held) {
		return
	}
	if err := q.pool.Give(q.held[used:]); err != nil {
		panic("BUG: " + err.Error())
	}
	q.held = q.held[:used]
}

// become says that the sequence is going to have so many tokens: one whose keys are other ones then is fed again.
func (q *sequence) become(tokens int) error {
	if q.most == 0 || q.short == (tokens <= q.most) {
		return nil
	}
	q.keep(0)
	q.short = !q.short
	return q.s.SetShort(q.short)
}

// steps is how many tokens a launch may choose at most, of a sequence that has so many with those to be fed.
func (q *sequence) steps(tokens int) int {
	limit := q.limit
	if q.short {
		limit = min(limit, q.most)
	}
	return limit + 1 - tokens // the last one chosen needs no room
}

func (q *sequence) pagesOf(tokens int) int { return (tokens + q.page - 1) / q.page }

// reserve takes pages for n tokens, at most limit, and tells the session.
func (q *sequence) reserve(n int) error {
	if more := q.pagesOf(n) - len(q.held); more > 0 {
		taken, err := q.pool.Take(more)
		if err != nil {
			return err
		}
		q.held = append(q.held, taken...)
	}
	table := slices.Repeat([]uint32{q.guard}, len(q.table))
	copy(table, q.held)
	if slices.Equal(table, q.table) {
		return nil
	}
	if err := q.s.SetTable(table); err != nil {
		return err
	}
	q.table = table
	return nil
}

// launch feeds tokens (at least one) and streams up to n that the kernel chooses.
// Afterwards tokens is what the cache holds, whatever the error.
func (q *sequence) launch(ctx context.Context, feed []int, n int, each func(token int) bool) ([]int, error) {
	if err := q.reserve(len(q.tokens) + len(feed) + n - 1); err != nil {
		return nil, err
	}
	before := q.tokens
	chosen, err := q.s.Stream(ctx, feed, n, each)
	all := slices.Concat(before, feed, chosen)
	pos := q.s.Pos()
	if pos < len(before) || pos > len(all) {
		panic(fmt.Sprintf("BUG: a launch from position %d of %d tokens ended at %d and returned %d", len(before), len(feed), pos, len(chosen)))
	}
	q.tokens = all[:pos]
	return chosen, err
}
