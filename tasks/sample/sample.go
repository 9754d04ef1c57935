package sample

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/draw"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
	"github.com/mkgen/mkgen/tasks/product"
)

// Sample draws a token for each row of a step from its logits, with the row's own parameters. Package draw has the
// arithmetic.
//
// First runs behind the LM head: each CTA publishes the winner of its own logits and the highest of them. After a sync
// Choose finds the winner of all. A row of min-p alone needs to know whether it stays; where it does not, the CTAs
// publish the winner of what does.
//
// A row of top-k or top-p draws nothing before it knows which tokens stay. Where k CTAs have a highest logit each that
// is near enough, no token farther than these stays: the CTAs list what is as near, with a grid barrier. Otherwise, or
// where that is too much for the list, they add their logits to a histogram in global memory, with a barrier, and look
// in which bins top-k and top-p end. Where few tokens lie before the end of that bin the CTAs list them, with one more
// barrier. With a list each CTA goes on alone: histograms of the list say which of its tokens stay, and the winner of
// these is drawn. Where many tokens lie there the CTAs go on in finer histograms of all logits, a barrier each, and
// publish the winner of what stays.
//
// Rows with a history or a mask have their logits changed first, each by the CTA that computed it, and what they
// choose is added to the history.
//
// Rows that want scores have them written too: each CTA what its logits add to the log-sum-exp and its most probable
// tokens. Merge makes those of all CTAs of them. They are of the logits as they are.
type Sample struct {
	Vocab, T int
	Count    u32              // rows of the step, 1 to T
	Modes    u32              // what the launch's rows need: draw.Mode… bits; the same in all CTAs
	Rows     dsl.Buf[dsl.U32] // [T][draw.RowWords] parameters
	Logits   dsl.Buf[dsl.F32] // [T][Vocab]; of rows with a history or a mask what they draw from is left in it
	Records  dsl.Buf[dsl.U32] // SampleRecordsLen long: what each CTA publishes
	Bins     dsl.Buf[dsl.U32] // SampleBinsLen long: histograms, and the lengths of Lists
	Lists    dsl.Buf[dsl.U32] // SampleListsLen long: of each row the tokens that may stay, where they are few
	// SampleScoresLen long: what log-probabilities are made of, [T][draw.ScoredSteps][draw.ScoreWords]
	Scores dsl.Buf[dsl.U32]
	Tops   dsl.Buf[dsl.U32] // SampleTopsLen long: each CTA's highest logits and their tokens, by steps as Scores

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
	Nth      u32             // how many steps of the launch before this one have chosen tokens
	Watch    *pipeline.Watch // of the wait for masks
}

const (
	recordWords = 4 // the winner's score, its token, its logit; the highest logit
	binWords    = 2 // of draw.Bins: tokens, weight
	rowBins     = draw.Bins * binWords
	listWords   = 2 // of a token in Lists: its logit, the token
	lists       = 2 // how often a row may be listed: before the first histogram, and behind it
)

// SampleRecordsLen is the length of Sample.Records.
func SampleRecordsLen(rows, grid int) int { return 2 * rows * grid * recordWords }

// SampleBinsLen is the length of Sample.Bins.
func SampleBinsLen(rows int) int { return draw.Searches*rows*rowBins + lists*rows }

// SampleListsLen is the length of Sample.Lists.
func SampleListsLen(rows, vocab int) int { return rows * draw.Listed(vocab) * listWords }

// SampleSharedLen is the length of Sample.Shared: a histogram a row, which is more than the records of a CTA's warps,
// and as much as the highest logits that a warp may find.
func SampleSharedLen(rows int) int { return rows * rowBins }

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
	stateDist  // the winner's distance from it; of a row that has drawn nothing yet, more than any that stays
	stateNear  // behind the first histogram: how many tokens are left that may stay, at most
	stateList  // how many of them Lists has; 0: none are listed
	stateReach // before the first histogram: the farthest that top-k may keep; 0: that is not known
	stateWords = 12

	manyNear = 1<<31 - 1 // in stateNear: nobody has counted

	modeDone = 0
	modeTopK = 1
	modeTopP = 2
	modeAway = 3 // the winner does not stay
)

