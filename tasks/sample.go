package tasks

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/draw"
)

// Sample draws a token for each row of a step from its logits, with the row's own parameters. Package draw has the
// arithmetic.
//
// First runs behind the LM head: each CTA publishes the winner of its own logits and the highest of them. After a sync
// Choose finds the winner of all. A row that truncates then needs to know whether the winner stays: the CTAs add their
// logits to a histogram in global memory, with a grid barrier, and look where the distances of top-k and top-p lie.
// They go on in finer histograms until that is known of the winner, which takes one of them for most draws. Where the
// winner does not stay the CTAs publish the winner of what does.
//
// Rows with a history or a mask have their logits changed first, each by the CTA that computed it, and what they
// choose is added to the history.
//
// Rows that want scores have their log-sum-exp and their most probable tokens written too, each CTA's beside the
// others': the host merges them. They are of the logits as they are.
type Sample struct {
	Vocab, T int
	Count    u32              // rows of the step, 1 to T
	Modes    u32              // what the launch's rows need: draw.Mode… bits; the same in all CTAs
	Rows     dsl.Buf[dsl.U32] // [T][draw.RowWords] parameters
	Logits   dsl.Buf[dsl.F32] // [T][Vocab]; of rows with a history or a mask what they draw from is left in it
	Records  dsl.Buf[dsl.U32] // SampleRecordsLen long: what each CTA publishes
	Bins     dsl.Buf[dsl.U32] // SampleBinsLen long: histograms
	// SampleScoresLen long: what log-probabilities are made of, [T][draw.ScoredSteps][grid][draw.ScoreWords]
	Scores dsl.Buf[dsl.U32]

	Histories dsl.Buf[dsl.U32] // SampleHistoriesLen long: [T][draw.HistoryWords], which rows name
	Masks     dsl.Buf[dsl.U32] // [T][draw.MaskWords]: tokens that rows with a mask may choose; the host may write them
	Ready     dsl.Buf[dsl.U32] // [1] in launches with masks: of how many steps the masks have been there
	Raw       dsl.Buf[dsl.F32] // [T][Vocab]: of rows with a history or a mask the logits as they were

	Shared dsl.Buf[dsl.U32] // shared memory, SampleSharedLen long
	State  dsl.Buf[dsl.U32] // shared memory, SampleStateLen long
	Chosen dsl.Buf[dsl.U32] // shared memory, [T] out of Choose

	// Position is where a row's next token stands in its sequence.
	Position func(row u32) u32
	Step     u32             // of the launch, from 0 on
	Watch    *pipeline.Watch // of the wait for masks
}

const (
	recordWords = 4 // the winner's score, its token, its logit; the highest logit
	binWords    = 2 // of draw.Bins: tokens, weight
	rowBins     = draw.Bins * binWords
)

// SampleRecordsLen is the length of Sample.Records.
func SampleRecordsLen(rows, grid int) int { return 2 * rows * grid * recordWords }

// SampleBinsLen is the length of Sample.Bins.
func SampleBinsLen(rows int) int { return draw.Searches * rows * rowBins }

// SampleSharedLen is the length of Sample.Shared.
func SampleSharedLen(rows, consumers int) int { return rows * max(rowBins, consumers*recordWords) }

// SampleStateLen is the length of Sample.State.
func SampleStateLen(rows int) int { return rows * stateWords }

// The words of a row's state, and what its mode may be.
const (
	stateMode  = iota
	stateLo    // where the stretch that is looked at begins
	stateShift // 2^this distances are a bin
	stateCount // tokens before the stretch
	stateMass  // f32: their weight
	stateGoal  // f32: top-p's
	stateFar   // the largest distance that stays, as far as is known
	stateTop   // f32: the highest logit
	stateDist  // the winner's distance from it
	stateWords = 12

	modeDone = 0
	modeTopK = 1
	modeTopP = 2
	modeAway = 3 // the winner does not stay
)

