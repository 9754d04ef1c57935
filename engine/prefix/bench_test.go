package prefix

import (
	"testing"

	"github.com/mkgen/mkgen/engine/pages"
	"github.com/stretchr/testify/require"
)

// What giving up one of 3000 sequences of a page takes, and remembering another one.
func BenchmarkEvictionFromManySequences(b *testing.B) {
	const sequences, page = 3000, 16
	pool := pages.New(sequences)
	tree := New(pool, page)
	next := 0
	add := func() {
		taken, err := pool.Take(1)
		require.NoError(b, err)
		tokens := make([]int, page)
		tokens[0] = next
		next++
		var c Cursor
		tree.Put(&c, tokens, taken[0])
		tree.Leave(&c)
	}
	for range sequences {
		add()
	}
	for b.Loop() {
		require.Equal(b, 1, tree.Evict(1))
		add()
	}
}
