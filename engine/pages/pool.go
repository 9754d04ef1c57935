// Package pages hands out the pages of a KV cache and takes them back. It knows
// numbers only; what a page holds is its owner's business.
package pages

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Pool is the pages 0 to Size-1, each free or held by one or several owners: it
// counts how often a page is held, not by whom. Not safe for concurrent use.
type Pool struct {
	free []uint32 // the last is handed out next
	refs []int32  // by page: how often it is held
}

// New makes a pool of n free pages (n may be 0), handed out in ascending order
// until some come back.
func New(n int) *Pool {
	p := &Pool{refs: make([]int32, n)}
	for i := range n {
		p.free = append(p.free, uint32(n-1-i))
	}
	return p
}

// NewShuffled is New with an order drawn from seed, so that a test sees what
// depends on the order.
func NewShuffled(n int, seed uint64) *Pool {
	p := New(n)
	rand.New(rand.NewPCG(seed, 0x7061676573)).Shuffle(n, func(i, j int) { p.free[i], p.free[j] = p.free[j], p.free[i] })
	return p
}

// Size is the number of pages, free or held.
func (p *Pool) Size() int { return len(p.refs) }

// Free is the number of pages that Take can still hand out.
func (p *Pool) Free() int { return len(p.free) }

// ExhaustedError says that a pool has fewer free pages than were asked for.
type ExhaustedError struct{ Want, Free, Size int }

func (e *ExhaustedError) Error() string {
	return fmt.Sprintf("%d KV pages asked for, %d of %d are free", e.Want, e.Free, e.Size)
}

// Take hands out n pages (n at least 0), or none and an *ExhaustedError. The page
// that became free last is handed out first.
func (p *Pool) Take(n int) ([]uint32, error) {
	if n < 0 {
		return nil, fmt.Errorf("%d KV pages asked for, want at least 0", n)
	}
	if n > len(p.free) {
		return nil, &ExhaustedError{n, len(p.free), len(p.refs)}
	}
	rest := len(p.free) - n
	out := slices.Clone(p.free[rest:])
	slices.Reverse(out)
	p.free = p.free[:rest]
	for _, page := range out {
		p.refs[page] = 1
	}
	return out, nil
}

// Refs is how often a page is held: 0 when it is free, or not one of the pool's.
func (p *Pool) Refs(page uint32) int {
	if int64(page) >= int64(len(p.refs)) {
		return 0
	}
	return int(p.refs[page])
}

// Share makes pages that are held be held once more, all or, with an error, none:
// a page that is free, or not one of the pool's. Each Share asks for one Give more.
func (p *Pool) Share(pages ...uint32) error {
	for _, page := range pages {
		if p.Refs(page) == 0 {
			return fmt.Errorf("KV page %d shared, but nobody holds it", page)
		}
	}
	for _, page := range pages {
		p.refs[page]++
	}
	return nil
}

// Give takes pages back, all or, with an error, none: a page that the pool does
// not have, and one that is given back more often than it is held. A page that
// nobody holds any more is free.
func (p *Pool) Give(pages []uint32) error {
	for i, page := range pages {
		if p.Refs(page) > 0 {
			p.refs[page]--
			continue
		}
		for _, done := range pages[:i] {
			p.refs[done]++
		}
		if int64(page) >= int64(len(p.refs)) {
			return fmt.Errorf("KV page %d given back, the pool has 0 to %d", page, len(p.refs)-1)
		}
		return fmt.Errorf("KV page %d given back twice", page)
	}
	before := len(p.free)
	for _, page := range slices.Backward(pages) {
		if p.refs[page] == 0 {
			p.refs[page] = -1 // listed, should the page be there twice
			p.free = append(p.free, page)
		}
	}
	for _, page := range p.free[before:] {
		p.refs[page] = 0
	}
	return nil
}

// Leak is an error while pages are held: it names their number and the first of
// them. An owner that has ended calls it.
func (p *Pool) Leak() error {
	if n := len(p.refs) - len(p.free); n > 0 {
		first := slices.IndexFunc(p.refs, func(n int32) bool { return n > 0 })
		return fmt.Errorf("%d of %d KV pages were never given back, the first is page %d", n, len(p.refs), first)
	}
	return nil
}