func (t *Sample) problem(e *Env) string {
	return firstOf(
		need(t.T >= 1 && t.T <= MaxColumns, "sample: %d rows, want 1 to %d", t.T, MaxColumns),
		need(t.Vocab > 0, "sample: a vocabulary of %d, want at least 1", t.Vocab),
		need(int(t.Rows.Len()) >= t.T*draw.RowWords, "sample: Rows has %d elements, want %d", t.Rows.Len(),
			t.T*draw.RowWords),
		need(int(t.Logits.Len()) >= t.T*t.Vocab, "sample: Logits has %d elements, want %d", t.Logits.Len(), t.T*t.Vocab),
		need(int(t.Records.Len()) >= SampleRecordsLen(t.T, e.Grid), "sample: Records has %d elements, want %d",
			t.Records.Len(), SampleRecordsLen(t.T, e.Grid)),
		need(int(t.Bins.Len()) >= SampleBinsLen(t.T), "sample: Bins has %d elements, want %d", t.Bins.Len(),
			SampleBinsLen(t.T)),
		need(int(t.Scores.Len()) >= SampleScoresLen(t.T, e.Grid), "sample: Scores has %d elements, want %d", t.Scores.Len(),
			SampleScoresLen(t.T, e.Grid)),
		need(int(t.Histories.Len()) >= SampleHistoriesLen(t.T, t.Vocab), "sample: Histories has %d elements, want %d",
			t.Histories.Len(), SampleHistoriesLen(t.T, t.Vocab)),
		need(int(t.Masks.Len()) >= t.T*draw.MaskWords(t.Vocab), "sample: Masks has %d elements, want %d", t.Masks.Len(),
			t.T*draw.MaskWords(t.Vocab)),
		need(t.Ready.Len() >= 1, "sample: Ready has no element, want 1"),
		need(int(t.Raw.Len()) >= t.T*t.Vocab, "sample: Raw has %d elements, want %d", t.Raw.Len(), t.T*t.Vocab),
		need(int(t.Shared.Len()) >= SampleSharedLen(t.T, e.Consumers), "sample: Shared has %d elements, want %d",
			t.Shared.Len(), SampleSharedLen(t.T, e.Consumers)),
		need(int(t.State.Len()) >= SampleStateLen(t.T), "sample: State has %d elements, want %d", t.State.Len(),
			SampleStateLen(t.T)),
		need(int(t.Chosen.Len()) >= t.T, "sample: Chosen has %d elements, want %d", t.Chosen.Len(), t.T))
}

// First is run by all consumer threads of every CTA when its rows of the LM head, share, are stored. Shared must not be
// in use. A sync must follow.
func (t *Sample) First(e *Env, share Share) {
	k := e.K
	if p := t.problem(e); p != "" {
		k.Require(false, "%s", p)
		return
	}
	k.If(t.truncates(), func() { // the histograms of the step before are read
		first := e.CTA.MulC(e.Threads()).Add(e.Tid)
		k.ForStep(first, k.U32(SampleBinsLen(t.T)), e.Grid*e.Threads(), func(i u32) { t.Bins.Store(i, k.U32(0)) },
			dsl.Unroll(1))
	})
	e.Sync() // other threads have stored logits
	t.score(e, share)
	t.change(e, share)
	t.pass(e, share, 0)
}

func (t *Sample) truncates() dsl.Pred { return t.Modes.AndC(draw.ModeTruncates).NeC(0) }

// eachRow calls body for the rows of the step.
func (t *Sample) eachRow(k *dsl.Kernel, body func(row u32)) {
	if t.T == 1 {
		body(k.U32(0))
		return
	}
	k.For(k.U32(0), t.Count, body, dsl.Unroll(1))
}

// ownRows calls body for the rows of the step that this warp looks after.
func (t *Sample) ownRows(e *Env, body func(row u32)) {
	if t.T == 1 {
		e.K.If(e.Warp.EqC(0), func() { body(e.K.U32(0)) })
		return
	}
	e.K.ForStep(e.Warp, t.Count, e.Consumers, body, dsl.Unroll(1))
}

// eachFour calls body for the CTA's logits of a row, four tokens a thread at a time; those beyond the vocabulary are
// NaN.
func (t *Sample) eachFour(e *Env, share Share, row u32, body func(token u32, x []f32)) {
	t.eachFourOf(e, share, row, e.Tid, e.Threads(), body)
}

// param is a word of a row's parameters.
func (t *Sample) param(row u32, word int) u32 {
	return t.Rows.Load(row.MulC(draw.RowWords).AddC(word), dsl.CacheHint(dsl.NonCoherent))
}

func (t *Sample) paramF32(row u32, word int) f32 {
	return dsl.Bits[dsl.F32](t.param(row, word))
}

func (t *Sample) has(row u32, flag int) dsl.Pred {
	return t.param(row, draw.RowFlags).AndC(flag).NeC(0)
}

// state is a word of a row's state.
func (t *Sample) state(row u32, word int) u32 {
	return t.State.Load(row.MulC(stateWords).AddC(word))
}

