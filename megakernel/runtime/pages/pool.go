// Package pages hands out the pages of a KV cache and takes them back. It knows
// numbers only; what a page holds is its owner's business.
package pages

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Pool is the pages 0 to Size-1, each free or taken by one owner. Not safe for
// concurrent use.
type Pool struct {
	free  []uint32 // the last is handed out next
	taken []bool   // by page
}

// New makes a pool of n free pages (n may be 0), handed out in ascending order
// until some come back.
func New(n int) *Pool {
	p := &Pool{taken: make([]bool, n)}
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

// Size is the number of pages, free or taken.
func (p *Pool) Size() int { return len(p.taken) }

// Free is the number of pages that Take can still hand out.
func (p *Pool) Free() int { return len(p.free) }

// ExhaustedError says that a pool has fewer free pages than were asked for.
type ExhaustedError struct{ Want, Free, Size int }

func (e *ExhaustedError) Error() string {
	return fmt.Sprintf("%d KV pages asked for, %d of %d are free", e.Want, e.Free, e.Size)
}

// Take hands out n pages (n at least 0), or none and an *ExhaustedError. The page
// given back last is handed out first.
func (p *Pool) Take(n int) ([]uint32, error) {
	if n < 0 {
		return nil, fmt.Errorf("%d KV pages asked for, want at least 0", n)
	}
	if n > len(p.free) {
		return nil, &ExhaustedError{n, len(p.free), len(p.taken)}
	}
	rest := len(p.free) - n
	out := slices.Clone(p.free[rest:])
	slices.Reverse(out)
	p.free = p.free[:rest]
	for _, page := range out {
		p.taken[page] = true
	}
	return out, nil
}

// Give takes pages back, all or, with an error, none: a page that the pool does
// not have, and one that is not taken, or is there twice.
func (p *Pool) Give(pages []uint32) error {
	for i, page := range pages {
		switch {
		case int64(page) >= int64(len(p.taken)):
			return fmt.Errorf("KV page %d given back, the pool has 0 to %d", page, len(p.taken)-1)
		case !p.taken[page] || slices.Contains(pages[:i], page):
			return fmt.Errorf("KV page %d given back twice", page)
		}
	}
	for _, page := range slices.Backward(pages) {
		p.taken[page] = false
		p.free = append(p.free, page)
	}
	return nil
}

// Leak is an error while pages are taken: it names their number and the first of
// them. An owner that has ended calls it.
func (p *Pool) Leak() error {
	if n := len(p.taken) - len(p.free); n > 0 {
		return fmt.Errorf("%d of %d KV pages were never given back, the first is page %d", n, len(p.taken), slices.Index(p.taken, true))
	}
	return nil
}
