package sample_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/draw"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/product"
	"github.com/mkgen/mkgen/tasks/sample"
	"github.com/stretchr/testify/require"
)

// sampled is rows of logits and how each is drawn from.
type sampled struct {
	logits    [][]float32
	rows      []draw.Rule
	positions []uint32
	most      int           // rows that the kernel is made for
	more      [][][]float32 // logits of further steps of the launch, each a position further

	scores func(i, step int) []uint32 // out: what the log-probabilities of a row are made of
	raw    [][]uint32                 // out: bits of the logits
	after  [][]uint32                 // out: the histories
}

// run draws on the executor, with the vocabulary's tiles shared out among the SMs.
func (s *sampled) run(t testing.TB, sms, consumers int) []uint32 {
	vocab, most := len(s.logits[0]), max(s.most, len(s.rows))
	r := rig.New(t, rig.Setup{SMs: sms, Consumers: consumers})
	var logits []float32
	params := make([]uint32, most*draw.RowWords)
	modes, histories := uint32(draw.ModeDraws), make([]byte, 4*sample.SampleHistoriesLen(most, vocab))
	masks := make([]uint32, most*draw.MaskWords(vocab))
	for i, row := range s.rows {
		logits = append(logits, s.logits[i]...)
		if row.History != nil {
			of := most - 1 - i
			row.Row[draw.RowHistory] = uint32(of)
			bytes := 4 * draw.HistoryWords(vocab)
			row.History.Encode(histories[of*bytes:][:bytes])
		}
		copy(masks[i*draw.MaskWords(vocab):], row.Mask)
		copy(params[i*draw.RowWords:], row.Row[:])
		modes |= row.Modes()
	}
	for _, step := range append([][][]float32{nil}, s.more...) {
		logits = append(logits, slices.Concat(step...)...)
		for len(logits)%(most*vocab) != 0 {
			logits = append(logits, 1e9)
		}
	}
	steps := 1 + len(s.more)
	all := rig.In[dsl.F32](r, "all", rig.F32Bytes(logits), len(logits))
	step := r.K.U32(0)
	positions := rig.In[dsl.U32](r, "positions",
		rig.U32Bytes(append(append([]uint32(nil), s.positions...), make([]uint32, most)...)...), 0)
	// not a result: the order within a list is any
	lists := dsl.Global[dsl.U32](r.K, "lists", int64(sample.SampleListsLen(most, vocab)), dsl.Align(16))
	a := &sample.Sample{Vocab: vocab, T: most, Count: r.Scalar("count", uint32(len(s.rows))),
		Modes: r.Scalar("modes", modes), Rows: rig.In[dsl.U32](r, "rows", rig.U32Bytes(params...), len(params)),
		Logits:    rig.Out[dsl.F32](r, "logits", most*vocab),
		Records:   rig.Out[dsl.U32](r, "records", sample.SampleRecordsLen(most, sms)),
		Bins:      rig.Out[dsl.U32](r, "bins", sample.SampleBinsLen(most)),
		Lists:     lists,
		Scores:    rig.Out[dsl.U32](r, "scores", sample.SampleScoresLen(most, sms)),
		Tops:      rig.Out[dsl.U32](r, "tops", sample.SampleTopsLen(most, sms)),
		Histories: rig.InOut[dsl.U32](r, "histories", histories, len(histories)/4), Masks: rig.In[dsl.U32](r, "masks",
			rig.U32Bytes(masks...), len(masks)), Raw: rig.Out[dsl.F32](r, "raw", most*vocab),
		Ready:    rig.In[dsl.U32](r, "ready", rig.U32Bytes(1), 1),
		Shared:   dsl.Shared[dsl.U32](r.K, "shared", sample.SampleSharedLen(most), dsl.Align(16)),
		State:    dsl.Shared[dsl.U32](r.K, "state", sample.SampleStateLen(most), dsl.Align(16)),
		Chosen:   dsl.Shared[dsl.U32](r.K, "chosen", most),
		Position: func(row dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return positions.Load(row).Add(step) }}
	next, counter := rig.Out[dsl.U32](r, "next", sms*most), rig.InOut[dsl.U32](r, "barrier", rig.U32Bytes(0), 1)
	tiles := (vocab + pipeline.TileRows - 1) / pipeline.TileRows
	var shares []uint32
	for sm := range sms {
		first := sm * tiles / sms
		shares = append(shares, uint32(first), uint32((sm+1)*tiles/sms-first))
	}
	own := rig.In[dsl.U32](r, "own", rig.U32Bytes(shares...), len(shares))
	r.Body(func(*pipeline.Consumer) {
		word := func(i int) dsl.Val[dsl.U32] { return dsl.Uniform(own.Load(r.Env.CTA.MulC(2).AddC(i)), dsl.CTAScope) }
		share := product.Share{First: word(0), Count: word(1)}
		bar := grid.NewGridBarrier(r.Env, counter, r.K.U32(0))
		r.K.For(r.K.U32(0), r.K.U32(steps), func(at dsl.Val[dsl.U32]) {
			step, a.Step, a.Nth = at, at, at
			for row := range most { // as an LM head stores them
				first := share.First.MulC(pipeline.TileRows).Add(r.Env.Tid)
				end := share.First.Add(share.Count).MulC(pipeline.TileRows).MinC(vocab)
				r.K.ForStep(first, end, r.Env.Threads(), func(token dsl.Val[dsl.U32]) {
					a.Logits.Store(token.AddC(row*vocab), all.Load(at.MulC(most).AddC(row).MulC(vocab).Add(token)))
				})
			}
			a.First(r.Env, share, func() product.Best { // as an LM head finds it: the thread's row's
				best := product.NewBest(r.Env)
				end := share.First.Add(share.Count).MulC(pipeline.TileRows).MinC(vocab)
				r.K.For(share.First.MulC(pipeline.TileRows), end, func(token dsl.Val[dsl.U32]) {
					best.Take(all.Load(at.MulC(most).Add(r.Env.Tid).MulC(vocab).Add(token)), token)
				})
				return best
			})
			bar.Sync()
			a.Choose(r.Env, share, bar)
			a.Merge(r.Env, at.EqC(steps-1))
			if steps > 1 {
				bar.Sync()
			}
		})
		r.K.If(r.Env.Tid.Lt(a.Count), func() { next.Store(r.Env.CTA.MulC(most).Add(r.Env.Tid), a.Chosen.Load(r.Env.Tid)) })
	}, nil)
	result := r.Run()
	got, scores, raw := rig.U32s(result["next"]), rig.U32s(result["scores"]), rig.U32s(result["raw"])
	s.after = slices.Collect(slices.Chunk(rig.U32s(result["histories"]), draw.HistoryWords(vocab)))
	s.raw = slices.Collect(slices.Chunk(raw, vocab))
	s.scores = func(i, step int) []uint32 {
		n, position := draw.ScoreWords(sms), int(s.positions[i])+step
		return scores[(i*draw.ScoredSteps+position%draw.ScoredSteps)*n:][:n]
	}
	for sm := range sms {
		require.Equal(t, got[:len(s.rows)], got[sm*most:][:len(s.rows)], "every CTA draws the same")
	}
	return got[:len(s.rows)]
}