// in is whether a row is in a mode.
func (t *Sample) in(row u32, mode int) dsl.Pred {
	return dsl.Uniform(t.state(row, stateMode), dsl.WarpScope).EqC(mode)
}

func (t *Sample) stateF32(row u32, word int) f32 {
	return dsl.Bits[dsl.F32](t.state(row, word))
}

func (t *Sample) set(row u32, word int, v u32) {
	t.State.Store(row.MulC(stateWords).AddC(word), v)
}

// winner is the best score with its token and logit, and the highest logit.
type winner struct {
	best
	logit, top *dsl.Var[dsl.F32]
}

func newWinner(e *Env) winner {
	return winner{newBest(e), dsl.NewVar(e.K.F32(math.Inf(-1)), "logit"), dsl.NewVar(e.K.F32(math.Inf(-1)), "top")}
}

// win keeps the better score; the lower token of two that are as good.
func (w winner) win(z f32, token u32, x f32) {
	have, at := w.value.Get(), w.index.Get()
	better := z.Gt(have).Or(z.Eq(have).And(token.Lt(at)))
	w.value.Set(dsl.Select(better, z, have))
	w.index.Set(dsl.Select(better, token, at))
	w.logit.Set(dsl.Select(better, x, w.logit.Get()))
}

// warp makes every lane's winner that of the whole warp.
func (w winner) warp() {
	for d := dsl.WarpSize / 2; d > 0; d /= 2 {
		w.win(dsl.ShflXor(w.value.Get(), d), dsl.ShflXor(w.index.Get(), d), dsl.ShflXor(w.logit.Get(), d))
		w.top.Set(w.top.Get().Max(dsl.ShflXor(w.top.Get(), d)))
	}
}

func (w winner) store(b dsl.Buf[dsl.U32], at u32) {
	bits := dsl.Bits[dsl.U32, dsl.F32]
	b.StoreN(at, []u32{bits(w.value.Get()), w.index.Get(), bits(w.logit.Get()), bits(w.top.Get())})
}

func (w winner) meet(b dsl.Buf[dsl.U32], at u32) {
	v, f := b.LoadN(at, recordWords), dsl.Bits[dsl.F32, dsl.U32]
	w.win(f(v[0]), v[1], f(v[2]))
	w.top.Set(w.top.Get().Max(f(v[3])))
}

// pass publishes the CTA's winners in a half of Records: the first time those of all its logits, the second time, of
// the rows whose winner does not stay, those of the logits that do.
func (t *Sample) pass(e *Env, share Share, half int) {
	k := e.K
	t.eachRow(k, func(row u32) {
		if half == 0 {
			t.passRow(e, share, row, nil)
			return
		}
		k.If(t.in(row, modeAway), func() {
			top, nats, far := t.stateF32(row, stateTop), t.paramF32(row, draw.RowNats), t.state(row, stateFar)
			t.passRow(e, share, row, func(x f32) dsl.Pred { return distance(k, top, x, nats).Le(far) })
		})
	})
	e.Sync()
	k.If(e.Tid.Lt(t.Count), func() {
		w := newWinner(e)
		for i := range e.Consumers {
			w.meet(t.Shared, e.Tid.MulC(e.Consumers).AddC(i).MulC(recordWords))
		}
		publish := func() { w.store(t.Records, t.record(e, half, e.Tid, e.CTA)) }
		if half == 0 {
			publish()
			return
		}
		k.If(t.state(e.Tid, stateMode).EqC(modeAway), publish)
	})
}

func (t *Sample) record(e *Env, half int, row, cta u32) u32 {
	return row.AddC(half * t.T).MulC(e.Grid).Add(cta).MulC(recordWords)
}

// passRow finds this warp's winner among its logits of a row that stay; nil: all do.
func (t *Sample) passRow(e *Env, share Share, row u32, stays func(x f32) dsl.Pred) {
	k := e.K
	w := newWinner(e)
	draws, scale := t.has(row, draw.FlagDraws), t.paramF32(row, draw.RowScale)
	key := [2]u32{t.param(row, draw.RowSeedLo), t.param(row, draw.RowSeedHi)}
	position := t.Position(row)
	t.eachFour(e, share, row, func(token u32, x []f32) {
		score := dsl.NewArray(k.F32(0), 4, "score")
		for i := range x {
			score[i].Set(x[i])
		}
		k.If(draws, func() {
			bits := philox(k, key, [4]u32{position, token.DivC(4), k.U32(0), k.U32(0)})
			for i := range x {
				score[i].Set(x[i].Mul(scale).Sub(dsl.Log2(exponential(k, bits[i]))))
			}
		})
		for i := range x {
			z := score[i].Get()
			if stays != nil {
				z = dsl.Select(stays(x[i]), z, k.F32(math.Inf(-1)))
			}
			w.win(z, token.AddC(i), x[i])
			w.top.Set(w.top.Get().Max(x[i]))
		}
	})
	w.warp()
	k.If(e.Lane.EqC(0), func() { w.store(t.Shared, row.MulC(e.Consumers).Add(e.Warp).MulC(recordWords)) })
}

