package runtime

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/tasks/draw"
)

// scores are what a launch has left of the tokens that its rows chose, of the last draw.ScoredSteps steps. They stay
// when the next launch runs, until scores are taken again.
type scores struct {
	asked []asked
	ran   int      // steps that chose a token
	first int      // row that those of raw begin with
	words []uint32 // memory of a token's

	raw func() ([]byte, error) // waits for them; nil where no row has scores
}

// takeScores begins to read the scores of the last launch from the device, once.
func (s *runner) takeScores() (*scores, error) {
	if s.taken != nil {
		return s.taken, nil
	}
	words, from, end := draw.ScoreWords(s.mk.Options.SMs), len(s.asked), 0
	for i := range s.asked {
		if s.asked[i].Tops() >= 0 && s.ran > 0 {
			from, end = min(from, i), i+1
		}
	}
	size := 4 * draw.ScoredSteps * words
	taken := &scores{asked: slices.Clone(s.asked), ran: s.ran, first: from, words: make([]uint32, words)}
	if from < end {
		wait, err := readAhead(s.dev, megakernel.BufferScores, int64(size)*int64(from), size*(end-from), &s.raw)
		if err != nil {
			return nil, err
		}
		taken.raw = sync.OnceValues(wait)
	}
	s.taken = taken
	return taken, nil
}

// of are the log-probabilities of the token that a row chose for a position of its sequence.
func (s *scores) of(row, position, token int) (sampling.Logprobs, error) {
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
	raw, err := s.raw()
	if err != nil {
		return sampling.Logprobs{}, err
	}
	at := raw[4*len(s.words)*(draw.ScoredSteps*(row-s.first)+position%draw.ScoredSteps):]
	for i := range s.words {
		s.words[i] = binary.LittleEndian.Uint32(at[4*i:])
	}
	return sampling.LogprobsOfScores(s.words, token, s.asked[row].Tops())
}

// logprobs are those of the token that a row chose for a position of its sequence in the last launch.
func (s *runner) logprobs(row, position, token int) (sampling.Logprobs, error) {
	taken, err := s.takeScores()
	if err != nil {
		return sampling.Logprobs{}, err
	}
	return taken.of(row, position, token)
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

// Scores takes the scores of the last launch; see batch.Stepper.
func (r *Session) Scores() (batch.Scores, error) {
	taken, err := r.takeScores()
	if err != nil {
		return nil, err
	}
	if r.one != nil {
		first := r.one.pos - (r.ran - 1)
		return func(_, step, token int) (sampling.Logprobs, error) { return taken.of(0, first+step, token) }, nil
	}
	rows, first := slices.Clone(r.last), make([]int, len(r.last))
	for i := range first {
		first[i] = r.seqs[i].Cached + r.seqs[i].New
	}
	return func(i, step, token int) (sampling.Logprobs, error) { return taken.of(rows[i], first[i]+step, token) }, nil
}

// TokenLogprobs are those of the token that Scored named for new token k of sequence i; see batch.Stepper.
func (b *Bundle) TokenLogprobs(i, k, token, tops int) (sampling.Logprobs, error) {
	if b.last == nil {
		return sampling.Logprobs{}, errors.New("log-probabilities of a prompt's tokens that no launch of rows has fed")
	}
	return b.last.TokenLogprobs(i, k, token, tops)
}

// Scores takes the scores of the last launch; see batch.Stepper. Behind a prompt's launch they are all logits.
func (b *Bundle) Scores() (batch.Scores, error) {
	switch {
	case b.last != nil:
		return b.last.Scores()
	case b.prompt == nil:
		return nil, errors.New("log-probabilities before the first launch")
	}
	logits, tops := make([][]float32, len(b.asked)), make([]int, len(b.asked))
	for i := range b.asked {
		if tops[i] = b.asked[i].Tops(); tops[i] < 0 {
			continue
		}
		if err := b.readPrompt(i); err != nil {
			return nil, err
		}
		logits[i] = slices.Clone(b.logits)
	}
	return func(i, _, token int) (sampling.Logprobs, error) {
		return sampling.LogprobsOf(logits[i], token, tops[i])
	}, nil
}
