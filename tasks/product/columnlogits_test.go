package product_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/product"
	"github.com/stretchr/testify/require"
)

// argmaxColumns runs the whole search over the rows of y (scale 1), and returns each
// CTA's choice for all of t tokens, and the logits.
func argmaxColumns(t testing.TB, s rig.Step, y [][]float32) (chosen []uint32, logits []float64) {
	vocab := len(y[0])
	rows := (vocab + 7) / 8 * 8
	flat := make([]float32, s.T*rows) // padding rows are 0
	for i, row := range y {
		copy(flat[i*rows:], row)
	}
	r := rig.New(t, rig.Setup{SMs: s.SMs, Consumers: s.Consumers})
	cells, places := s.SMs*s.Padded(), product.ColumnSumsLen(s.Consumers, s.Padded())
	a := &product.ArgmaxColumns{Vocab: vocab, T: s.T, Logits: rig.Out[dsl.F32](r, "logits", s.T*vocab),
		Best: rig.Out[dsl.F32](r, "best", cells), Index: rig.Out[dsl.U32](r, "index", cells),
		SharedBest: rig.SharedF32(r, "bests", places), SharedIndex: dsl.Shared[dsl.U32](r.K, "indices", places),
		Chosen: dsl.Shared[dsl.U32](r.K, "chosen", s.T)}
	next, tokens := rig.Out[dsl.U32](r, "next", s.SMs*s.T), r.Scalar("n", uint32(s.N))
	yIn, counter := rig.In[dsl.F32](r, "y", rig.F32Bytes(flat), len(flat)),
		rig.InOut[dsl.U32](r, "barrier", rig.U32Bytes(0), 1)
	r.Body(func(*pipeline.Consumer) {
		bar := grid.NewGridBarrier(r.Env, counter, r.K.U32(0))
		epilogue, publish := a.Start(r.Env, func(dsl.Val[dsl.U32]) dsl.Val[dsl.F32] { return r.K.F32(1) })
		r.EachColumnPair(yIn, rows, s.Padded(), tokens, epilogue)
		publish()
		bar.Sync()
		a.Choose(r.Env)
		r.K.If(r.Env.Tid.LtC(s.T), func() { next.Store(r.Env.CTA.MulC(s.T).Add(r.Env.Tid), a.Chosen.Load(r.Env.Tid)) })
	}, nil)
	got := r.Run()
	return rig.U32s(got["next"]), rig.F32s(got["logits"])
}

func TestArgmaxColumns(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	rng := rig.Rand(8)
	for _, s := range append(rig.Steps(), rig.StepOf(16, 16, 40, 1), rig.StepOf(8, 8, 33, 2)) {
		for _, vocab := range []int{1, 9, 16, 77, 203} {
			t.Run(fmt.Sprint(s, " ", vocab), func(t *testing.T) {
				var y [][]float32
				for i := range s.N {
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
					if token := i % s.T; token < s.N {
						want = argmaxOf(y[token])
					}
					require.EqualValues(t, want, have, "token %d in CTA %d", i%s.T, i/s.T)
				}
				for i, v := range logits {
					if i/vocab >= s.N {
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
	y := rig.Floats(rig.Rand(2), 100, 1)
	require.Equal(t, reference.Argmax(rig.Wide32(y)), argmaxOf(y))
}