// randomLogits are of many shapes: flat, peaked, with ties, with -inf.
func randomLogits(rng *rand.Rand, vocab int) []float32 {
	y := make([]float32, vocab)
	kind, spread := rng.IntN(5), math.Exp(rng.Float64()*4-2)
	for i := range y {
		switch y[i] = float32(rng.NormFloat64() * spread); kind {
		case 0:
			y[i] = float32(rng.IntN(4))
		case 1:
			y[i] = float32(math.Floor(float64(y[i])*4)) / 4
		case 2:
			if rng.IntN(3) > 0 {
				y[i] = float32(math.Inf(-1))
			}
		}
	}
	if kind == 3 {
		y[rng.IntN(vocab)] += 8
	}
	return y
}

func randomParams(rng *rand.Rand, vocab int) (p sampling.Params) {
	p = sampling.Params{Temperature: math.Exp(rng.Float64()*3 - 2), Seed: rng.Uint64()}
	if rng.IntN(8) == 0 {
		return sampling.Params{}
	}
	if rng.IntN(2) == 0 {
		p.TopK = 1 + rng.IntN(vocab+5)
		if rng.IntN(2) == 0 {
			p.TopK = 1 + rng.IntN(10)
		}
	}
	if rng.IntN(2) == 0 {
		p.TopP = rng.Float64()
	}
	if rng.IntN(3) == 0 {
		p.MinP = math.Exp(-rng.Float64() * 12)
	}
	return p
}

// randomRule has a history now and then.
func randomRule(rng *rand.Rand, vocab int, position uint32) draw.Rule {
	p := randomParams(rng, vocab)
	if rng.IntN(2) == 0 {
		return draw.Rule{Row: p.Row()}
	}
	tokens := func() (all []int) {
		for range rng.IntN(10) {
			all = append(all, rng.IntN(vocab))
		}
		return all
	}
	q := sampling.Penalties{Repetition: math.Exp(rng.NormFloat64() / 2), Presence: rng.NormFloat64(),
		Frequency: rng.NormFloat64(), Bias: map[int]float64{}}
	for _, token := range tokens() {
		q.Bias[token] = rng.NormFloat64() * 4
		if rng.IntN(4) == 0 {
			q.Bias[token] = math.Inf(-1)
		}
	}
	r := p.Rule(&q, tokens(), tokens(), 1)
	r.Row[draw.RowLeast] = position + uint32(rng.IntN(2)) // the next token may end the text, or not
	for _, token := range tokens() {
		r.Took(token)
	}
	return r
}

