package runtime

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/tasks/draw"
)

// startDraws has every row take its highest logit.
func (s *runner) startDraws() error {
	if !s.mk.Draws() {
		return nil
	}
	s.draws = newMirror(megakernel.BufferDraws, s.mk.Options.Tokens*draw.RowWords)
	return s.draws.all(s.dev)
}

// setDraws says how the rows of the launches to come draw their tokens; those beyond take their highest logits.
func (s *runner) setDraws(rows ...draw.Row) error {
	s.modes = 0
	s.asked = append(s.asked[:0], rows...)
	clear(s.scores)
	for i := range rows {
		s.modes |= rows[i].Modes()
	}
	if s.modes == 0 {
		return nil
	}
	if !s.mk.Draws() {
		return errors.New("a draw by a kernel without Options.Draws, want one with it, or logits to draw from")
	}
	s.draws.encode(func(dst []uint32) {
		clear(dst)
		for i := range rows {
			copy(dst[i*draw.RowWords:], rows[i][:])
		}
	})
	return s.draws.changed(s.dev)
}

// scalar adds what the rows of a launch need to its scalars.
func (s *runner) scalar(scalars map[string]uint64) map[string]uint64 {
	if s.mk.Draws() {
		scalars[megakernel.ScalarDraws] = uint64(s.modes)
	}
	return scalars
}

// SetDraw says how the launches to come choose their tokens; the zero value by the highest logit, as at first.
func (s *Sequence) SetDraw(row draw.Row) error { return s.setDraws(row) }

// SetDraws says how the rows of Launch choose their tokens; those beyond take their highest logits, as all do at first.
func (r *Session) SetDraws(rows ...draw.Row) error {
	if len(rows) > r.Rows() {
		return fmt.Errorf("draws of %d rows, a step has %d", len(rows), r.Rows())
	}
	r.rowDraws = slices.Clone(rows)
	return nil
}
