package runtime

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/tasks/draw"
)

// asked is how a row of a launch chooses its token.
type asked struct {
	draw.Rule
	chosen int // tokens of the answer in the device's copy of its history
	first  int // position of the token that the launch chooses first
}

// history names what a copy on the device is of: a draw.History, and the length of its answer; none where nobody knows.
type history struct {
	of     *draw.History
	chosen int
}

// startDraws has every row take its highest logit.
func (s *runner) startDraws() error {
	if !s.mk.Draws() {
		return nil
	}
	s.draws = newMirror(megakernel.BufferDraws, s.mk.Options.Tokens*draw.RowWords)
	s.histories = make([]history, s.mk.Options.Tokens)
	return errors.Join(s.draws.all(s.dev), s.zero(megakernel.BufferTokenMasks, megakernel.BufferMasksReady))
}

// setDraws says how the rows of the next launch draw their tokens; those beyond take their highest logits.
func (s *runner) setDraws(rules ...draw.Rule) error {
	s.modes = 0
	s.asked, s.ran, s.taken = s.asked[:0], 0, nil // the last launch's log-probabilities go with its rows
	for _, r := range rules {
		s.modes |= r.Modes()
		s.asked = append(s.asked, asked{Rule: r})
	}
	if s.modes == 0 {
		return nil
	}
	if !s.mk.Draws() {
		return errors.New("a draw by a kernel without Options.Draws, want one with it, or logits to draw from")
	}
	if err := s.setHistories(); err != nil {
		return err
	}
	if err := s.setMasks(); err != nil {
		return err
	}
	s.draws.encode(func(dst []uint32) {
		clear(dst)
		for i := range s.asked {
			copy(dst[i*draw.RowWords:], s.asked[i].Row[:])
		}
	})
	return s.draws.changed(s.dev)
}

// setHistories gives each row that has a history a copy of it on the device: the one that a launch has left, where
// that is of the same tokens.
func (s *runner) setHistories() error {
	if s.modes&draw.ModeChanges == 0 {
		return nil
	}
	taken, rest := make([]bool, len(s.histories)), []*asked(nil)
	take := func(r *asked, i int) {
		r.Row[draw.RowHistory], r.chosen, taken[i], s.histories[i] = uint32(i), r.History.Chosen(), true, history{}
	}
	for i := range s.asked {
		r := &s.asked[i]
		if r.History == nil {
			continue
		}
		if i := slices.Index(s.histories, history{r.History, r.History.Chosen()}); i >= 0 {
			take(r, i)
		} else {
			rest = append(rest, r)
		}
	}
	for _, r := range rest {
		i := slices.Index(taken, false)
		take(r, i)
		bytes := 4 * draw.HistoryWords(s.mk.Config.Vocab)
		s.encoded = slices.Grow(s.encoded[:0], bytes)[:bytes]
		r.History.Encode(s.encoded)
		if err := s.dev.Write(megakernel.BufferHistories, int64(i)*int64(bytes), s.encoded); err != nil {
			return err
		}
	}
	return nil
}

// drew notes that the last launch has chosen n tokens for each row in ran steps. The kernel has added them to
// histories, which are of no use where it has added more.
func (s *runner) drew(n, ran int) {
	s.ran, s.taken = n, nil
	for i := range s.asked {
		if r := &s.asked[i]; r.History != nil && n == ran {
			r.chosen += n
			s.histories[r.Row[draw.RowHistory]] = history{r.History, r.chosen}
		}
	}
}

// scalar adds what the rows of a launch need to its scalars.
func (s *runner) scalar(scalars map[string]uint64) map[string]uint64 {
	if s.mk.Draws() {
		scalars[megakernel.ScalarDraws] = uint64(s.modes)
	}
	return scalars
}

// SetDraw says how the launches to come choose their tokens; the zero value by the highest logit, as at first. A
// history is taken as it is now; the kernel adds the tokens that it chooses to its copy.
func (s *Sequence) SetDraw(row draw.Rule) error { return s.setDraws(row) }

// SetNextMask has launches of several steps ask for the mask of each step behind the one that chooses the first token,
// when its predecessor's token was handed out; with nil, as at first, SetDraw's mask is that of all steps.
func (s *Sequence) SetNextMask(next func(row int) []uint32) { s.nextMask = next }

// SetDraws says how the rows of Launch choose their tokens; those beyond take their highest logits, as all do at
// first. Each launch takes histories as they are when it begins.
func (r *Session) SetDraws(rows ...draw.Rule) error {
	if len(rows) > r.Rows() {
		return fmt.Errorf("draws of %d rows, a step has %d", len(rows), r.Rows())
	}
	r.rowDraws = slices.Clone(rows)
	return nil
}
