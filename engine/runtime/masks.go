package runtime

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/tasks/draw"
)

// Masks of a launch of several steps. Those of its first step are there when it begins. When the host has handed a
// step's tokens out it writes the masks of the next step, and then how many steps have theirs. The kernel, which
// computes the next step's layers meanwhile, waits for that number behind the LM head.
//
// When the launch is to end the host says that all masks are there. What the kernel chooses from then on is of no use.

// masks are those of the rows of a launch.
type masks struct {
	next  func(row int) []uint32 // a row's for the next step; nil: those of the first step are of all
	given int                    // with next: steps of the launch whose masks are there
}

// steps is how many of the first n steps had masks of their own.
func (m *masks) steps(n int) int {
	if m.next == nil {
		return n
	}
	return min(n, m.given)
}

// maskSteps tells the next launch where its masks come from. The first of its steps have theirs already; next gives
// those of the others. With nil, those of the first step hold for all.
func (s *runner) maskSteps(first, steps int, next func(row int) []uint32) error {
	s.masks = masks{}
	if s.modes&draw.ModeMasks == 0 {
		return nil
	}
	ready := uint32(megakernel.AllMasks)
	if next != nil && first < steps {
		s.masks, ready = masks{next: next, given: first}, uint32(first)
	}
	return writeAhead(s.dev, megakernel.BufferMasksReady, 0, words([]uint32{ready}))
}

// setMasks writes the masks of rows that have one, of the first step that chooses.
func (s *runner) setMasks() error {
	return s.eachMask(func(row int) []uint32 { return s.asked[row].Mask }, func(at int, masks []uint32) error {
		return writeAhead(s.dev, megakernel.BufferTokenMasks, 4*int64(at), words(masks))
	})
}

// nextMasks gives a running launch the masks of its next step.
func (s *runner) nextMasks() error {
	if s.masks.next == nil {
		return nil
	}
	err := s.eachMask(s.masks.next, func(at int, masks []uint32) error {
		return s.dev.Poke(megakernel.BufferTokenMasks, at, masks...)
	})
	if err != nil {
		return errors.Join(err, s.tellToStop())
	}
	s.masks.given++
	return s.dev.Poke(megakernel.BufferMasksReady, 0, uint32(s.masks.given))
}

// eachMask asks for the mask that each row with one has now, of several rows at a time, and writes those of neighbours
// together.
func (s *runner) eachMask(of func(row int) []uint32, write func(at int, masks []uint32) error) error {
	n := draw.MaskWords(s.mk.Config.Vocab)
	var rows []int
	for i := range s.asked {
		if s.asked[i].Modes()&draw.ModeMasks != 0 {
			rows = append(rows, i)
		}
	}
	s.maskWords = slices.Grow(s.maskWords[:0], n*len(rows))[:n*len(rows)]
	all := s.maskWords
	errs := make([]error, len(rows))
	ask := func(k int) {
		mask := of(rows[k])
		if len(mask) != n {
			errs[k] = fmt.Errorf("row %d: a mask of %d words, want %d", rows[k], len(mask), n)
		}
		copy(all[k*n:(k+1)*n], mask)
	}
	var asked sync.WaitGroup
	for k := range rows[min(1, len(rows)):] {
		asked.Go(func() { ask(k + 1) })
	}
	if len(rows) > 0 {
		ask(0)
	}
	asked.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for from := 0; from < len(rows); {
		end := from + 1
		for end < len(rows) && rows[end] == rows[end-1]+1 {
			end++
		}
		if err := write(rows[from]*n, all[from*n:end*n]); err != nil {
			return err
		}
		from = end
	}
	return nil
}

// tellToStop has the running launch end soon, whatever it waits for from the host.
func (s *runner) tellToStop() error {
	s.stopped = true
	err := s.dev.Poke("stop", 0, 1)
	if s.masks.next != nil {
		err = errors.Join(err, s.dev.Poke(megakernel.BufferMasksReady, 0, megakernel.AllMasks))
	}
	return err
}
