package tasks_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks"
	"github.com/stretchr/testify/require"
)

// argmaxColumns runs the whole search over the rows of y (scale 1), and returns each
// CTA's choice for all of t tokens, and the logits.
func argmaxColumns(t testing.TB, s step, y [][]float32) (chosen []uint32, logits []float64) {
	vocab := len(y[0])
	rows := (vocab + 7) / 8 * 8
	flat := make([]float32, s.t*rows) // padding rows are 0
	for i, row := range y {
		copy(flat[i*rows:], row)
	}
	r := newRig(t, setup{sms: s.sms, consumers: s.consumers})
	cells, places := s.sms*s.padded(), tasks.ColumnSumsLen(s.consumers, s.padded())
	a := &tasks.ArgmaxColumns{Vocab: vocab, T: s.t, Logits: out[dsl.F32](r, "logits", s.t*vocab),
		Best: out[dsl.F32](r, "best", cells), Index: out[dsl.U32](r, "index", cells),
		SharedBest: sharedF32(r, "bests", places), SharedIndex: dsl.Shared[dsl.U32](r.k, "indices", places),
		Chosen: dsl.Shared[dsl.U32](r.k, "chosen", s.t)}
	next, tokens := out[dsl.U32](r, "next", s.sms*s.t), r.scalar("n", uint32(s.n))
	yIn, counter := in[dsl.F32](r, "y", f32Bytes(flat), len(flat)), inOut[dsl.U32](r, "barrier", u32Bytes(0), 1)
	r.body(func(*pipeline.Consumer) {
		bar := tasks.NewGridBarrier(r.e, counter, r.k.U32(0))
		epilogue, publish := a.Start(r.e, func(dsl.Val[dsl.U32]) dsl.Val[dsl.F32] { return r.k.F32(1) })
		r.eachColumnPair(yIn, rows, s.padded(), tokens, epilogue)
		publish()
		bar.Sync()
		a.Choose(r.e)
		r.k.If(r.e.Tid.LtC(s.t), func() { next.Store(r.e.CTA.MulC(s.t).Add(r.e.Tid), a.Chosen.Load(r.e.Tid)) })
	}, nil)
	got := r.run()
	return u32s(got["next"]), f32s(got["logits"])
}

func TestArgmaxColumns(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	rng := newRand(8)
	for _, s := range append(steps(), stepOf(16, 16, 40, 1), stepOf(8, 8, 33, 2)) {
		for _, vocab := range []int{1, 9, 16, 77, 203} {
			t.Run(fmt.Sprint(s, " ", vocab), func(t *testing.T) {
				var y [][]float32
				for i := range s.n {
					row := make([]float32, vocab)
					for j := range row {
						switch i % 5 {
						case 0: // few values: many ties
							row[j] = float32(rng.IntN(3)*rng.IntN(2)) - 1
						case 1:
							row[j] = float32(rng.NormFloat64())
						case 2: // below the padding rows' zeros
							row[j] = -1 - float32(rng.IntN(4))
						case 3:
							row[j] = []float32{nan, -inf}[rng.IntN(2)]
						case 4:
							row[j] = []float32{nan, inf, 1, -inf}[rng.IntN(4)]
						}
					}
					y = append(y, row)
				}
				chosen, logits := argmaxColumns(t, s, y)
				for i, have := range chosen {
					want := 0
					if token := i % s.t; token < s.n {
						want = argmaxOf(y[token])
					}
					require.EqualValues(t, want, have, "token %d in CTA %d", i%s.t, i/s.t)
				}
				for i, v := range logits {
					if i/vocab >= s.n {
						require.True(t, math.IsNaN(v), "written beyond the step's tokens")
						continue
					}
					w := float64(y[i/vocab][i%vocab])
					require.True(t, v == w || math.IsNaN(v) && math.IsNaN(w), "logit %d of token %d: %g, want %g", i%vocab, i/vocab, v,
						w)
				}
			})
		}
	}
}

// argmaxOf is the largest, the first of equals; NaN is none.
func argmaxOf(y []float32) int {
	best, at := math.Inf(-1), 0
	for i, v := range y {
		if float64(v) > best {
			best, at = float64(v), i
		}
	}
	return at
}

func TestArgmaxOfTheReferenceAgrees(t *testing.T) {
	y := floats(newRand(2), 100, 1)
	require.Equal(t, reference.Argmax(wide32(y)), argmaxOf(y))
}
