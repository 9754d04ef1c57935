package prefill

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
	"github.com/mkgen/mkgen/tasks/product"
)

// Choice is what follows the last tokens of several sequences of a prefill step: their vectors are picked out
// of all, so that the LM head multiplies one tile of tokens, and the largest logit of each is found by the rules of
// Argmax. The last token of sequence i is token i of the picked ones.
type Choice struct {
	Vocab  int              // rows; packed rows beyond are padding
	T      int              // most sequences, at most 16: the tokens of one warp
	Logits dsl.Buf[dsl.F32] // [T][Vocab] out, of the step's sequences
	Best   dsl.Buf[dsl.F32] // [grid][16] each CTA's largest logits, −inf for sequences that it has none of
	Index  dsl.Buf[dsl.U32] // [grid][16] and their rows
	Chosen dsl.Buf[dsl.U32] // [T] out: the tokens that follow

	Norm   *Norm // of the LM head's input; its sums are of the step's tokens
	In     Activations
	All    dsl.Buf[dsl.BF16] // In.Len() long: of the step's tokens
	Out    Activations
	Picked dsl.Buf[dsl.BF16] // Out.Len() long: what no sequence has is as the host left it

	Last func(sequence u32) u32 // the last token of a sequence of the step
	N    u32                    // sequences of the step
}

// pickedTokens is the number of tokens of a warp in a tile.
const pickedTokens = 16

func (t *Choice) problem(e *grid.Env) string {
	return rule.First(
		rule.Need(t.T >= 1 && t.T <= pickedTokens, "choice: %d sequences, want 1 to %d", t.T, pickedTokens),
		rule.Need(int(t.Logits.Len()) >= t.T*t.Vocab && int(t.Chosen.Len()) >= t.T,
			"choice: Logits and Chosen have %d and %d elements, want %d and %d", t.Logits.Len(), t.Chosen.Len(), t.T*t.Vocab,
			t.T),
		rule.Need(int(t.Best.Len()) >= e.Grid*pickedTokens && int(t.Index.Len()) >= e.Grid*pickedTokens,
			"choice: Best and Index have %d and %d elements, want %d", t.Best.Len(), t.Index.Len(), e.Grid*pickedTokens),
		rule.Need(t.In.K == t.Out.K && t.In.K%8 == 0 && int(t.All.Len()) >= t.In.Len() && int(t.Picked.Len()) >= t.Out.Len(),
			"choice: vectors of %d and %d elements, %d and %d in all, want multiples of 8, equal, %d and %d", t.In.K, t.Out.K,
			t.All.Len(), t.Picked.Len(), t.In.Len(), t.Out.Len()))
}

// Pick copies the vectors of the last tokens. The warps of all CTAs share the work.
func (t *Choice) Pick(e *grid.Env) {
	k, units := e.K, t.In.K/8
	if p := t.problem(e); p != "" {
		k.Require(false, "%s", p)
		return
	}
	from, to := dsl.View[dsl.B128](t.All), dsl.View[dsl.B128](t.Picked)
	k.ForStep(e.CTA.MulC(e.Threads()).Add(e.Tid), t.N.MulC(units), e.Grid*e.Threads(), func(i u32) {
		sequence, element := i.DivC(units).Named("sequence"), i.RemC(units).MulC(8)
		to.Store(t.Out.At(sequence, element).DivC(8), from.Load(t.In.At(t.Last(sequence), element).DivC(8)))
	}, dsl.Unroll(1))
}

// Start begins a search in the consumer warps. It returns the LM head's epilogue over the picked tokens, whose logits
// final makes of products and the norm's scale, and publish, to be run by all consumer warps behind the last tile.
func (t *Choice) Start(e *grid.Env, final func(y, scale f32) f32) (epilogue Epilogue, publish func()) {
	k := e.K
	if p := t.problem(e); p != "" {
		k.Require(false, "%s", p)
		return func(*Part) {}, func() {}
	}
	bests := [2]product.Best{product.NewBest(e), product.NewBest(e)}
	epilogue = func(p *Part) {
		k.Note("logits of each sequence's last token, and the largest")
		var scale [2]f32
		for half, token := range p.Tokens {
			scale[half] = t.Norm.Of(e, t.Last(token.Min(t.N.SubC(1))))
		}
		p.Each(func(v Pair) {
			token, b := p.Tokens[v.Half], bests[v.Half]
			for i, y := range []f32{v.Y0, v.Y1} {
				row := v.Row.AddC(i)
				k.If(token.Lt(t.N).And(row.LtC(t.Vocab)), func() {
					y := final(y, scale[v.Half])
					t.Logits.Store(token.MulC(t.Vocab).Add(row), y)
					b.Take(y, row)
				})
			}
		})
	}
	return epilogue, func() {
		k.Note("the CTA's largest logits of each sequence, the lowest index of several")
		for half, b := range bests {
			b.Lanes(4)
			k.If(e.Warp.EqC(0).And(e.Lane.AndC(3).EqC(0)), func() {
				at := e.CTA.MulC(pickedTokens).Add(e.Lane.DivC(4)).AddC(8 * half)
				t.Best.Store(at, b.Value.Get())
				t.Index.Store(at, b.Index.Get())
			})
		}
	}
}

// Choose finds the tokens after a sync: the warps of the first CTA take sequences in turns.
func (t *Choice) Choose(e *grid.Env) {
	k := e.K
	k.If(e.CTA.EqC(0), func() {
		k.ForStep(e.Warp, t.N, e.Consumers, func(sequence u32) {
			b := product.NewBest(e)
			for from := 0; from < e.Grid; from += dsl.WarpSize {
				i := e.Lane.AddC(from)
				at := i.MulC(pickedTokens).Add(sequence)
				k.If(i.LtC(e.Grid), func() { b.Take(t.Best.Load(at), t.Index.Load(at)) })
			}
			b.Warp()
			k.If(e.Lane.EqC(0), func() { t.Chosen.Store(sequence, b.Index.Get()) })
		}, dsl.Unroll(1))
	})
}
