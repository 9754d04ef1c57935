package pages

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPagesComeInOrderAndTheLastGivenFirst(t *testing.T) {
	p := New(4)
	a, err := p.Take(2)
	require.NoError(t, err)
	require.Equal(t, []uint32{0, 1}, a)
	require.NoError(t, p.Give(a[1:]))
	b, err := p.Take(3)
	require.NoError(t, err)
	require.Equal(t, []uint32{1, 2, 3}, b)
	require.Zero(t, p.Free())
	require.Equal(t, 4, p.Size())
}

func TestShuffledPagesAreAllPagesInAnotherOrder(t *testing.T) {
	a, err := NewShuffled(16, 1).Take(16)
	require.NoError(t, err)
	ascending, err := New(16).Take(16)
	require.NoError(t, err)
	require.ElementsMatch(t, ascending, a)
	require.NotEqual(t, ascending, a)
	again, err := NewShuffled(16, 1).Take(16)
	require.NoError(t, err)
	require.Equal(t, a, again)
}

func TestAskingForMoreThanIsFreeTakesNothing(t *testing.T) {
	p := New(3)
	_, err := p.Take(1)
	require.NoError(t, err)
	_, err = p.Take(3)
	require.EqualError(t, err, "3 KV pages asked for, 2 of 3 are free")
	require.True(t, errors.As(err, new(*ExhaustedError)))
	require.Equal(t, 2, p.Free())
	_, err = p.Take(-1)
	require.EqualError(t, err, "-1 KV pages asked for, want at least 0")
}

func TestWrongPagesGivenBackChangeNothing(t *testing.T) {
	p := New(4)
	_, err := p.Take(2)
	require.NoError(t, err)
	require.EqualError(t, p.Give([]uint32{0, 4}), "KV page 4 given back, the pool has 0 to 3")
	require.EqualError(t, p.Give([]uint32{0, 3}), "KV page 3 given back twice")
	require.EqualError(t, p.Give([]uint32{1, 1}), "KV page 1 given back twice")
	require.Equal(t, 2, p.Free())
	require.NoError(t, p.Give([]uint32{1, 0}))
	require.EqualError(t, p.Give([]uint32{0}), "KV page 0 given back twice")
	require.NoError(t, p.Leak())
}

func TestALeakNamesThePages(t *testing.T) {
	p := New(8)
	a, err := p.Take(5)
	require.NoError(t, err)
	require.NoError(t, p.Give(a[:2]))
	require.EqualError(t, p.Leak(), "3 of 8 KV pages were never given back, the first is page 2")
}

// A page is free when everybody who holds it has given it back.
func TestASharedPageIsFreeWhenTheLastHolderGivesIt(t *testing.T) {
	p := New(4)
	a, err := p.Take(2)
	require.NoError(t, err)
	require.NoError(t, p.Share(a...))
	require.NoError(t, p.Share(1))
	require.Equal(t, []int{2, 3, 0, 0}, []int{p.Refs(0), p.Refs(1), p.Refs(2), p.Refs(9)})
	require.NoError(t, p.Give([]uint32{1, 0, 1}))
	require.Equal(t, 2, p.Free())
	require.EqualError(t, p.Give([]uint32{0, 1, 1}), "KV page 1 given back twice")
	require.Equal(t, []int{1, 1}, []int{p.Refs(0), p.Refs(1)})
	require.EqualError(t, p.Leak(), "2 of 4 KV pages were never given back, the first is page 0")
	require.EqualError(t, p.Share(0, 2), "KV page 2 shared, but nobody holds it")
	require.EqualError(t, p.Share(0, 4), "KV page 4 shared, but nobody holds it")
	require.Equal(t, 1, p.Refs(0))
	require.NoError(t, p.Give([]uint32{0, 1}))
	require.NoError(t, p.Leak())
	again, err := p.Take(4)
	require.NoError(t, err)
	require.Equal(t, []uint32{0, 1, 2, 3}, again)
	require.NoError(t, p.Share(2))
	require.NoError(t, p.Give([]uint32{2, 3, 2}), "twice in one call")
	require.Equal(t, 2, p.Free())
}

// Whatever is taken and given back: no page has two owners, none is lost.
func TestNoPageHasTwoOwners(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	p := NewShuffled(50, 3)
	owner := map[uint32]int{}
	held := make([][]uint32, 7)
	for range 2000 {
		i := random.IntN(len(held))
		if random.IntN(2) == 0 {
			n := random.IntN(12)
			got, err := p.Take(n)
			if n > 50-len(owner) {
				require.Error(t, err)
				continue
			}
			require.NoError(t, err)
			for _, page := range got {
				_, taken := owner[page]
				require.False(t, taken, "page %d", page)
				owner[page] = i
			}
			held[i] = append(held[i], got...)
		} else {
			keep := random.IntN(len(held[i]) + 1)
			require.NoError(t, p.Give(held[i][keep:]))
			for _, page := range held[i][keep:] {
				delete(owner, page)
			}
			held[i] = held[i][:keep]
		}
		require.Equal(t, 50-len(owner), p.Free())
	}
	for _, pages := range held {
		require.NoError(t, p.Give(pages))
	}
	require.NoError(t, p.Leak())
}
