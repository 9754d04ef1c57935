package runtime

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/tasks/draw"
)

// ranks are log-probabilities of the tokens that a row chose in a launch, from its first one on; the tokens themselves
// are left out. Where a step's scores cannot be there is an error.
type ranks struct {
	of   []sampling.Logprobs
	errs []error
}

// scoring reports whether rows of the launch have scores. Its tokens are then handed out when it has ended, with these.
func (s *runner) scoring() bool { return s.modes&draw.ModeScores != 0 }

// logprobs are those of the token that a row chose for a position of its sequence in the last launch, one of the last
// draw.ScoredSteps. The first call behind a launch makes those of all its rows and steps.
func (s *runner) logprobs(row, position, token int) (sampling.Logprobs, error) {
	if row < 0 || row >= len(s.asked) || s.asked[row].Tops() < 0 {
		return sampling.Logprobs{}, fmt.Errorf("log-probabilities of row %d, which has none in the last launch", row)
	}
	if s.ran == 0 {
		return sampling.Logprobs{}, fmt.Errorf("log-probabilities of row %d before a launch has chosen a token", row)
	}
	first := s.asked[row].first + max(0, s.ran-draw.ScoredSteps)
	if end := s.asked[row].first + s.ran; position < first || position >= end {
		return sampling.Logprobs{}, fmt.Errorf("log-probabilities of row %d at position %d, want %d to %d", row, position,
			first, end-1)
	}
	if len(s.ranks) == 0 {
		if err := s.rank(); err != nil {
			return sampling.Logprobs{}, err
		}
	}
	of := &s.ranks[row]
	l := of.of[position-first]
	l.Token = token
	return l, of.errs[position-first]
}

// rank reads the scores of the last launch, all at once, and makes log-probabilities of them, of several rows at a
// time.
func (s *runner) rank() error {
	size, from, end := draw.ScoredSteps*draw.ScoreWords(s.mk.Options.SMs), len(s.asked), 0
	for i := range s.asked {
		if s.asked[i].Tops() >= 0 {
			from, end = min(from, i), i+1
		}
	}
	s.raw = slices.Grow(s.raw[:0], 4*size*(end-from))[:4*size*(end-from)]
	if err := s.dev.Read(megakernel.BufferScores, 4*int64(size)*int64(from), s.raw); err != nil {
		return err
	}
	s.ranks = slices.Grow(s.ranks, len(s.asked))[:len(s.asked)]
	var ranked sync.WaitGroup
	for i := from; i < end; i++ {
		if s.asked[i].Tops() >= 0 {
			ranked.Go(func() { s.ranks[i] = s.rankRow(&s.asked[i], s.raw[4*size*(i-from):][:4*size]) })
		}
	}
	ranked.Wait()
	return nil
}

// rankRow makes log-probabilities of a row's scores of all steps that are kept.
func (s *runner) rankRow(r *asked, raw []byte) (all ranks) {
	n := min(s.ran, draw.ScoredSteps)
	words := make([]uint32, draw.ScoreWords(s.mk.Options.SMs))
	for position := r.first + s.ran - n; position < r.first+s.ran; position++ {
		at := raw[4*len(words)*(position%draw.ScoredSteps):]
		for i := range words {
			words[i] = binary.LittleEndian.Uint32(at[4*i:])
		}
		l, err := sampling.LogprobsOfScores(words, 0, r.Tops())
		all.of, all.errs = append(all.of, l), append(all.errs, err)
	}
	return all
}

// Logprobs are those of the token that the last launch chose last, where SetDraw wanted scores.
func (s *Sequence) Logprobs(token int) (sampling.Logprobs, error) {
	return s.logprobs(0, s.pos, token)
}

// RowLogprobs are those of the token that a row chose in the last step of Launch for a position of its sequence, where
// SetDraws wanted scores.
func (r *Session) RowLogprobs(row, position, token int) (sampling.Logprobs, error) {
	return r.logprobs(row, position, token)
}

// TokenLogprobs are those of the token that Scored named for new token k of sequence i; see batch.Stepper.
func (r *Session) TokenLogprobs(i, k, token, tops int) (sampling.Logprobs, error) {
	row := 0
	switch {
	case r.one != nil && (i != 0 || k != 0):
		return sampling.Logprobs{}, fmt.Errorf("log-probabilities behind new token %d of sequence %d, want the only one", k,
			i)
	case r.one == nil:
		var err error
		if row, err = r.rowOf(i, k); err != nil {
			return sampling.Logprobs{}, err
		}
	}
	if r.mk.Draws() {
		if r.one != nil {
			return r.logprobs(0, r.one.pos, token)
		}
		return r.logprobs(row, r.seqs[i].Cached+k+1, token)
	}
	logits := make([]float32, r.mk.Config.Vocab)
	if err := r.TokenLogits(i, k, logits); err != nil {
		return sampling.Logprobs{}, err
	}
	return sampling.LogprobsOf(logits, token, tops)
}

// Logprobs are those of the token that sequence i chose in a step of the last launch; see batch.Stepper.
func (r *Session) Logprobs(i, step, token int) (sampling.Logprobs, error) {
	if r.one != nil {
		return r.logprobs(0, r.one.pos-(r.ran-1-step), token)
	}
	s := &r.seqs[i]
	return r.logprobs(r.last[i], s.Cached+s.New+step, token)
}

// TokenLogprobs are those of the token that Scored named for new token k of sequence i; see batch.Stepper.
func (b *Bundle) TokenLogprobs(i, k, token, tops int) (sampling.Logprobs, error) {
	if b.last == nil {
		return sampling.Logprobs{}, errors.New("log-probabilities of a prompt's tokens that no launch of rows has fed")
	}
	return b.last.TokenLogprobs(i, k, token, tops)
}

// Logprobs are those of the token that sequence i chose in a step of the last launch; see batch.Stepper.
func (b *Bundle) Logprobs(i, step, token int) (sampling.Logprobs, error) {
	switch {
	case b.last != nil:
		return b.last.Logprobs(i, step, token)
	case b.prompt == nil:
		return sampling.Logprobs{}, errors.New("log-probabilities before the first launch")
	}
	if err := b.readPrompt(i); err != nil {
		return sampling.Logprobs{}, err
	}
	return sampling.LogprobsOf(b.logits, token, b.asked[i].Tops())
}