func (t *Sample) problem(e *grid.Env) string {
	return rule.First(
		rule.Need(t.T >= 1 && t.T <= product.MaxColumns, "sample: %d rows, want 1 to %d", t.T, product.MaxColumns),
		rule.Need(t.Vocab > 0, "sample: a vocabulary of %d, want at least 1", t.Vocab),
		rule.Need(int(t.Rows.Len()) >= t.T*draw.RowWords, "sample: Rows has %d elements, want %d", t.Rows.Len(),
			t.T*draw.RowWords),
		rule.Need(int(t.Logits.Len()) >= t.T*t.Vocab, "sample: Logits has %d elements, want %d", t.Logits.Len(), t.T*t.Vocab),
		rule.Need(int(t.Records.Len()) >= SampleRecordsLen(t.T, e.Grid), "sample: Records has %d elements, want %d",
			t.Records.Len(), SampleRecordsLen(t.T, e.Grid)),
		rule.Need(int(t.Bins.Len()) >= SampleBinsLen(t.T), "sample: Bins has %d elements, want %d", t.Bins.Len(),
			SampleBinsLen(t.T)),
		rule.Need(int(t.Lists.Len()) >= SampleListsLen(t.T, t.Vocab), "sample: Lists has %d elements, want %d", t.Lists.Len(),
			SampleListsLen(t.T, t.Vocab)),
		rule.Need(int(t.Scores.Len()) >= SampleScoresLen(t.T, e.Grid), "sample: Scores has %d elements, want %d",
			t.Scores.Len(),
			SampleScoresLen(t.T, e.Grid)),
		rule.Need(int(t.Tops.Len()) >= SampleTopsLen(t.T, e.Grid), "sample: Tops has %d elements, want %d", t.Tops.Len(),
			SampleTopsLen(t.T, e.Grid)),
		rule.Need(int(t.Histories.Len()) >= SampleHistoriesLen(t.T, t.Vocab), "sample: Histories has %d elements, want %d",
			t.Histories.Len(), SampleHistoriesLen(t.T, t.Vocab)),
		rule.Need(int(t.Masks.Len()) >= t.T*draw.MaskWords(t.Vocab), "sample: Masks has %d elements, want %d", t.Masks.Len(),
			t.T*draw.MaskWords(t.Vocab)),
		rule.Need(t.Ready.Len() >= 1, "sample: Ready has no element, want 1"),
		rule.Need(int(t.Raw.Len()) >= t.T*t.Vocab, "sample: Raw has %d elements, want %d", t.Raw.Len(), t.T*t.Vocab),
		rule.Need(int(t.Shared.Len()) >= SampleSharedLen(t.T), "sample: Shared has %d elements, want %d", t.Shared.Len(),
			SampleSharedLen(t.T)),
		rule.Need(int(t.State.Len()) >= SampleStateLen(t.T), "sample: State has %d elements, want %d", t.State.Len(),
			SampleStateLen(t.T)),
		rule.Need(int(t.Chosen.Len()) >= t.T, "sample: Chosen has %d elements, want %d", t.Chosen.Len(), t.T))
}

// First is run by all consumer threads of every CTA when its rows of the LM head, share, are stored. highest returns
// the highest of them, of a row in the thread with the row's number. Shared must not be in use. A sync must follow.
func (t *Sample) First(e *grid.Env, share product.Share, highest func() product.Best) {
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
	k.If(e.Tid.Lt(t.Count), func() { // pass writes over it where it is another
		t.publish(e, 0, e.Tid, highestWinner(highest()))
	})
	e.Sync() // other threads have stored logits
	t.score(e, share)
	k.IfElse(t.changes(), func() { t.change(e, share) }, func() {
		k.If(t.scores(), e.Sync) // Shared is of other use behind the scores
	})
	t.pass(e, share, 0)
}

func (t *Sample) truncates() dsl.Pred { return t.Modes.AndC(draw.ModeTruncates).NeC(0) }

// team is how many warps go through a row's logits together.
func (t *Sample) team(e *grid.Env) int { return max(1, e.Consumers/t.T) }

