package megakernel

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/draw"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/product"
	"github.com/mkgen/mkgen/tasks/sample"
)

// BufferDraws is the buffer of the rows' parameters of sampling, [rows][draw.RowWords]. The kernel reads it in launches
// whose ScalarDraws is not 0.
const BufferDraws = "draws"

// BufferScores is where rows that want them have their scores, [rows][draw.ScoredSteps][draw.ScoreWords(SMs)]: those of
// the token at a position of its sequence are at the position modulo draw.ScoredSteps. It has meaning behind a launch's
// end.
const BufferScores = "draw_scores"

// BufferHistories has what changes the logits of rows, [rows][draw.HistoryWords], of those rows whose parameters have
// draw.FlagChanges and name it: draw.History as encoded. The kernel adds the tokens that such a row chooses.
const BufferHistories = "draw_histories"

// BufferTokenMasks has the tokens that rows may choose whose parameters have draw.FlagMask, [rows][draw.MaskWords]. The
// host may write those of a step while the kernel runs, once it has seen what the step before chose.
const BufferTokenMasks = "token_masks"

// BufferMasksReady has one word: of how many steps of the launch the masks have been in BufferTokenMasks. Behind the LM
// head of a step a launch with masks waits until this word counts the step, too. AllMasks counts them all.
const BufferMasksReady = "masks_ready"

// AllMasks in BufferMasksReady has masks hold for every step of the launch.
const AllMasks = 1 << 30

// BufferRawLogits has the logits of rows with a history or a mask as the model made them, [rows][vocabulary]; the
// buffer of logits has them changed.
const BufferRawLogits = "raw_logits"

// ScalarDraws says what a launch's rows need: 0 where each takes its highest logit, else draw.Mode… bits.
const ScalarDraws = "draw_modes"

// drawing is what the draws of tokens need.
type drawing struct {
	draws   dsl.Buf[dsl.U32] // the rows' parameters
	records dsl.Buf[dsl.U32]
	bins    dsl.Buf[dsl.U32]
	lists   dsl.Buf[dsl.U32]
	scores  dsl.Buf[dsl.U32]
	tops    dsl.Buf[dsl.U32]
	modes   dsl.Val[dsl.U32]

	histories dsl.Buf[dsl.U32]
	masks     dsl.Buf[dsl.U32]
	ready     dsl.Buf[dsl.U32]
	raw       dsl.Buf[dsl.F32]
}

// Draws reports whether the kernel draws tokens; one that does not takes the highest logit in every launch.
func (mk *Kernel) Draws() bool { return mk.Options.Draws }

// drawScratch is how many bytes of memory that nothing uses behind the LM head a draw takes.
func (mk *Kernel) drawScratch() int {
	if !mk.Draws() {
		return 0
	}
	return 4 * sample.SampleSharedLen(mk.Options.Tokens)
}

func (mk *Kernel) declareDrawing(k *dsl.Kernel, b *buffers) {
	if !mk.Draws() {
		return
	}
	o := &mk.Options
	d := &b.drawing
	d.draws = dsl.Global[dsl.U32](k, BufferDraws, elements(o.Tokens, draw.RowWords), dsl.ReadOnly(), dsl.Align(16),
		bufDoc("[%d][%d] how each row draws its token", o.Tokens, draw.RowWords))
	d.records = dsl.Global[dsl.U32](k, "draw_records", int64(sample.SampleRecordsLen(o.Tokens, o.SMs)), dsl.Align(16),
		bufDoc("[2][%d][%d][4] what each SM has for each row", o.Tokens, o.SMs))
	d.bins = dsl.Global[dsl.U32](k, "draw_bins", int64(sample.SampleBinsLen(o.Tokens)), dsl.Align(16),
		bufDoc("[%d][%d][%d][2] histograms of logits; [2][%d] how many tokens draw_lists was to have", draw.Searches,
			o.Tokens, draw.Bins, o.Tokens))
	listed := draw.Listed(mk.Config.Vocab)
	d.lists = dsl.Global[dsl.U32](k, "draw_lists", int64(sample.SampleListsLen(o.Tokens, mk.Config.Vocab)), dsl.Align(16),
		bufDoc("[%d][%d][2] logits and tokens that may stay, where they are few", o.Tokens, listed))
	d.scores = dsl.Global[dsl.U32](k, BufferScores, int64(sample.SampleScoresLen(o.Tokens, o.SMs)), dsl.Align(16),
		bufDoc("[%d][%d][%d] what log-probabilities are made of, by the token's position modulo %d", o.Tokens,
			draw.ScoredSteps, draw.ScoreWords(o.SMs), draw.ScoredSteps))
	d.tops = dsl.Global[dsl.U32](k, "draw_tops", int64(sample.SampleTopsLen(o.Tokens, o.SMs)), dsl.Align(16),
		bufDoc("[%d][%d][%d][%d][2] each SM's highest logits and their tokens, by the token's position modulo %d", o.Tokens,
			draw.ScoredSteps, o.SMs, draw.MaxTops, draw.ScoredSteps))
	vocab := mk.Config.Vocab
	d.histories = dsl.Global[dsl.U32](k, BufferHistories, elements(o.Tokens, draw.HistoryWords(vocab)), dsl.Align(16),
		bufDoc("[%d][2][%d] what changes logits: biases, then how often tokens were there", o.Tokens, vocab))
	d.masks = dsl.Global[dsl.U32](k, BufferTokenMasks, elements(o.Tokens, draw.MaskWords(vocab)), dsl.HostWrites(),
		dsl.Align(16), bufDoc("[%d][%d] a bit for each token that may be chosen", o.Tokens, draw.MaskWords(vocab)))
	d.ready = dsl.Global[dsl.U32](k, BufferMasksReady, 1, dsl.HostWrites(),
		bufDoc("of how many steps of the launch the masks have been there"))
	d.raw = dsl.Global[dsl.F32](k, BufferRawLogits, elements(o.Tokens, vocab), dsl.Align(16),
		bufDoc("[%d][%d] logits before they were changed", o.Tokens, vocab))
	d.modes = dsl.Scalar[dsl.U32](k, ScalarDraws,
		"0: every row takes its highest logit; else bits: 1: rows draw; 2: some truncate; 4: some have log-probabilities; 8: some have histories or masks; 16: some have masks")
}

