package kv

import (
	"fmt"
	"math/bits"
)

// MaxPageSize is the most tokens of a page.
const MaxPageSize = 1024

// Rows is a block-sparse matrix in FlashInfer's form, a row a sequence: row i's
// pages are Indices[Indptr[i]:Indptr[i+1]], in the order of their tokens, all full
// but the last one, which holds LastPageLen[i] tokens. A row without pages is empty
// and has LastPageLen 0. Pages may be in any order and in several rows.
type Rows struct {
	PageSize    int      // tokens of a page, a power of two up to MaxPageSize
	Indptr      []int    // one more than there are rows, from 0 on, not decreasing
	Indices     []uint32 // page numbers
	LastPageLen []int    // 1 to PageSize, or 0 for an empty row
}

// Count is the number of rows.
func (r *Rows) Count() int { return len(r.LastPageLen) }

// Len is the number of tokens of row i, 0 for an empty one.
func (r *Rows) Len(i int) int {
	pages := r.Indptr[i+1] - r.Indptr[i]
	if pages == 0 {
		return 0
	}
	return (pages-1)*r.PageSize + r.LastPageLen[i]
}

// Pages is row i's page list, a part of Indices.
func (r *Rows) Pages(i int) []uint32 { return r.Indices[r.Indptr[i]:r.Indptr[i+1]] }

// Sequence is row i as a step sees it whose last n tokens are new, n from 0 to
// Len(i): FlashInfer counts a step's own tokens into the length, Sequence does not.
func (r *Rows) Sequence(i, n int) (Sequence, error) {
	if l := r.Len(i); n < 0 || n > l {
		return Sequence{}, fmt.Errorf("kv: row %d: %d new tokens of %d, want 0 to %d", i, n, l, l)
	}
	return Sequence{Pages: r.Pages(i), Cached: r.Len(i) - n, New: n}, nil
}

// Request is what a planner is asked for one step of all rows: of row i the last fresh[i]
// tokens are new, and those of rows without a new one take no part. What else a request
// has is the caller's to set. Errors are Sequence's, and as many numbers as rows.
func (r *Rows) Request(fresh []int) (q Request, err error) {
	if len(fresh) != r.Count() {
		return q, fmt.Errorf("kv: new tokens of %d rows, there are %d", len(fresh), r.Count())
	}
	for i, n := range fresh {
		s, err := r.Sequence(i, n)
		if err != nil {
			return q, err
		}
		q.Sequences = append(q.Sequences, s)
	}
	return q, nil
}

// Check says what is wrong with r in a cache of n pages, or nil: the page size,
// the lengths of the slices, where Indptr starts, ends or decreases, a last page that
// is empty or holds more than a page, a page that is none of the cache's.
func (r *Rows) Check(pages int) error {
	if err := checkPageSize(r.PageSize); err != nil {
		return err
	}
	n := len(r.LastPageLen)
	if len(r.Indptr) != n+1 {
		return fmt.Errorf("kv: %d last page lengths and %d words of indptr, want %d", n, len(r.Indptr), n+1)
	}
	if r.Indptr[0] != 0 {
		return fmt.Errorf("kv: indptr starts at %d, want 0", r.Indptr[0])
	}
	for i := range n {
		if err := r.checkRow(i); err != nil {
			return err
		}
	}
	if r.Indptr[n] != len(r.Indices) {
		return fmt.Errorf("kv: indptr ends at %d, there are %d page numbers", r.Indptr[n], len(r.Indices))
	}
	for i := range n {
		for j, p := range r.Pages(i) {
			if int64(p) >= int64(pages) {
				return fmt.Errorf("kv: row %d: page %d of it is %d, the cache has %d", i, j, p, pages)
			}
		}
	}
	return nil
}

func (r *Rows) checkRow(i int) error {
	from, to, last := r.Indptr[i], r.Indptr[i+1], r.LastPageLen[i]
	switch {
	case to < from:
		return fmt.Errorf("kv: row %d: indptr decreases from %d to %d", i, from, to)
	case to == from && last != 0:
		return fmt.Errorf("kv: row %d: no pages, but a last page of %d tokens, want 0", i, last)
	case to > from && (last < 1 || last > r.PageSize):
		return fmt.Errorf("kv: row %d: last page of %d tokens, want 1 to %d", i, last, r.PageSize)
	}
	return nil
}

func checkPageSize(n int) error {
	if n < 1 || n > MaxPageSize || bits.OnesCount(uint(n)) != 1 {
		return fmt.Errorf("kv: page size %d, want a power of two up to %d", n, MaxPageSize)
	}
	return nil
}

// ceilDiv is a ÷ b rounded up, of any a and any b of at least 1.
func ceilDiv(a, b int) int {
	q := a / b
	if q*b < a {
		q++
	}
	return q
}
