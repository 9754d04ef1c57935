package batch

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"testing"

	"github.com/mkgen/mkgen/megakernel/runtime/pages"
	"github.com/stretchr/testify/require"
)

const fakeVocab = 50

// cell is what a slot of a page holds: a hash of a token and all before it, as
// keys and values depend on them.
type cell uint64

// fake is a stepper whose model is a hash of what it reads through the pages. Like
// a GPU it has run a few steps more by the time it hears that it should stop.
type fake struct {
	t     *testing.T
	page  int
	rows  int
	cells map[[2]uint32]cell // page and slot
	pages int                // the cache's
	ends  map[int]bool
	ahead int // steps after Each returned false, at most

	last     []int // tokens that follow, of the last step
	log      []string
	launches int
	fed      int
	fail     error // of the next launch, once it has run
	before   func(r StepRequest)
}

func (f *fake) Rows() int { return f.rows }

// feed writes a token's cell at position i of a sequence.
func (f *fake) feed(q *Sequence, i, token int) {
	h := cell(14695981039346656037)
	if i > 0 {
		h = f.read(q, i-1)
	}
	f.cells[f.slot(q, i)] = h.then(token)
	f.fed++
}

func (h cell) then(token int) cell { return (h ^ cell(token+1)) * 1099511628211 }

func (f *fake) slot(q *Sequence, i int) [2]uint32 {
	p := q.Pages[i/f.page]
	require.Less(f.t, int(p), f.pages, "a page that is not there")
	return [2]uint32{p, uint32(i % f.page)}
}

func (f *fake) read(q *Sequence, i int) cell {
	c, ok := f.cells[f.slot(q, i)]
	require.True(f.t, ok, "slot %v was never written", f.slot(q, i))
	return c
}

// next is what follows the n tokens that a sequence has in the cache.
func (f *fake) next(q *Sequence, n int) int {
	var all []cell
	for i := range n {
		all = append(all, f.read(q, i))
	}
	return choose(all)
}

func choose(cells []cell) int {
	h := fnv.New32a()
	fmt.Fprint(h, cells)
	return int(h.Sum32() % fakeVocab)
}

// follows is what the fake's model says follows tokens.
func follows(tokens []int) int {
	h := cell(14695981039346656037)
	var all []cell
	for _, t := range tokens {
		h = h.then(t)
		all = append(all, h)
	}
	return choose(all)
}

func (f *fake) check(r StepRequest) {
	rows := 0
	writers := map[uint32]int{}
	require.NotEmpty(f.t, r.Sequences)
	for i, q := range r.Sequences {
		require.NotEmpty(f.t, q.New)
		rows += len(q.New)
		if r.Steps > 1 {
			require.Len(f.t, q.New, 1)
		}
		require.Len(f.t, q.Pages, (q.Cached+len(q.New)+r.Steps-1+f.page-1)/f.page)
		for _, p := range q.Pages[q.Cached/f.page:] {
			_, twice := writers[p]
			require.False(f.t, twice, "page %d is written by two", p)
			writers[p] = i
		}
	}
	for i, q := range r.Sequences {
		for _, p := range q.Pages {
			w, written := writers[p]
			require.True(f.t, !written || w == i, "page %d of sequence %d is written by %d", p, i, w)
		}
	}
	require.LessOrEqual(f.t, rows, f.rows)
}