// regionDraws is the shared memory of the rows' state while they draw.
const regionDraws = "draw_state"

// drawRegions are that region, or none where the kernel does not draw.
func (mk *Kernel) drawRegions() []pipeline.Region {
	if !mk.Draws() {
		return nil
	}
	return []pipeline.Region{{Name: regionDraws, Bytes: 4 * sample.SampleStateLen(mk.Options.Tokens), Align: 16}}
}

// sampler is the template that draws tokens, nil where the kernel does not; shared is memory that nothing uses behind
// the LM head.
func (b *builder) sampler(count dsl.Val[dsl.U32], shared dsl.Buf[dsl.F32]) *sample.Sample {
	if !b.mk.Draws() {
		return nil
	}
	d, r := &b.bufs.drawing, b.mk.Plan.Region(regionDraws)
	state := dsl.Shared[dsl.U32](b.k, regionDraws, r.Bytes/4, dsl.PlaceAt(r.Offset), dsl.Align(16),
		dsl.Doc("how far each row's draw is"))
	return &sample.Sample{Vocab: b.mk.Config.Vocab, T: b.mk.Options.Tokens, Count: count, Modes: d.modes, Rows: d.draws,
		Logits: b.bufs.logits, Records: d.records, Bins: d.bins, Lists: d.lists, Scores: d.scores, Histories: d.histories,
		Masks: d.masks, Tops: d.tops, Ready: d.ready, Raw: d.raw, Shared: dsl.View[dsl.U32](shared), State: state}
}

// publish publishes what the SM found behind the LM head: its highest logits, which published returns, and its part of
// a draw.
func (b *builder) publish(highest func(), published func(e *grid.Env) product.Best) {
	highest()
	if b.sample == nil {
		return
	}
	b.k.If(b.bufs.modes.NeC(0), func() {
		b.sample.First(b.env, b.own.matrix(layerMatrices), func() product.Best { return published(b.env) })
	})
}

// pick finds the tokens behind the LM head's sync: those drawn, or those of the highest logits.
func (b *builder) pick(drawn, highest func()) {
	if b.sample == nil {
		highest()
		return
	}
	b.k.IfElse(b.bufs.modes.NeC(0), func() {
		b.sample.Choose(b.env, b.own.matrix(layerMatrices), b.bar)
		drawn()
	}, highest)
}

// merge finds, behind a step that chose its tokens, the highest logits of rows that want them, where it is time to.
func (b *builder) merge(running *dsl.Var[dsl.U32]) {
	if b.sample != nil {
		b.sample.Merge(b.env, running.Get().EqC(0).Or(b.sample.Step.AddC(1).Eq(b.bufs.steps)))
	}
}

// DrawBarriers is how often all SMs meet to draw the tokens of a step, at most.
func (mk *Kernel) DrawBarriers() int {
	if !mk.Draws() {
		return 0
	}
	return draw.Searches + 3
}