// distance of a logit from the highest, beyond draw.Farthest for NaN and -inf.
func distance(k *dsl.Kernel, top, x, nats f32) u32 {
	return dsl.Cast[dsl.U32](top.Sub(x).Mul(nats).Min(k.F32(draw.Farthest + 1)))
}

// Choose finds the tokens after a sync, in every CTA alike: Chosen holds them for all consumer threads on return. bar
// is the grid's barrier.
func (t *Sample) Choose(e *Env, share Share, bar *GridBarrier) {
	k := e.K
	if t.problem(e) != "" {
		return
	}
	t.ownRows(e, func(row u32) {
		w := t.read(e, 0, row)
		k.If(e.Lane.EqC(0), func() {
			t.Chosen.Store(row, w.index.Get())
			t.keepLogit(e, row, w)
			k.If(t.truncates(), func() { t.begin(k, row, w) })
		})
	})
	e.Sync()
	k.If(t.truncates(), func() {
		k.For(k.U32(0), k.U32(draw.Searches), func(i u32) {
			k.If(t.any(e, modeTopK, modeTopP), func() { t.search(e, share, bar, i) })
		}, dsl.Unroll(1))
		k.If(t.any(e, modeAway), func() {
			t.pass(e, share, 1)
			bar.Sync()
			t.ownRows(e, func(row u32) {
				k.If(t.in(row, modeAway), func() {
					w := t.read(e, 1, row)
					k.If(e.Lane.EqC(0), func() {
						t.Chosen.Store(row, w.index.Get())
						t.keepLogit(e, row, w)
					})
				})
			})
			e.Sync()
		})
	})
	t.remember(e, share)
}

// read finds the winner of a row among those that the CTAs have published, in every lane.
func (t *Sample) read(e *Env, half int, row u32) winner {
	w := newWinner(e)
	for from := 0; from < e.Grid; from += dsl.WarpSize {
		cta := e.Lane.AddC(from)
		meet := func() { w.meet(t.Records, t.record(e, half, row, cta)) }
		if from+dsl.WarpSize <= e.Grid {
			meet()
		} else {
			e.K.If(cta.LtC(e.Grid), meet)
		}
	}
	w.warp()
	return w
}

// any is whether a row is in one of the modes.
func (t *Sample) any(e *Env, modes ...int) dsl.Pred {
	k := e.K
	is := dsl.NewVar(k.U32(0), "is")
	k.If(e.Lane.Lt(t.Count), func() {
		mode := t.state(e.Lane, stateMode)
		for _, m := range modes {
			is.Set(dsl.Select(mode.EqC(m), k.U32(1), is.Get()))
		}
	})
	return dsl.Uniform(dsl.Select(dsl.Any(is.Get().NeC(0)), k.U32(1), k.U32(0)), dsl.GPUScope).NeC(0)
}

// begin is a row's state when its winner is found, in one thread.
func (t *Sample) begin(k *dsl.Kernel, row u32, w winner) {
	top := w.top.Get()
	dist, far := distance(k, top, w.logit.Get(), t.paramF32(row, draw.RowNats)), t.param(row, draw.RowFar)
	mode := dsl.Select(dist.Gt(far), k.U32(modeAway), k.U32(modeDone))
	mode = dsl.Select(t.has(row, draw.FlagTopP), k.U32(modeTopP), mode)
	mode = dsl.Select(t.has(row, draw.FlagTopK), k.U32(modeTopK), mode)
	mode = dsl.Select(t.has(row, draw.FlagDraws), mode, k.U32(modeDone))
	zero := k.U32(0)
	t.State.StoreN(row.MulC(stateWords), []u32{mode, zero, k.U32(draw.TopShift), zero})
	t.State.StoreN(row.MulC(stateWords).AddC(4), []u32{zero, zero, far, dsl.Bits[dsl.U32](top)})
	t.set(row, stateDist, dist)
}
