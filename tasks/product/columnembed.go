package product

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
)

// embedBlock is how many columns of a vector a warp makes at once: 4 a lane.
const embedBlock = 4 * dsl.WarpSize

// EmbedColumns makes the step's first residual vectors, the tokens' embeddings, and
// what the first product wants of them, as AddResidualColumns does. CTA c makes
// columns 128c … 128c+127, and so on behind those of all CTAs.
type EmbedColumns struct {
	Out  Activations       // of the first product: K is the vectors' length
	X    dsl.Buf[dsl.F32]  // [T][K] residual vectors out
	Next dsl.Buf[dsl.BF16] // x·gain out, Out.Len() long
	Gain dsl.Buf[dsl.BF16] // [norms][K]
	SQ   dsl.Buf[dsl.F32]  // [grid][padded T] out: sums of squares, zeros where there is nothing

	PlusOne bool // the factor of an element is 1 + gain
	None    bool // the first product has no norm before it: Next is x itself, and Gain is not read

	// Row is a token's embedding, such as Embedding.Row.
	Row func(e *grid.Env, token u32) Vector
}

func (t *EmbedColumns) problem(e *grid.Env) string {
	p := t.Out.Padded()
	return rule.First(
		rule.Sound(t.Out.problem("embedding", t.Next)),
		rule.Need(int(t.X.Len()) >= t.Out.T*t.Out.K, "embedding: X has %d elements, want %d", t.X.Len(), t.Out.T*t.Out.K),
		rule.Need(int(t.SQ.Len()) >= e.Grid*p, "embedding: SQ has %d elements, want %d", t.SQ.Len(), e.Grid*p))
}

// Emit runs in the consumer warps, for n tokens; id is the vocabulary's number of
// the t-th, the same in all lanes of a warp. norm is the first norm's row of Gain.
func (t *EmbedColumns) Emit(e *grid.Env, n, norm u32, id func(t u32) u32) {
	k := e.K
	if p := t.problem(e); p != "" {
		k.Require(false, "%s", p)
		return
	}
	padded := t.Out.Padded()
	k.ForStep(e.Warp, k.U32(padded), e.Consumers, func(token u32) {
		squares := dsl.NewVar(k.F32(0), "squares")
		k.If(token.Lt(n), func() {
			row := t.Row(e, id(token))
			blocks := pipeline.CeilDiv(t.Out.K, embedBlock)
			k.ForStep(e.CTA, k.U32(blocks), e.Grid, func(block u32) {
				at := block.MulC(embedBlock).Add(e.Lane.MulC(4))
				if t.Out.K%embedBlock == 0 {
					t.four(e.K, token, at, norm, row, squares)
				} else {
					k.If(at.LtC(t.Out.K), func() { t.four(e.K, token, at, norm, row, squares) })
				}
			}, dsl.Unroll(1))
		})
		sum := dsl.WarpSum(squares.Get())
		k.If(e.Lane.EqC(0), func() { t.SQ.Store(e.CTA.MulC(padded).Add(token), sum) })
	}, dsl.Unroll(1))
}

// four makes four elements of a token's vector.
func (t *EmbedColumns) four(k *dsl.Kernel, token, at, norm u32, row Vector, squares *dsl.Var[dsl.F32]) {
	x := row(at)
	if t.None {
		dsl.Optional(norm)
		t.X.StoreN(token.MulC(t.Out.K).Add(at), x)
		t.Out.store(k, t.Next, token, at, x...)
		return
	}
	g := dsl.View[dsl.BF16x2](t.Gain).LoadN(norm.MulC(t.Out.K).Add(at).DivC(2), 2, dsl.CacheHint(dsl.NonCoherent))
	t.X.StoreN(token.MulC(t.Out.K).Add(at), x)
	scaled := make([]f32, 0, 4)
	s := squares.Get()
	for i, p := range g {
		lo, hi := GainsOf(k, p, t.PlusOne)
		scaled = append(scaled, x[2*i].Mul(lo), x[2*i+1].Mul(hi))
		s = dsl.FMA(x[2*i+1], x[2*i+1], dsl.FMA(x[2*i], x[2*i], s))
	}
	squares.Set(s)
	t.Out.store(k, t.Next, token, at, scaled...)
}