func TestDrawsAreTheMirrors(t *testing.T) {
	rng := rig.Rand(11)
	for n := range deep.Count(60, 25) {
		rows := []int{1, 1, 2, 5, 16}[n%5]
		vocab := []int{13, 64, 203, 320, 1000}[rng.IntN(5)]
		g := []struct{ sms, consumers int }{{1, 1}, {2, 4}, {3, 2}, {33, 1}}[rng.IntN(4)]
		s := &sampled{most: rows + rng.IntN(2)*min(rows-1, 1)}
		if s.most > 16 {
			s.most = 16
		}
		var want []uint32
		for range rows {
			y, position := randomLogits(rng, vocab), rng.Uint32()
			row := randomRule(rng, vocab, position)
			if rng.IntN(3) == 0 {
				mask := make([]uint32, draw.MaskWords(vocab))
				for j := range mask {
					mask[j] = rng.Uint32() & rng.Uint32()
				}
				row.SetMask(mask)
			}
			row.SetTops(rng.IntN(draw.MaxTops+2) - 1)
			if rng.IntN(3) == 0 {
				row.SetTarget(rng.IntN(vocab))
			}
			s.logits, s.rows, s.positions = append(s.logits, y), append(s.rows, row), append(s.positions, position)
			want = append(want, uint32(row.Choose(y, position)))
		}
		t.Run(fmt.Sprintf("%d: %d rows of %d on %d SMs, %d warps", n, rows, vocab, g.sms, g.consumers), func(t *testing.T) {
			require.Equal(t, want, s.run(t, g.sms, g.consumers))
			for i, row := range s.rows {
				requireScores(t, s.logits[i], s.scores(i, 0), row.Scored(int(want[i])), row.Tops())
				if row.History != nil {
					row.Took(int(want[i]))
					history := make([]byte, 4*draw.HistoryWords(vocab))
					row.History.Encode(history)
					require.Equal(t, rig.U32s(history), s.after[s.most-1-i])
				}
				if row.Modes()&draw.ModeChanges != 0 {
					for j, x := range s.logits[i] {
						require.Equal(t, math.Float32bits(x), s.raw[i][j])
					}
				}
			}
		})
	}
}

// Behind a launch the last ScoredSteps tokens have scores, however many steps it had: their lists are merged behind
// each ScoredSteps-th step and behind the last one.
func TestScoresOfTheLastSteps(t *testing.T) {
	rng := rig.Rand(12)
	for _, steps := range deep.Most([]int{draw.ScoredSteps + 2, 2, draw.ScoredSteps, 2*draw.ScoredSteps + 5}, 1) {
		for _, c := range []struct{ rows, most, sms, consumers int }{{1, 1, 5, 2}, {3, 4, 3, 2}, {2, 2, 33, 1}} {
			t.Run(fmt.Sprintf("%d steps, %d of %d rows, %d SMs", steps, c.rows, c.most, c.sms), func(t *testing.T) {
				const vocab = 203
				s := &sampled{most: c.most}
				all := make([][][]float32, steps)
				for range c.rows {
					row := draw.Rule{Row: randomParams(rng, vocab).Row()}
					row.SetTops(draw.MaxTops - rng.IntN(3))
					s.rows, s.positions = append(s.rows, row), append(s.positions, rng.Uint32()>>1)
					for i := range all {
						all[i] = append(all[i], randomLogits(rng, vocab))
					}
				}
				s.logits, s.more = all[0], all[1:]
				s.run(t, c.sms, c.consumers)
				for i, row := range s.rows {
					for step := max(0, steps-draw.ScoredSteps); step < steps; step++ {
						logits := all[step][i]
						requireScores(t, logits, s.scores(i, step), row.Choose(logits, s.positions[i]+uint32(step)), row.Tops())
					}
				}
			})
		}
	}
}

// requireScores wants log-probabilities that float64 computes of all logits: the most probable tokens exactly, in
// order.
func requireScores(t testing.TB, logits []float32, words []uint32, token, n int) {
	t.Helper()
	if n < 0 {
		return
	}
	want, err := sampling.LogprobsOf(logits, token, n)
	if err != nil { // nothing but -inf
		_, err = sampling.LogprobsOfScores(words, token, n)
		require.Error(t, err)
		return
	}
	got, err := sampling.LogprobsOfScores(words, token, n)
	require.NoError(t, err)
	near := func(want, got sampling.Logprob) {
		require.Equal(t, want.Token, got.Token)
		if !math.IsInf(want.Logprob, -1) || !math.IsInf(got.Logprob, -1) {
			require.InDelta(t, want.Logprob, got.Logprob, 2e-6)
		}
	}
	near(want.Logprob, got.Logprob)
	require.Len(t, got.Top, len(want.Top))
	for i := range want.Top {
		near(want.Top[i], got.Top[i])
	}
}
