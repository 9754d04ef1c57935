//go:build unix

package runtime

import (
	"testing"

	"github.com/mkgen/mkgen/internal/cputime"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/tasks/draw"
	"github.com/stretchr/testify/require"
)

// What the host takes of 20 log-probabilities of each token, of launches of 16 steps of 16 rows.
func BenchmarkLogprobsOfALaunch(b *testing.B) {
	const rows = 16
	s, m := scoredLaunch(rows, draw.ScoredSteps, true)
	logits := make([]float32, 1000)
	for i := range logits {
		logits[i] = float32(i * i % 97)
	}
	for row := range rows {
		for step := range draw.ScoredSteps {
			m.set(row, step, 5, logits)
		}
	}
	b.ReportAllocs()
	before := cputime.Used(b)
	for b.Loop() {
		s.drew(draw.ScoredSteps, draw.ScoredSteps)
		scores, err := s.Scores()
		require.NoError(b, err)
		for step := range draw.ScoredSteps {
			for i := range rows {
				_, err := scores(i, step, 7)
				require.NoError(b, err)
			}
		}
	}
	b.ReportMetric(float64(cputime.Used(b)-before)/float64(b.N)/draw.ScoredSteps/1000, "cpu-µs/step")
	b.ReportMetric(float64(m.reads)/float64(b.N), "reads/launch")
}

// maskMemory is a device that takes masks.
type maskMemory struct {
	Device
	words []uint32
}

func (m *maskMemory) Poke(_ string, i int, values ...uint32) error {
	copy(m.words[i:], values)
	return nil
}

// What the host takes to give a running launch the masks of 16 rows of 128,256 tokens.
func BenchmarkMasksOfAStep(b *testing.B) {
	const rows, vocab = 16, 128256
	n := draw.MaskWords(vocab)
	mask := make([]uint32, n)
	s := &runner{mk: &megakernel.Kernel{Config: models.Config{Vocab: vocab}}, dev: &maskMemory{words: make([]uint32,
		rows*n)}}
	for range rows {
		rule := draw.Rule{}
		rule.SetMask(mask)
		s.asked = append(s.asked, asked{Rule: rule})
	}
	s.masks.next = func(int) []uint32 { return mask }
	b.ReportAllocs()
	before := cputime.Used(b)
	for b.Loop() {
		require.NoError(b, s.nextMasks())
	}
	b.ReportMetric(float64(cputime.Used(b)-before)/float64(b.N)/1000, "cpu-µs/step")
}
