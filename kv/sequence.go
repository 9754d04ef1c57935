package kv

import (
	"fmt"
	"math/bits"
)

// maxTokens bounds every position, so that sums of two fit into a word.
const maxTokens = 1 << 30

// Sequence is what one sequence brings to a step: n tokens in the cache and
// some new ones, the step's query rows. New keys and values are written behind the
// cached ones, into pages that no other sequence may have.
type Sequence struct {
	Pages  []uint32 // in the order of their tokens; enough for the last step's tokens, more are ignored
	Cached int      // tokens in the cache before the step, from position 0 on
	New    int      // query rows, 0 to MaxRows; 0: the sequence takes no part

	Tokens []uint32 // the new tokens, or nil for zeros
	Masks  []uint32 // of every new token the first word of its custom mask, or nil for zeros

	// Parents makes the new tokens a draft tree: token i follows token Parents[i],
	// an earlier one, or the cached ones when it is -1; it attends to its ancestors and
	// itself, and its position is Cached + its depth. nil: each follows the one before.
	Parents []int

	// Select has for every KV head the cached pages that it attends to: indices
	// into Pages, increasing, of full pages. The page that is being filled is always
	// attended to and not listed. nil: all pages.
	Select [][]int

	Grow bool // decoding: in every later step of the launch one more token is cached; New is 1
}

// check looks at everything but page numbers. Steps is the launch's.
func (s *Sequence) check(l *Limits, steps int) error {
	if s.New < 0 || s.New > MaxRows || s.Cached < 0 || s.Cached > maxTokens {
		return fmt.Errorf("%d cached and %d new tokens, want 0 to %d and 0 to %d", s.Cached, s.New, maxTokens, MaxRows)
	}
	if s.New == 0 {
		return nil
	}
	if (s.Grow || steps > 1) && s.New != 1 {
		return fmt.Errorf("%d new tokens of a sequence that grows in a launch of %d steps, want 1", s.New, steps)
	}
	if steps > 1 && !s.Grow {
		return fmt.Errorf("does not grow in a launch of %d steps; want Grow, or 1 step", steps)
	}
	if want := s.pages(l.PageSize, steps); len(s.Pages) < want {
		return fmt.Errorf("%d pages of %d tokens for %d cached and %d new ones, %d after the first step; want %d pages",
			len(s.Pages), l.PageSize, s.Cached, s.New, steps-1, want)
	}
	if err := s.checkTree(); err != nil {
		return err
	}
	for _, list := range []struct {
		name string
		n    int
	}{{"tokens", len(s.Tokens)}, {"masks", len(s.Masks)}} {
		if list.n != 0 && list.n != s.New {
			return fmt.Errorf("%d %s for %d new tokens, want as many or none", list.n, list.name, s.New)
		}
	}
	return s.checkSelect(l)
}

func (s *Sequence) checkTree() error {
	if s.Parents == nil {
		return nil
	}
	if len(s.Parents) != s.New {
		return fmt.Errorf("%d parents for %d new tokens, want as many or none", len(s.Parents), s.New)
	}
	for i, p := range s.Parents {
		if p < -1 || p >= i {
			return fmt.Errorf("new token %d has parent %d, want -1 to %d", i, p, i-1)
		}
	}
	return nil
}

func (s *Sequence) checkSelect(l *Limits) error {
	if s.Select == nil {
		return nil
	}
	if !l.Selection {
		return fmt.Errorf("selects pages, but the kernel is built without selection")
	}
	if len(s.Select) != l.KVHeads {
		return fmt.Errorf("selects pages for %d KV heads, there are %d", len(s.Select), l.KVHeads)
	}
	full := s.Cached / l.PageSize
	for h, list := range s.Select {
		last, rises := -1, true
		for _, p := range list {
			rises = rises && p > last
			last = p
		}
		if rises && last < full {
			continue
		}
		for i, p := range list {
			if p < 0 || p >= full {
				return fmt.Errorf("KV head %d selects page %d, want one of its %d full pages", h, p, full)
			}
			if i > 0 && list[i-1] >= p {
				return fmt.Errorf("KV head %d selects page %d after page %d, want increasing ones", h, p, list[i-1])
			}
		}
	}
	return nil
}

// pages is how many pages the tokens of the launch's last step need.
func (s *Sequence) pages(page, steps int) int { return ceilDiv(s.Cached+s.New+steps-1, page) }

// encodeRows writes the rows of s, the first of which is row first: its keys and
// values go to index on in the unit whose page entries start at entries.
func (s *Sequence) encodeRows(dst []uint32, first, entries, index int) {
	for i := range s.New {
		w := dst[(first+i)*RowWords:][:RowWords]
		tail := uint32(1)<<(i+1) - 1
		if s.Parents != nil {
			tail = 1 << i
			if p := s.Parents[i]; p >= 0 {
				tail |= dst[(first+p)*RowWords+RowTail]
			}
		}
		clear(w)
		if s.Tokens != nil {
			w[RowToken] = s.Tokens[i]
		}
		if s.Masks != nil {
			w[RowMask] = s.Masks[i]
		}
		w[RowPosition] = uint32(s.Cached + bits.OnesCount32(tail) - 1)
		w[RowEntries] = uint32(entries)
		w[RowIndex] = uint32(index + i)
		w[RowTail] = tail
		w[RowFirst] = uint32(first)
	}
}
