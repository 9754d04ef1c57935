package batch_test

import (
	"context"
	"math"
	"testing"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/pages"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/tasks/draw"
	"github.com/stretchr/testify/require"
)

// quick is a stepper that takes no time.
type quick struct{ rows int }

func (q *quick) Rows() int                    { return q.rows }
func (q *quick) Logits(int, []float32) error  { return nil }
func (q *quick) Choice(int, int) (int, error) { return 0, nil }
func (q *quick) TokenLogprobs(int, int, int, int) (l sampling.Logprobs, err error) {
	return l, nil
}
func (q *quick) Scores() (batch.Scores, error) { return nil, nil }
func (q *quick) Run(_ context.Context, r batch.StepRequest) ([][]int, error) {
	return [][]int{make([]int, len(r.Sequences))}, nil
}

// endless is a client that always wants more.
type endless struct{ taken int }

func (e *endless) Want() int                        { return 1 << 40 }
func (e *endless) Drafts() bool                     { return false }
func (e *endless) ToScore() (int, int)              { return math.MaxInt, 0 }
func (e *endless) Fed(int)                          {}
func (e *endless) Score(sampling.Logprobs)          {}
func (e *endless) Draw() draw.Rule                  { return draw.Rule{} }
func (e *endless) Draws() bool                      { return false }
func (e *endless) Pick([]float32, int) (int, error) { return 0, nil }
func (e *endless) Scored([]sampling.Logprobs)       {}
func (e *endless) Take(int) bool                    { e.taken++; return true }
func (e *endless) HandOut()                         {}
func (e *endless) Gone() bool                       { return false }
func (e *endless) Leave(batch.Stats, error)         {}

// What the scheduler itself takes of a step of 16 sequences with 1024 tokens each.
func BenchmarkAStepOf16Sequences(b *testing.B) {
	for name, page := range map[string]int{"page1": 1, "page16": 16} {
		b.Run(name, func(b *testing.B) {
			s, err := batch.New(batch.Options{Stepper: &quick{16}, Pool: pages.New((1 << 22) / page), Page: page, Vocab: 10,
				Positions: 1 << 30, StepsPerLaunch: 1})
			require.NoError(b, err)
			e := &endless{}
			for i := range 16 {
				prompt := make([]int, 1024)
				prompt[0] = i
				s.Add(prompt, e)
			}
			for e.taken < 1 {
				require.NoError(b, s.Step(b.Context()))
			}
			for range 1100 {
				require.NoError(b, s.Step(b.Context()))
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if err := s.Step(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