// teamRows calls body for the rows of the step whose logits this warp goes through, with its team: thread is the
// thread's place in it.
func (t *Sample) teamRows(e *grid.Env, body func(row, thread u32)) {
	n, k := t.team(e), e.K
	switch {
	case t.T == 1:
		body(k.U32(0), e.Tid)
	case n == 1:
		k.ForStep(e.Warp, t.Count, e.Consumers, func(row u32) { body(row, e.Lane) }, dsl.Unroll(1))
	default: // a warp that no team has finds no row under Count
		thread := e.Warp.RemC(n).MulC(dsl.WarpSize).Add(e.Lane)
		k.ForStep(e.Warp.DivC(n), t.Count, e.Consumers/n, func(row u32) { body(row, thread) }, dsl.Unroll(1))
	}
}

// ownRows calls body for the rows of the step that this warp looks after.
func (t *Sample) ownRows(e *grid.Env, body func(row u32)) {
	if t.T == 1 {
		e.K.If(e.Warp.EqC(0), func() { body(e.K.U32(0)) })
		return
	}
	e.K.ForStep(e.Warp, t.Count, e.Consumers, body, dsl.Unroll(1))
}

// eachFour calls body for the CTA's logits of a row, four tokens a thread of the row's team at a time, in groups; those
// beyond the vocabulary are NaN.
func (t *Sample) eachFour(e *grid.Env, share product.Share, row, thread u32, group int, body func(token u32, x []f32)) {
	t.eachFourOf(e, share, row, thread, t.team(e)*dsl.WarpSize, group, body)
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

// searches is whether a row looks for where top-k or top-p ends.
func (t *Sample) searches(row u32) dsl.Pred { return t.in(row, modeTopK).Or(t.in(row, modeTopP)) }

// listed is whether the tokens of a row that may stay are in Lists.
func (t *Sample) listed(row u32) dsl.Pred {
	return dsl.Uniform(t.state(row, stateList), dsl.WarpScope).NeC(0)
}

func (t *Sample) stateF32(row u32, word int) f32 {
	return dsl.Bits[dsl.F32](t.state(row, word))
}

func (t *Sample) set(row u32, word int, v u32) {
	t.State.Store(row.MulC(stateWords).AddC(word), v)
}

// distance of a logit from the highest, beyond draw.Farthest for NaN and -inf.
func distance(k *dsl.Kernel, top, x, nats f32) u32 {
	return dsl.Cast[dsl.U32](top.Sub(x).Mul(nats).Min(k.F32(draw.Farthest + 1)))
}

// Choose finds the tokens after a sync, in every CTA alike: Chosen holds them for all consumer threads on return. bar
// is the grid's barrier. A warp may use Shared until the CTA's next barrier.
func (t *Sample) Choose(e *grid.Env, share product.Share, bar *grid.Barrier) {
	k := e.K
	if t.problem(e) != "" {
		return
	}
	choose := func(row u32, w winner, also func()) {
		w.warp()
		k.If(e.Lane.EqC(0), func() {
			t.Chosen.Store(row, w.Index.Get())
			t.keepLogit(e, row, w)
			also()
		})
	}
	t.ownRows(e, func(row u32) {
		w := newWinner(e)
		tops := dsl.NewArray(k.F32(math.Inf(-1)), pipeline.CeilDiv(e.Grid, dsl.WarpSize), "top_of_cta")
		t.read(e, 0, row, w, tops)
		choose(row, w, func() { k.If(t.truncates(), func() { t.begin(k, row, w) }) })
		topK := dsl.UniformPred(t.has(row, draw.FlagTopK), dsl.WarpScope)
		k.If(t.truncates().And(topK), func() { t.reach(e, row, w, tops) })
	})
	e.Sync()
	k.If(t.truncates(), func() {
		k.For(k.U32(0), k.U32(draw.Searches), func(i u32) {
			k.If(i.LtC(lists), func() { t.list(e, share, bar, i) })
			k.If(t.any(e, t.isSearching), func() { t.search(e, share, bar, i) })
		}, dsl.Unroll(1))
		k.If(t.any(e, t.isAway), func() {
			k.If(t.any(e, func(row u32) dsl.Pred { return t.isAway(row).And(t.state(row, stateList).EqC(0)) }), func() {
				t.pass(e, share, 1)
				bar.Sync()
			})
			t.ownRows(e, func(row u32) {
				k.If(t.in(row, modeAway), func() {
					w := newWinner(e)
					k.IfElse(t.listed(row), func() { t.drawListed(e, row, w) }, func() { t.read(e, 1, row, w, nil) })
					choose(row, w, func() {})
				})
			})
			e.Sync()
		})
	})
	t.remember(e, share)
}

// read meets a row's winners that the CTAs have published; tops gets the highest logits of those that the lane reads,
// unless it is nil.
func (t *Sample) read(e *grid.Env, half int, row u32, w winner, tops []*dsl.Var[dsl.F32]) {
	for from := 0; from < e.Grid; from += dsl.WarpSize {
		cta := e.Lane.AddC(from)
		meet := func() {
			if top := w.meet(t.Records, t.record(e, half, row, cta)); tops != nil {
				tops[from/dsl.WarpSize].Set(top)
			}
		}
		if from+dsl.WarpSize <= e.Grid {
			meet()
		} else {
			e.K.If(cta.LtC(e.Grid), meet)
		}
	}
}

func (t *Sample) isSearching(row u32) dsl.Pred {
	mode := t.state(row, stateMode)
	return mode.EqC(modeTopK).Or(mode.EqC(modeTopP))
}

func (t *Sample) isAway(row u32) dsl.Pred { return t.state(row, stateMode).EqC(modeAway) }

// any is whether one of the step's rows is so.
func (t *Sample) any(e *grid.Env, is func(row u32) dsl.Pred) dsl.Pred {
	k := e.K
	one := dsl.NewVar(k.U32(0), "is")
	k.If(e.Lane.Lt(t.Count), func() { one.Set(dsl.Select(is(e.Lane), k.U32(1), k.U32(0))) })
	return dsl.Uniform(dsl.Select(dsl.Any(one.Get().NeC(0)), k.U32(1), k.U32(0)), dsl.GPUScope).NeC(0)
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
	dist = dsl.Select(drawsFirst(t.param(row, draw.RowFlags)), dist, k.U32(draw.Farthest+1))
	t.State.StoreN(row.MulC(stateWords), []u32{mode, zero, k.U32(draw.TopShift), zero})
	t.State.StoreN(row.MulC(stateWords).AddC(4), []u32{zero, zero, far, dsl.Bits[dsl.U32](top)})
	t.State.StoreN(row.MulC(stateWords).AddC(8), []u32{dist, k.U32(manyNear), zero, zero})
}

// reach finds where the first-level bin ends by which k CTAs have a logit each, so that top-k keeps nothing farther; in
// one warp, each of whose lanes has some CTAs' highest logits.
func (t *Sample) reach(e *grid.Env, row u32, w winner, tops []*dsl.Var[dsl.F32]) {
	k := e.K
	bin, want, nats := dsl.NewVar(k.U32(0), "bin"), t.param(row, draw.RowTopK), t.paramF32(row, draw.RowNats)
	var bins []u32
	for _, top := range tops {
		bins = append(bins, distance(k, w.top.Get(), top.Get(), nats).ShrC(draw.TopShift))
	}
	k.For(k.U32(1), k.U32(draw.BinBits+1), func(i u32) {
		further, n := bin.Get().Add(k.U32(draw.Bins).Shr(i)), k.U32(0)
		for _, b := range bins {
			n = n.Add(dsl.Select(b.Lt(further), k.U32(1), k.U32(0)))
		}
		bin.Set(dsl.Select(dsl.ReduxAdd(n).Lt(want), further, bin.Get()))
	}, dsl.Unroll(1))
	k.If(e.Lane.EqC(0).And(bin.Get().LtC(draw.Bins-1)), func() {
		t.set(row, stateReach, bin.Get().AddC(1).ShlC(draw.TopShift).SubC(1))
	})
}
