package engine

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"testing"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/tasks"
	"github.com/stretchr/testify/require"
)

const (
	fakePage  = 4
	fakeVocab = 50
)

// fake is a session whose next token is a hash of all tokens before it, which it
// keeps where the page table says. Like a GPU it has chosen a few tokens more by the time
// it hears that it should stop.
type fake struct {
	t     *testing.T
	table []uint32
	cells map[[2]uint32]int // page and slot, token
	pos   int
	guard uint32
	ahead int // tokens chosen after each has returned false, at most

	short map[[2]uint32]bool // cells of a short sequence
	now   bool               // the sequence is one
	most  int                // of one, 0: not looked at

	launches, tokens int   // what Stream has done
	fail             error // of the next launch
	silent           bool  // launches choose nothing
	odd              bool  // logits are not numbers
}

func (f *fake) Pos() int { return f.pos }

func (f *fake) Rewind(pos int) error {
	if pos < 0 || pos > f.pos {
		return fmt.Errorf("rewind from %d to %d", f.pos, pos)
	}
	f.pos = pos
	return nil
}

func (f *fake) SetTable(table []uint32) error {
	require.Len(f.t, table, len(f.table))
	copy(f.table, table)
	return nil
}

// feed is one step.
func (f *fake) feed(token int) {
	page := f.table[f.pos/fakePage]
	require.NotEqual(f.t, f.guard, page, "position %d has no page", f.pos)
	at := [2]uint32{page, uint32(f.pos % fakePage)}
	f.cells[at] = token
	if f.short == nil {
		f.short = map[[2]uint32]bool{}
	}
	f.short[at] = f.now
	f.pos++
	f.tokens++
}

// next is what follows the tokens in the cache.
func (f *fake) next() int {
	var tokens []int
	for i := range f.pos {
		at := [2]uint32{f.table[i/fakePage], uint32(i % fakePage)}
		require.Equal(f.t, f.now, f.short[at], "position %d was fed to a sequence of another kind", i)
		tokens = append(tokens, f.cells[at])
	}
	if f.most > 0 {
		require.Equal(f.t, f.pos <= f.most, f.now, "a sequence of %d tokens", f.pos)
	}
	return follows(tokens)
}

func (f *fake) SetShort(short bool) error {
	f.now = short
	return nil
}

// follows is the fake's model.
func follows(tokens []int) int {
	h := fnv.New32a()
	fmt.Fprint(h, tokens)
	return int(h.Sum32() % fakeVocab)
}

func (f *fake) Stream(ctx context.Context, prompt []int, n int, each func(int) bool) (chosen []int, err error) {
	if err := f.fail; err != nil {
		f.fail = nil
		return nil, err
	}
	f.launches++
	f.feed(prompt[0])
	for _, token := range prompt[1:] {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		f.feed(token)
	}
	if f.silent {
		return nil, nil
	}
	ahead := -1
	for len(chosen) < n && ahead != 0 {
		if len(chosen) > 0 {
			f.feed(chosen[len(chosen)-1])
		}
		token := f.next()
		chosen = append(chosen, token)
		switch {
		case ahead > 0:
			ahead--
		case !each(token) || ctx.Err() != nil:
			ahead = f.ahead
		}
	}
	return chosen, ctx.Err()
}

// Logits make the token that follows, and no other, the only one that top-k 1
// keeps; all others are alike.
func (f *fake) Logits(dst []float32) error {
	clear(dst)
	dst[f.next()] = 1
	if f.odd {
		dst[3] = float32(math.NaN())
	}
	return nil
}

// nothing is a device that can only be closed.
type nothing struct {
	runtime.Device
	closed int
}

func (n *nothing) Close() error { n.closed++; return nil }

type noTensors struct{}

func (noTensors) Row(string, int, []uint16) error { return errors.New("none") }

// fakeOptions are options of a fake with a cache of 10 pages.
func fakeOptions() Options {
	return Options{Device: &nothing{}, Weights: runtime.FromTensors(noTensors{}, runtime.LoadOptions{}), KVTokens: 10 * fakePage, PageSeed: 4, TokensPerLaunch: 6, Ends: []int{},
		Kernel: &megakernel.Kernel{Config: models.Config{Vocab: fakeVocab, MaxPositions: 1000, EOS: []int{1}}, KV: tasks.KVLayout{Page: fakePage}}}
}

// newFake is an engine on a fake.
func newFake(t *testing.T, change func(*Options)) (*Engine, *fake) {
	t.Helper()
	o := fakeOptions()
	if change != nil {
		change(&o)
	}
	o, err := o.complete()
	require.NoError(t, err)
	n := (o.KVTokens + fakePage - 1) / fakePage
	f := &fake{t: t, table: make([]uint32, n), cells: map[[2]uint32]int{}, guard: uint32(n), ahead: 3}
	for i := range f.table {
		f.table[i] = f.guard
	}
	return newEngine(o, f), f
}

// wanted is what n tokens after a prompt are.
func wanted(prompt []int, n int) []int {
	all := append([]int(nil), prompt...)
	for range n {
		all = append(all, follows(all))
	}
	return all[len(prompt):]
}
