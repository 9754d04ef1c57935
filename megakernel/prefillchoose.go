package megakernel

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/prefill"
	"github.com/mkgen/mkgen/tasks/product"
)

// declareArgmax declares the choice of a token behind the one sequence of a step.
func (f *prefillFlow) declareArgmax() {
	if f.p.Options.several() {
		return // see declareChoice
	}
	mk, k, o := f.mk, f.k, &f.mk.Options
	c := &mk.Config
	f.argmax = &product.Argmax{Vocab: c.Vocab,
		Logits: dsl.Global[dsl.F32](k, "logits", elements(c.Vocab), dsl.Align(16),
			bufDoc("[%d] out, of the last token", c.Vocab)),
		Best:  dsl.Global[dsl.F32](k, "best", elements(o.SMs), bufDoc("[%d] each SM's largest logit", o.SMs)),
		Index: dsl.Global[dsl.U32](k, "best_index", elements(o.SMs), bufDoc("[%d] and its row", o.SMs))}
	f.chosen = dsl.Global[dsl.U32](k, BufferChosen, 1, bufDoc("out: the token that follows the last one"))
}

// declareChoice declares the choice of a token behind each sequence.
func (f *prefillFlow) declareChoice() {
	c, o, k, sms := &f.mk.Config, &f.p.Options, f.k, f.mk.Options.SMs
	buf := func(name string, n int64, format string, args ...any) dsl.Buf[dsl.U32] {
		return dsl.Global[dsl.U32](k, name, n, bufDoc(format, args...))
	}
	f.several.head = prefill.Activations{K: c.Hidden, T: o.Padded()}
	f.several.choice = &prefill.Choice{Vocab: c.Vocab, T: o.Sequences,
		Logits: dsl.Global[dsl.F32](k, "logits", elements(o.Sequences, c.Vocab), dsl.Align(16),
			bufDoc("[%d][%d] out, of each sequence's last token", o.Sequences, c.Vocab)),
		Best: dsl.Global[dsl.F32](k, "best", elements(sms, 16),
			bufDoc("[%d][16] each SM's largest logits", sms)),
		Index:  buf("best_index", elements(sms, 16), "[%d][16] and their rows", sms),
		Chosen: buf(BufferChosen, elements(o.Sequences), "out: the tokens that follow each sequence's last one"),
		In:     f.activations(c.Hidden), All: f.normed, Out: f.several.head,
		Picked: dsl.Global[dsl.BF16](k, BufferPicked, int64(f.several.head.Len()), dsl.Align(16),
			bufDoc("[%d][%d] vectors of each sequence's last token, as tiles of 8 tokens", o.Padded(), c.Hidden)),
		Last: func(sequence dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
			w := f.several.sequences.LoadN(sequence.MulC(PrefillSequenceWords), 2)
			return w[PrefillFirst].Add(w[PrefillCount]).SubC(1)
		},
		N: f.several.count}
}

// BufferPicked are the vectors that the LM head of a kernel of several sequences multiplies; 0 where there are none.
const BufferPicked = "picked"

// only is the span of the last tile of tokens, or of picked ones.
func (f *prefillFlow) only() prefill.Span {
	if f.p.Options.several() {
		return prefill.Span{N: f.several.count}
	}
	always := f.count.GeC(1)
	return prefill.Span{N: f.count, Last: &always}
}

// choose is the LM head for the last token, and the largest of its logits.
func (f *prefillFlow) choose() {
	if f.p.Options.several() {
		f.chooseSeveral()
		return
	}
	e := f.env
	head := f.p.matrix(prefillHead)
	f.phase(head.Name, false, func() {
		scale := f.final.Of(e, f.count.SubC(1))
		by := scale
		if !f.mk.plainLogits() {
			by = f.k.F32(1)
		}
		of, publish := f.argmax.Start(e, product.KnownScale(by))
		search := of
		if !f.mk.plainLogits() {
			search = func(row dsl.Val[dsl.U32], y0, y1 dsl.Val[dsl.F32]) {
				of(row, f.logit(y0.Mul(scale)), f.logit(y1.Mul(scale)))
			}
		}
		if g := f.gemms[prefillHead]; g != nil {
			g.Consume(e, f.cons, f.ring, f.k.U32(0), f.only(), f.p.stageBytes, prefill.Logits(e, f.count, search))
		} else {
			(&prefill.Head{M: head, Plan: f.mk.Plan, Weights: f.bufs.weights, In: f.activations(head.K),
				X: f.normed}).Emit(e, f.count.SubC(1), search)
		}
		publish()
	})
	f.k.Region("choose", func() {
		token := f.argmax.Choose(e)
		f.k.If(e.CTA.EqC(0).And(e.Tid.EqC(0)), func() { f.chosen.Store(dsl.At(0), token) })
	})
}

// chooseSeveral is choose for the last token of each sequence.
func (f *prefillFlow) chooseSeveral() {
	e, c, head := f.env, f.several.choice, f.gemms[prefillHead]
	c.Norm = f.final
	f.phase("pick", true, func() { c.Pick(e) })
	f.phase(head.Name, false, func() {
		epilogue, publish := c.Start(e, func(y, scale dsl.Val[dsl.F32]) dsl.Val[dsl.F32] {
			if f.mk.plainLogits() {
				return y.Mul(scale)
			}
			return f.logit(y.Mul(scale))
		})
		head.Consume(e, f.cons, f.ring, f.k.U32(0), f.only(), f.p.stageBytes, epilogue)
		publish()
	})
	f.k.Region("choose", func() { c.Choose(e) })
}
