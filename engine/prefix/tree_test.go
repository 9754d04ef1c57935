package prefix

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/engine/pages"
	"github.com/stretchr/testify/require"
)

// grow puts pages of tokens behind a cursor until all are there.
func grow(t *testing.T, tree *Tree, c *Cursor, tokens ...int) []uint32 {
	t.Helper()
	var out []uint32
	for ; len(tokens) > 0; tokens = tokens[tree.page:] {
		taken, err := tree.pool.Take(1)
		require.NoError(t, err)
		out = append(out, tree.Put(c, tokens, taken[0]))
		require.NoError(t, tree.Check())
	}
	return out
}

func TestFollowFindsWholePagesOnly(t *testing.T) {
	tree := New(pages.New(10), 2)
	var a, b, c Cursor
	held := grow(t, tree, &a, 1, 2, 3, 4, 5, 6)
	require.Empty(t, tree.Follow(&b, []int{1}))
	require.Equal(t, held[:2], tree.Follow(&b, []int{1, 2, 3, 4, 5})) // splits what a grows
	require.Equal(t, 2, b.Pages())
	require.Equal(t, held[2:], tree.Follow(&b, []int{5, 6, 7}))
	require.True(t, a.Same(&b))
	require.Empty(t, tree.Follow(&c, []int{1, 3}))
	require.NoError(t, tree.Check())
	for _, x := range []*Cursor{&a, &b, &c} {
		tree.Leave(x)
		require.Zero(t, x.Pages())
	}
	all, idle := tree.Pages()
	require.Equal(t, []int{3, 3}, []int{all, idle})
}

// Two that fill a page with the same tokens end with the same page.
func TestAPageThatIsThereAlreadyIsNotKeptTwice(t *testing.T) {
	tree := New(pages.New(10), 2)
	var a, b Cursor
	first := grow(t, tree, &a, 1, 2, 3, 4)
	require.Equal(t, first, grow(t, tree, &b, 1, 2, 3, 4))
	require.True(t, a.Same(&b))
	require.Equal(t, 8, tree.pool.Free())
	other := grow(t, tree, &b, 5, 6)
	require.NotEqual(t, other, grow(t, tree, &a, 5, 7))
	require.False(t, a.Same(&b))
	tree.Leave(&a)
	require.Equal(t, 1, tree.Evict(9), "b still holds the rest")
	tree.Leave(&b)
	require.Equal(t, 3, tree.Evict(9))
	require.NoError(t, tree.pool.Leak())
}

func TestTheLeastRecentlyUsedEndGoesFirst(t *testing.T) {
	pool := pages.New(10)
	tree := New(pool, 1)
	var a, b Cursor
	one := grow(t, tree, &a, 1, 2, 3)
	tree.Leave(&a)
	grow(t, tree, &a, 1, 2, 9)
	tree.Leave(&a)
	require.Zero(t, tree.Evict(0))
	require.Equal(t, 1, tree.Evict(1))
	require.Zero(t, pool.Refs(one[2]), "the older branch")
	require.Equal(t, one[:2], tree.Follow(&b, []int{1, 2, 3}))
	require.Equal(t, 1, tree.Evict(10), "what b does not hold")
	tree.Leave(&b)
	require.Equal(t, 2, tree.Evict(10))
	require.NoError(t, pool.Leak())
}

// Whatever cursors do, a page found for some tokens is the one that was filled with
// them and all before them.
func TestPagesAlwaysHoldTheTokensTheyAreFoundFor(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 2))
		pool := pages.NewShuffled(40, seed)
		page := 1 + r.IntN(3)
		tree := New(pool, page)
		holds := map[uint32]string{}
		cursors := make([]Cursor, 6)
		tokens := make([][]int, len(cursors))
		held := make([][]uint32, len(cursors))
		for range 400 {
			i := r.IntN(len(cursors))
			switch c := &cursors[i]; r.IntN(8) {
			case 0:
				tree.Leave(c)
				tokens[i], held[i] = nil, nil
			case 1:
				tree.Evict(r.IntN(10))
			case 2, 3:
				more := draw(r, 5*page)
				n := tree.Match(c, more)
				found := tree.Follow(c, more)
				require.Len(t, found, n)
				for _, p := range found {
					held[i] = append(held[i], p)
					tokens[i] = append(tokens[i], more[:page]...)
					more = more[page:]
					require.Equal(t, fmt.Sprint(tokens[i]), holds[p])
				}
			default:
				if pool.Free() == 0 {
					tree.Evict(1)
				}
				if own, err := pool.Take(1); err == nil {
					more := draw(r, page)
					tokens[i] = append(tokens[i], more...)
					p := tree.Put(c, more, own[0])
					if p == own[0] {
						holds[p] = fmt.Sprint(tokens[i])
					}
					held[i] = append(held[i], p)
					require.Equal(t, fmt.Sprint(tokens[i]), holds[p])
				}
			}
			require.NoError(t, tree.Check())
			checkHolders(t, tree, cursors, held)
			require.Same(t, oldestOfAll(tree), tree.oldest())
		}
		for i := range cursors {
			tree.Leave(&cursors[i])
		}
		tree.Evict(pool.Size())
		require.NoError(t, pool.Leak())
	}
}

// oldestOfAll is oldest by a look at all nodes.
func oldestOfAll(tree *Tree) (found *node) {
	tree.walk(func(n *node) {
		idle := len(n.children) == 0 && tree.pool.Refs(n.pages[len(n.pages)-1]) == 1
		if idle && (found == nil || n.used < found.used) {
			found = n
		}
	})
	return found
}

// checkHolders wants each page to be held by the cursors above which it is, and by
// the tree.
func checkHolders(t *testing.T, tree *Tree, cursors []Cursor, held [][]uint32) {
	t.Helper()
	count := map[uint32]int{}
	for i := range cursors {
		require.Equal(t, len(held[i]), cursors[i].Pages())
		for _, p := range held[i] {
			count[p]++
		}
	}
	tree.walk(func(n *node) {
		at := 0
		for i := range cursors {
			if cursors[i].at == n {
				at++
				require.Equal(t, n.pages, held[i][len(held[i])-len(n.pages):])
			}
		}
		require.Equal(t, at, n.cursors)
		for _, p := range n.pages {
			require.Equal(t, count[p]+1, tree.pool.Refs(p), "page %d", p)
		}
	})
}

// draw draws n tokens of few kinds, so that many begin alike.
func draw(r *rand.Rand, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = r.IntN(2)
	}
	return slices.Clip(out)
}
