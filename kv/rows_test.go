package kv

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRowsHaveTheLengthsTheyWereMadeOf(t *testing.T) {
	lengths := []int{0, 1, 15, 16, 17, 32, 1000}
	for _, page := range []int{1, 8, 16, 32, 64, 128, 1024} {
		pages := make([][]uint32, len(lengths))
		for i := range pages {
			for j := range 1000 {
				pages[i] = append(pages[i], uint32((j*7+i)%1000))
			}
		}
		r := newRows(page, pages, lengths)
		require.NoError(t, r.Check(1000))
		require.Equal(t, len(lengths), r.Count())
		for i, n := range lengths {
			require.Equal(t, n, r.Len(i), "page size %d", page)
			require.Equal(t, pages[i][:ceilDiv(n, page)], append([]uint32{}, r.Pages(i)...))
		}
	}
}

// newRows are rows whose tokens lie in pages[i], lengths[i] of them; what a list has beyond those is left out.
func newRows(pageSize int, pages [][]uint32, lengths []int) *Rows {
	r := &Rows{PageSize: pageSize, Indptr: []int{0}}
	for i, n := range lengths {
		used := ceilDiv(n, pageSize)
		r.Indices = append(r.Indices, pages[i][:used]...)
		r.Indptr = append(r.Indptr, len(r.Indices))
		r.LastPageLen = append(r.LastPageLen, n-max(0, used-1)*pageSize)
	}
	return r
}

func TestCheckOfRowsSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		want string
		r    Rows
	}{
		{"kv: page size 0, want a power of two up to 1024", Rows{Indptr: []int{0}}},
		{"kv: page size 2048, want a power of two up to 1024", Rows{PageSize: 2048, Indptr: []int{0}}},
		{"kv: 1 last page lengths and 1 words of indptr, want 2", Rows{PageSize: 8, Indptr: []int{0}, LastPageLen: []int{0}}},
		{"kv: indptr starts at 1, want 0", Rows{PageSize: 8, Indptr: []int{1, 2}, Indices: []uint32{0, 0},
			LastPageLen: []int{1}}},
		{"kv: row 1: indptr decreases from 2 to 1", Rows{PageSize: 8, Indptr: []int{0, 2, 1}, Indices: []uint32{0, 1},
			LastPageLen: []int{1, 1}}},
		{"kv: row 0: last page of 0 tokens, want 1 to 8", Rows{PageSize: 8, Indptr: []int{0, 1}, Indices: []uint32{0},
			LastPageLen: []int{0}}},
		{"kv: row 0: last page of 9 tokens, want 1 to 8", Rows{PageSize: 8, Indptr: []int{0, 1}, Indices: []uint32{0},
			LastPageLen: []int{9}}},
		{"kv: row 0: no pages, but a last page of 3 tokens, want 0",
			Rows{PageSize: 8, Indptr: []int{0, 0}, LastPageLen: []int{3}}},
		{"kv: indptr ends at 1, there are 2 page numbers", Rows{PageSize: 8, Indptr: []int{0, 1}, Indices: []uint32{0, 1},
			LastPageLen: []int{3}}},
		{"kv: row 0: page 1 of it is 5, the cache has 5", Rows{PageSize: 8, Indptr: []int{0, 2}, Indices: []uint32{4, 5},
			LastPageLen: []int{3}}},
	} {
		require.EqualError(t, c.r.Check(5), c.want)
	}
}

func TestRowsCountTheStepsTokensSequencesDoNot(t *testing.T) {
	r := newRows(16, [][]uint32{{3, 1, 2}}, []int{40})
	s, err := r.Sequence(0, 4)
	require.NoError(t, err)
	require.Equal(t, Sequence{Pages: []uint32{3, 1, 2}, Cached: 36, New: 4}, s)
	_, err = r.Sequence(0, 41)
	require.EqualError(t, err, "kv: row 0: 41 new tokens of 40, want 0 to 40")
}

// Block-sparse rows are a door to the planner: what it plans meets every token of them.
func TestRowsArePlanned(t *testing.T) {
	for _, page := range []int{1, 16, 128} {
		var pages [][]uint32
		var lengths, fresh []int
		next := uint32(0)
		for i, n := range []int{0, 1, page, page + 1, 777} {
			var list []uint32
			for range ceilDiv(n, page) {
				list = append(list, next)
				next++
			}
			pages, lengths, fresh = append(pages, list), append(lengths, n), append(fresh, min(n, i))
		}
		rows := newRows(page, pages, lengths)
		r, err := rows.Request(fresh)
		require.NoError(t, err)
		l := h200()
		l.PageSize = page
		p := plan(t, l, r) // checked
		require.Equal(t, 0+1+min(page, 2)+min(page+1, 3)+4, p.RowCount)
		for i, s := range r.Sequences {
			require.Equal(t, lengths[i], s.Cached+s.New)
		}
		_, err = rows.Request(fresh[1:])
		require.EqualError(t, err, "kv: new tokens of 4 rows, there are 5")
		fresh[0] = 1
		_, err = rows.Request(fresh)
		require.EqualError(t, err, "kv: row 0: 1 new tokens of 0, want 0 to 0")
	}
}
