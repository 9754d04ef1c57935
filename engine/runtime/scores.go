package runtime

import (
	"errors"
	"fmt"

	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/tasks/draw"
)

// rowScores are scores of a row that were read, from the token at a position of its sequence on.
type rowScores struct {
	position int
	words    []uint32
}

// scoring reports whether rows of the launch have scores. Its tokens are then handed out when it has ended, with these.
func (s *runner) scoring() bool { return s.modes&draw.ModeScores != 0 }

// logprobs are those of the token that a row chose for a position of its sequence, in a step of the last launch that
// others followed, as many as behind says. It reads those of the steps behind along.
func (s *runner) logprobs(row, position, behind, token int) (sampling.Logprobs, error) {
	if row >= len(s.asked) || s.asked[row].Tops() < 0 || behind < 0 || behind >= draw.ScoredSteps {
		return sampling.Logprobs{},
			fmt.Errorf("log-probabilities of row %d and %d steps before the launch's last, want a row that has them, and less than %d", row, behind, draw.ScoredSteps)
	}
	size := draw.ScoreWords(s.mk.Options.SMs)
	for len(s.scores) <= row {
		s.scores = append(s.scores, rowScores{})
	}
	have := &s.scores[row]
	if at := position - have.position; at < 0 || (at+1)*size > len(have.words) {
		slot := position % draw.ScoredSteps
		words, err := s.readInto(have.words, megakernel.BufferScores, (row*draw.ScoredSteps+slot)*size,
			min(behind+1, draw.ScoredSteps-slot)*size)
		if err != nil {
			have.words = nil
			return sampling.Logprobs{}, err
		}
		*have = rowScores{position, words}
	}
	return sampling.LogprobsOfScores(have.words[(position-have.position)*size:][:size], token, s.asked[row].Tops())
}

// Logprobs are those of the token that the last launch chose last, where SetDraw wanted scores.
func (s *Sequence) Logprobs(token int) (sampling.Logprobs, error) {
	return s.logprobs(0, s.pos, 0, token)
}

// RowLogprobs are those of the token that a row chose in the last step of Launch for a position of its sequence, where
// SetDraws wanted scores.
func (r *Session) RowLogprobs(row, position, token int) (sampling.Logprobs, error) {
	return r.logprobs(row, position, 0, token)
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
			return r.logprobs(0, r.one.pos, 0, token)
		}
		return r.logprobs(row, r.seqs[i].Cached+k+1, 0, token)
	}
	logits := make([]float32, r.mk.Config.Vocab)
	if err := r.TokenLogits(i, k, logits); err != nil {
		return sampling.Logprobs{}, err
	}
	return sampling.LogprobsOf(logits, token, tops)
}

// Logprobs are those of the token that sequence i chose in a step of the last launch; see batch.Stepper.
func (r *Session) Logprobs(i, step, token int) (sampling.Logprobs, error) {
	behind := r.ran - 1 - step
	if r.one != nil {
		return r.logprobs(0, r.one.pos-behind, behind, token)
	}
	s := &r.seqs[i]
	return r.logprobs(r.last[i], s.Cached+s.New+step, behind, token)
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
