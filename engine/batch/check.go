package batch

import (
	"errors"
	"fmt"
	"slices"
)

// Check is an error when the books do not agree: every page is free, or held by
// exactly those who say so, and the order of jobs is kept. It holds between calls,
// looks at every page and is for tests.
func (s *Scheduler) Check() error {
	errs := []error{s.tree.Check()}
	holders := make([]int, s.pool.Size())
	shared, all := 0, 0
	for i, j := range slices.Concat(s.running, s.queue) {
		if i > 0 && i != len(s.running) && j.id <= slices.Concat(s.running, s.queue)[i-1].id {
			errs = append(errs, fmt.Errorf("job %d comes before job %d", slices.Concat(s.running, s.queue)[i-1].id, j.id))
		}
		errs = append(errs, s.checkJob(j, i >= len(s.running)))
		for k, p := range j.pages {
			holders[p]++
			if k >= j.cursor.Pages() {
				all++
			}
		}
	}
	for p, n := range holders {
		refs := s.pool.Refs(uint32(p))
		if refs != n && refs != n+1 { // the tree's own
			errs = append(errs, fmt.Errorf("page %d is held %d times, by %d jobs", p, refs, n))
		}
		shared += refs - n
	}
	inTree, _ := s.tree.Pages()
	if shared != inTree || inTree+all+s.pool.Free() != s.pool.Size() {
		errs = append(errs, fmt.Errorf("%d pages in the tree, which holds %d, %d of jobs alone, %d free: want %d together",
			inTree, shared, all, s.pool.Free(), s.pool.Size()))
	}
	return errors.Join(errs...)
}

func (s *Scheduler) checkJob(j *job, queued bool) error {
	switch whole := j.cached / s.o.Page; {
	case queued && (len(j.pages) > 0 || j.cached > 0):
		return fmt.Errorf("job %d is queued with %d pages", j.id, len(j.pages))
	case j.short && j.cached > s.o.Short:
		return fmt.Errorf("job %d is short, with %d tokens cached of %d", j.id, j.cached, s.o.Short)
	case j.piece > 0 && !j.halved && !j.begins(j.cached):
		return fmt.Errorf("job %d has %d tokens cached and %d of prompt: that is inside a piece", j.id, j.cached, j.prompt)
	case j.cached >= len(j.tokens):
		return fmt.Errorf("job %d has %d tokens, %d of them cached", j.id, len(j.tokens), j.cached)
	case len(j.pages) != s.pagesOf(j.cached) || j.cursor.Pages() != whole:
		return fmt.Errorf("job %d has %d tokens cached in %d pages of %d, %d of them in the tree", j.id, j.cached,
			len(j.pages), s.o.Page, j.cursor.Pages())
	}
	return nil
}