func (f *fake) Run(ctx context.Context, r StepRequest) (all [][]int, err error) {
	f.launches++
	f.check(r)
	line := fmt.Sprint(r.Steps)
	for _, q := range r.Sequences {
		line += fmt.Sprintf(" %d+%d", q.Cached, len(q.New))
	}
	f.log = append(f.log, line)
	if f.before != nil {
		f.before(r)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	ahead := -1
	feed := make([][]int, len(r.Sequences))
	cached := make([]int, len(r.Sequences))
	for i, q := range r.Sequences {
		feed[i], cached[i] = q.New, q.Cached
	}
	for step := 0; step < r.Steps && ahead != 0; step++ {
		chosen, end := f.step(r.Sequences, feed, cached)
		all = append(all, chosen)
		switch {
		case end:
			ahead = 0
		case ahead > 0:
			ahead--
		case !r.Each(chosen) || ctx.Err() != nil:
			ahead = f.ahead
		}
	}
	if err := f.fail; err != nil {
		f.fail = nil
		return nil, err
	}
	return all, ctx.Err()
}

func (f *fake) step(qs []Sequence, feed [][]int, cached []int) (chosen []int, end bool) {
	for i := range qs {
		for _, token := range feed[i] {
			f.feed(&qs[i], cached[i], token)
			cached[i]++
		}
		token := f.next(&qs[i], cached[i])
		chosen = append(chosen, token)
		feed[i] = []int{token}
		end = end || f.ends[token]
	}
	f.last = chosen
	return chosen, end
}

func (f *fake) Logits(i int, dst []float32) error {
	clear(dst)
	dst[f.last[i]] = 1
	return nil
}

// client wants some tokens.
type client struct {
	t      *testing.T
	s      *Scheduler
	prompt []int
	want   int
	stop   int // token that is the last, -1 for none
	draws  bool
	gone   bool
	goneAt int // tokens after which it is gone, 0 for never
	bad    error

	got   []int
	left  bool
	err   error
	stats Stats
	onEnd func()
}

func (c *client) Want() int {
	require.Positive(c.t, c.want-len(c.got))
	return c.want - len(c.got)
}
func (c *client) Draws() bool { return c.draws }
func (c *client) Pick(logits []float32, position int) (int, error) {
	require.Equal(c.t, len(c.prompt)+len(c.got), position)
	for i, x := range logits {
		if x == 1 {
			return (i + 1) % fakeVocab, c.bad
		}
	}
	return 0, errors.New("no logit is 1")
}
func (c *client) Take(token int) bool {
	require.False(c.t, c.left || c.gone)
	c.got = append(c.got, token)
	c.gone = len(c.got) == c.goneAt
	return len(c.got) < c.want && token != c.stop
}
func (c *client) Gone() bool { return c.gone }
func (c *client) Leave(s Stats, err error) {
	require.False(c.t, c.left, "left twice")
	c.left, c.err, c.stats = true, err, s
	if c.onEnd != nil {
		c.onEnd()
	}
}

// alone is what the client would get alone with all the room there is.
func (c *client) alone(n int) []int {
	all := append([]int(nil), c.prompt...)
	for range n {
		next := follows(all)
		if c.draws {
			next = (next + 1) % fakeVocab
		}
		all = append(all, next)
	}
	return all[len(c.prompt):]
}

// bench is a scheduler on a fake.
type bench struct {
	*Scheduler
	f *fake
}

// sizes are what a bench is made of.
type sizes struct {
	rows, page, pages, sequences, steps int
	seed                                uint64
}

func newBench(t *testing.T, z sizes) *bench {
	t.Helper()
	f := &fake{t: t, page: z.page, rows: z.rows, cells: map[[2]uint32]cell{}, pages: z.pages, ends: map[int]bool{}, ahead: 2}
	pool := pages.New(z.pages)
	if z.seed != 0 {
		pool = pages.NewShuffled(z.pages, z.seed)
	}
	s, err := New(Options{Stepper: f, Pool: pool, Page: z.page, Vocab: fakeVocab, Positions: 1000, MaxSequences: z.sequences, StepsPerLaunch: z.steps})
	require.NoError(t, err)
	return &bench{s, f}
}

// add adds a job of n prompt tokens drawn from first on.
func (b *bench) add(prompt []int, want int) *client {
	c := &client{t: b.f.t, s: b.Scheduler, prompt: prompt, want: want, stop: -1}
	b.Add(prompt, c)
	return c
}

// step is a Step that goes well.
func (b *bench) step() {
	b.f.t.Helper()
	require.NoError(b.f.t, b.Step(b.f.t.Context()))
	require.NoError(b.f.t, b.Check())
}

// all steps until there is nothing to do.
func (b *bench) all() {
	b.f.t.Helper()
	for n := 0; b.Busy(); n++ {
		require.Less(b.f.t, n, 100000, "no end")
		b.step()
	}
}

// close closes and looks for leaks.
func (b *bench) close() {
	b.f.t.Helper()
	require.NoError(b.f.t, b.Close(errors.New("closed")))
	require.Equal(b.f.t, b.pool.Size(), b.pool.Free())
}

// count is n tokens from first on.
func count(first, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = (first + i) % fakeVocab
	}
	return out
}
