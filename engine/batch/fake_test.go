package batch_test

import (
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/batch/batchtest"
	"github.com/mkgen/mkgen/engine/pages"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/tasks/draw"
	"github.com/stretchr/testify/require"
)

// client wants some tokens.
type client struct {
	t      *testing.T
	prompt []int
	want   int
	stop   int // token that is the last, -1 for none
	draws  bool
	piece  int // of its bench
	most   int // likewise
	few    int // and tokens that its model says, 0 for all
	short  int // tokens of sequences that are short
	gone   bool
	goneAt int // tokens after which it is gone, 0 for never
	bad    error
	scores bool  // wants the logits of its prompt, too
	tops   bool  // wants log-probabilities of tokens, too
	logs   []int // the tokens that it has those of
	fed    []int // what Fed said
	scored []int // the tokens that they make likely

	got    []int
	handed atomic.Int64 // of got
	left   bool
	err    error
	stats  batch.Stats
	onEnd  func()
}

func (c *client) Want() int {
	require.Positive(c.t, c.want-len(c.got))
	return c.want - len(c.got)
}
func (c *client) Draw() (r draw.Rule) {
	if c.tops {
		r.SetTops(1)
	}
	return r
}
func (c *client) Scored(all []sampling.Logprobs) {
	for _, l := range all {
		c.logs = append(c.logs, l.Token)
	}
}
func (c *client) Draws() bool         { return c.draws || c.toScore() != math.MaxInt }
func (c *client) Drafts() bool        { return !c.Draws() && !c.tops }
func (c *client) ToScore() (int, int) { return c.toScore(), 1 }
func (c *client) toScore() int {
	if c.scores && len(c.scored) < len(c.prompt)-1 {
		return len(c.scored)
	}
	return math.MaxInt
}
func (c *client) Score(l sampling.Logprobs) {
	require.Empty(c.t, c.got)
	require.Equal(c.t, c.prompt[len(c.scored)+1], l.Token)
	c.scored = append(c.scored, l.Top[0].Token)
}
func (c *client) Pick(logits []float32, position int) (int, error) {
	require.Equal(c.t, len(c.prompt)+len(c.got), position)
	if !c.draws {
		return slices.Index(logits, 1), c.bad
	}
	return batchtest.Pick(logits), c.bad
}
func (c *client) Take(token int) bool {
	require.False(c.t, c.left || c.gone)
	c.got = append(c.got, token)
	c.gone = len(c.got) == c.goneAt
	return len(c.got) < c.want && token != c.stop
}
func (c *client) Fed(tokens int) {
	require.Less(c.t, tokens, len(c.prompt))
	require.Positive(c.t, tokens)
	c.fed = append(c.fed, tokens)
}
func (c *client) HandOut() {
	require.False(c.t, c.left)
	require.Less(c.t, int(c.handed.Load()), len(c.got))
	c.handed.Store(int64(len(c.got)))
}
func (c *client) Gone() bool { return c.gone }
func (c *client) Leave(s batch.Stats, err error) {
	require.False(c.t, c.left, "left twice")
	require.EqualValues(c.t, len(c.got), c.handed.Load(), "not handed out")
	c.left, c.err, c.stats = true, err, s
	if c.onEnd != nil {
		c.onEnd()
	}
}

// alone is what the client would get alone with all the room there is.
func (c *client) alone(n int) []int {
	if c.short > 0 {
		return batchtest.AloneShort(c.prompt, n, c.draws, c.few, c.short)
	}
	if c.few > 0 {
		return batchtest.AloneOfFew(c.prompt, n, c.few)
	}
	if c.piece > 0 {
		return batchtest.AloneInPieces(c.prompt, n, c.draws, c.piece, c.most)
	}
	return batchtest.Alone(c.prompt, n, c.draws)
}

// bench is a scheduler on a fake.
type bench struct {
	*batch.Scheduler
	t    *testing.T
	f    *batchtest.Stepper
	pool *pages.Pool
	z    sizes
}

// sizes are what a bench is made of.
type sizes struct {
	rows, page, pages, sequences, steps int
	seed                                uint64
	positions                           int // 0 for 1000
	drafts, few                         int // rows for drafts, and tokens that the model says
	piece                               int // with one, results depend on which tokens come together
	// tokens of a launch of one prompt alone, where they are more than rows, and how many are worth it
	long, least int
	several     int // sequences of such a launch, where it may have several
	beside      int // of them, while others run
	short       int // tokens of short sequences
	heavy       int // see batchtest.Stepper
	most        int // tokens of all sequences when a launch ends, 0 for any number
}

// launches is beside as an option has it.
func (z *sizes) launches() func(int, int, bool) int {
	if z.beside == 0 {
		return nil
	}
	return func(cached, _ int, apart bool) int { // fewer and fewer, and one fewer where a step follows
		if apart {
			cached += 8
		}
		return max(z.beside-cached/8, 0)
	}
}

func newBench(t *testing.T, z sizes) *bench {
	t.Helper()
	f := &batchtest.Stepper{T: z.rows, Long: z.long, Of: z.several, Least: z.least, Page: z.page, Pages: z.pages, Ahead: 2,
		Pieces: z.piece > 0, Most: z.most, Heavy: z.heavy, Few: z.few}
	if z.positions == 0 {
		z.positions = 1000
	}
	pool := pages.New(z.pages)
	if z.seed != 0 {
		pool = pages.NewShuffled(z.pages, z.seed)
	}
	s, err := batch.New(batch.Options{Stepper: f, Pool: pool, Page: z.page, Vocab: batchtest.Vocab, Positions: z.positions,
		MaxSequences: z.sequences, Piece: z.piece, Beside: z.launches(), DraftRows: z.drafts, Short: z.short,
		StepsPerLaunch: max(1, z.steps)})
	require.NoError(t, err)
	return &bench{s, t, f, pool, z}
}

// add adds a job that wants n tokens.
func (b *bench) add(prompt []int, want int) *client {
	c := &client{t: b.t, prompt: prompt, want: want, stop: -1, piece: b.z.piece, most: b.z.most, few: b.z.few,
		short: b.z.short}
	b.Add(prompt, c)
	return c
}

// step is a Step that goes well.
func (b *bench) step() {
	b.t.Helper()
	require.NoError(b.t, b.Step(b.t.Context()))
	require.NoError(b.t, b.Check())
}

// all steps until there is nothing to do.
func (b *bench) all() {
	b.t.Helper()
	for n := 0; b.Busy(); n++ {
		require.Less(b.t, n, 100000, "no end")
		b.step()
	}
}

// close closes and looks for leaks.
func (b *bench) close() {
	b.t.Helper()
	require.NoError(b.t, b.Close(errors.New("closed")))
	require.Equal(b.t, b.pool.Size(), b.pool.Free())
}

// count is n tokens from first on.
func count(first, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = (first + i) % batchtest.Vocab
	}
	return out
}
