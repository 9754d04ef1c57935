package runtime

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/tasks/draw"
	"github.com/stretchr/testify/require"
)

const scoredSMs = 132

// scoreMemory is a device that has the scores of rows and counts how often they are read.
type scoreMemory struct {
	Device
	raw   []byte
	reads int
	bad   error
}

func (m *scoreMemory) Read(_ string, offset int64, dst []byte) error {
	m.reads++
	copy(dst, m.raw[offset:offset+int64(len(dst))])
	return m.bad
}

// set leaves the scores of logits, the token at a position chosen, as a kernel does.
func (m *scoreMemory) set(row, position, chosen int, logits []float32) {
	size := draw.ScoreWords(scoredSMs)
	at := m.raw[4*size*(row*draw.ScoredSteps+position%draw.ScoredSteps):]
	put := func(i int, x float32) { binary.LittleEndian.PutUint32(at[4*i:], math.Float32bits(x)) }
	put(draw.ScoreChosen, logits[chosen])
	whole, _ := sampling.LogprobsOf(logits, 0, draw.MaxTops)
	for i, l := range whole.Top {
		put(draw.ScoreTops+2*i, logits[l.Token])
		binary.LittleEndian.PutUint32(at[4*(draw.ScoreTops+2*i+1):], uint32(l.Token))
	}
	for part := range scoredSMs {
		from, end := part*len(logits)/scoredSMs, (part+1)*len(logits)/scoredSMs
		top, sum := logits[from], float32(0)
		for _, x := range logits[from:end] {
			top = max(top, x)
		}
		for _, x := range logits[from:end] {
			sum += float32(math.Exp(float64(x - top)))
		}
		put(draw.ScoreParts+2*part, top)
		put(draw.ScoreParts+2*part+1, sum)
	}
}

// scoredLaunch is a session behind a launch of some rows and steps. Row i fed the token at position 100 + i. Odd rows
// have scores, or all.
func scoredLaunch(rows, steps int, all bool) (*Session, *scoreMemory) {
	m := &scoreMemory{raw: make([]byte, 4*rows*draw.ScoredSteps*draw.ScoreWords(scoredSMs))}
	s := &Session{runner: runner{mk: &megakernel.Kernel{Options: megakernel.Options{SMs: scoredSMs}}, dev: m}}
	for i := range rows {
		rule := draw.Rule{}
		if rule.SetTops(-1); all || i%2 == 1 {
			rule.SetTops(draw.MaxTops)
		}
		s.asked = append(s.asked, asked{Rule: rule})
		s.last = append(s.last, i)
		s.seqs = append(s.seqs, kv.Sequence{Cached: 100 + i, New: 1})
	}
	s.places(s.seqs)
	s.drew(steps, steps)
	return s, m
}

// logprobs are those of the token that a row chose in a step of the last launch.
func logprobs(s *Session, row, step, token int) (sampling.Logprobs, error) {
	scores, err := s.Scores()
	if err != nil {
		return sampling.Logprobs{}, err
	}
	return scores(row, step, token)
}

func TestLogprobsOfALaunchAreThoseOfAllLogits(t *testing.T) {
	const rows, vocab = 6, 3000
	r := rand.New(rand.NewPCG(1, 1))
	s, m := scoredLaunch(rows, 7, false)
	type at struct{ row, step int }
	logits, chosen := map[at][]float32{}, map[at]int{}
	for row := 1; row < rows; row += 2 {
		for step := range 7 {
			x := make([]float32, vocab)
			for i := range x {
				x[i] = float32(4 * r.NormFloat64())
			}
			logits[at{row, step}], chosen[at{row, step}] = x, r.IntN(vocab)
			m.set(row, 101+row+step, chosen[at{row, step}], x)
		}
	}
	for launch := range 2 {
		for k, x := range logits {
			got, err := logprobs(s, k.row, k.step, chosen[k])
			require.NoError(t, err)
			want, err := sampling.LogprobsOf(x, chosen[k], draw.MaxTops)
			require.NoError(t, err)
			require.Equal(t, chosen[k], got.Token)
			require.InDelta(t, want.Logprob.Logprob, got.Logprob.Logprob, 1e-6)
			require.Len(t, got.Top, draw.MaxTops)
			for i := range want.Top {
				require.Equal(t, want.Top[i].Token, got.Top[i].Token)
				require.InDelta(t, want.Top[i].Logprob, got.Top[i].Logprob, 1e-6)
			}
		}
		require.Equal(t, launch+1, m.reads)
		s.drew(7, 7)
	}
}

// lateScores are read when they are waited for.
type lateScores struct{ *scoreMemory }

func (m lateScores) ReadAhead(name string, offset int64, n int) (func() ([]byte, error), error) {
	return func() ([]byte, error) {
		raw := make([]byte, n)
		return raw, m.Read(name, offset, raw)
	}, nil
}

// What reading fails with when the next launch runs already is every token's error.
func TestLogprobsThatAreReadWhileTheNextLaunchRuns(t *testing.T) {
	s, m := scoredLaunch(2, 3, true)
	flat := make([]float32, scoredSMs)
	m.set(1, 103, 5, flat)
	s.dev = lateScores{m}
	scores, err := s.Scores()
	require.NoError(t, err)
	require.Zero(t, m.reads)
	l, err := scores(1, 1, 5)
	require.NoError(t, err)
	require.InDelta(t, -math.Log(scoredSMs), l.Logprob.Logprob, 1e-6)
	_, err = scores(1, 1, 5)
	require.NoError(t, err)
	require.Equal(t, 1, m.reads)
	s.drew(3, 3)
	m.bad = errors.New("bad")
	scores, err = s.Scores()
	require.NoError(t, err)
	_, err = scores(1, 1, 5)
	require.ErrorIs(t, err, m.bad)
}

func TestLogprobsThatALaunchDoesNotHave(t *testing.T) {
	s, m := scoredLaunch(2, 3, false)
	flat := make([]float32, scoredSMs)
	for step := range 3 {
		m.set(1, 102+step, 5, flat)
	}
	flat[7] = float32(math.Inf(1))
	m.set(1, 103, 5, flat)
	_, err := logprobs(s, 0, 0, 5)
	require.EqualError(t, err, "log-probabilities of row 0, which has none in the last launch")
	_, err = logprobs(s, 1, 3, 5)
	require.EqualError(t, err, "log-probabilities of row 1 at position 105, want 102 to 104")
	for step, fails := range []bool{false, true, false} { // one step's logits are no reason to lose the others
		_, err = logprobs(s, 1, step, 5)
		require.Equal(t, fails, err != nil, step)
	}
	s.drew(3, 3)
	m.bad = errors.New("bad")
	_, err = logprobs(s, 1, 0, 5)
	require.ErrorIs(t, err, m.bad)
	m.bad = nil
	_, err = logprobs(s, 1, 0, 5)
	require.NoError(t, err)
	s.drew(draw.ScoredSteps+2, draw.ScoredSteps+2)
	_, err = logprobs(s, 1, 1, 5)
	require.EqualError(t, err, "log-probabilities of row 1 at position 103, want 104 to 119")
	scored := draw.Rule{}
	scored.SetTops(1)
	require.Error(t, s.setDraws(scored, scored, scored)) // this kernel has no draws; the last launch's rows are gone
	_, err = s.logprobs(2, 1, 5)
	require.EqualError(t, err, "log-probabilities of row 2 before a launch has chosen a token")
}
