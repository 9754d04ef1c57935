package prefill

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/product"
)

// Norm is RMSNorm's scale of the tokens of a prefill step, 1/√(mean(x²) + ε), from sums of squares in parts.
type Norm struct {
	N     int              // length of the vectors
	Eps   float64          // ε
	SQ    dsl.Buf[dsl.F32] // [tokens][Parts] sums of squares
	Parts int
}

// Of is a token's scale; 1 where t is nil. Four lanes that differ in their last two bits have the same token.
func (t *Norm) Of(e *grid.Env, token u32) f32 {
	if t == nil {
		return e.K.F32(1)
	}
	var parts []f32
	at, step := token.MulC(t.Parts), 1
	quarters := t.Parts%16 == 0 // each lane has a quarter of the parts
	if quarters {
		at, step = at.Add(e.Lane.RemC(4).MulC(4)), 16
	}
	for i := 0; i < t.Parts; i += step {
		parts = append(parts, t.SQ.LoadN(at.AddC(i), min(step, 4))...)
	}
	sum := parts[0]
	for _, part := range parts[1:] {
		sum = sum.Add(part)
	}
	for d := 1; quarters && d < 4; d *= 2 {
		sum = sum.Add(dsl.ShflXor(sum, d))
	}
	return dsl.Rsqrt(sum.Mul(e.K.F32(1 / float64(t.N))).Add(e.K.F32(t.Eps)))
}

// Residual is what keeps the residual vectors of a prefill step and makes the next product's input of them.
type Residual struct {
	Out     Activations       // of the next product: K is the vectors' length
	X       dsl.Buf[dsl.F32]  // [T][K] residual vectors
	Next    dsl.Buf[dsl.BF16] // x·gain out, Out.Len() long
	Gain    dsl.Buf[dsl.BF16] // [norms][K]
	Norm    Norm              // whose sums are written
	PlusOne bool              // the factor of an element is 1 + gain
	None    bool              // the next product has no norm before it: Next is x itself, and Gain is not read
}

// Epilogue is x += factor·(y + bias) of a projection back into the residual vectors, whose tiles are the parts of the
// sums of squares. norm is the next norm's row of Gain; bias may be nil.
func (t *Residual) Epilogue(e *grid.Env, norm u32, bias product.Rows, factor float64) Epilogue {
	k := e.K
	return func(p *Part) {
		k.Note("the residual vectors plus the sums, what the next product takes of them, and their squares")
		squares := dsl.NewArray(k.F32(0), 2, "squares")
		p.Each(func(v Pair) {
			token := p.Tokens[v.Half]
			y0, y1 := product.WithBias(e, bias, factor, v.Row, v.Y0, v.Y1)
			at := token.MulC(t.Out.K).Add(v.Row)
			x := t.X.LoadN(at, 2)
			t.keep(k, token, at, v.Row, norm, []f32{x[0].Add(y0), x[1].Add(y1)}, squares[v.Half])
		})
		t.Norm.publish(e, p, squares)
	}
}

// publish stores what a thread's part of a tile adds to the sums of squares.
func (t *Norm) publish(e *grid.Env, p *Part, squares []*dsl.Var[dsl.F32]) {
	for half, s := range squares {
		sum := s.Get()
		for d := 1; d < 4; d *= 2 {
			sum = sum.Add(dsl.ShflXor(sum, d))
		}
		e.K.If(e.Lane.AndC(3).EqC(0), func() { t.SQ.Store(p.Tokens[half].MulC(t.Parts).Add(p.Tile), sum) })
	}
}

// keep stores neighbouring elements of a token's vector, from element row on at at in X, and what the next product has
// of them.
func (t *Residual) keep(k *dsl.Kernel, token, at, row, norm u32, x []f32, squares *dsl.Var[dsl.F32]) {
	var next []pair
	if t.None {
		dsl.Optional(norm)
		t.X.StoreN(at, x)
		for i := 0; i < len(x); i += 2 {
			next = append(next, dsl.Pack[dsl.BF16x2](x[i], x[i+1]))
		}
		dsl.View[dsl.BF16x2](t.Next).StoreN(t.Out.At(token, row).DivC(2), next)
		return
	}
	gains := dsl.View[dsl.BF16x2](t.Gain).LoadN(norm.MulC(t.Out.K/2).Add(row.DivC(2)), len(x)/2,
		dsl.CacheHint(dsl.NonCoherent))
	t.X.StoreN(at, x)
	s := squares.Get()
	for i, g := range gains {
		lo, hi := product.GainsOf(k, g, t.PlusOne)
		next = append(next, dsl.Pack[dsl.BF16x2](x[2*i].Mul(lo), x[2*i+1].Mul(hi)))
		s = dsl.FMA(x[2*i+1], x[2*i+1], dsl.FMA(x[2*i], x[2*i], s))
	}
	squares.Set(s)
	dsl.View[dsl.BF16x2](t.Next).StoreN(t.Out.At(token, row).DivC(2), next)
}

// Embed makes the vectors of n tokens, and zeros for those that pad them up to a multiple of padded. A warp makes a
// token's, whose sum of squares is the first part.
func (t *Residual) Embed(e *grid.Env, n, norm u32, padded int, id func(token u32) u32,
	embedding func(e *grid.Env, token u32) product.Vector) {
	t.each(e, Span{N: n}, norm, padded, 1, func(token u32) product.Vector {
		return embedding(e,
			id(token.Min(n.SubC(1))))
	})
}

// Add adds a branch, behind its own norm, to the vectors of a span's tokens, as Embed makes them.
func (t *Residual) Add(e *grid.Env, span Span, norm u32, padded int, b *Branch, gain u32) {
	t.each(e, span, norm, padded, 2, func(token u32) product.Vector {
		scale := e.K.F32(1)
		if !b.Unscaled {
			scale = b.Norm.Of(e, token).Named("branch_scale")
		}
		added := &product.AddedColumns{N: t.Out.K, X: t.X, Y: b.Y, Gain: t.Gain, PlusOne: b.PlusOne, Factor: b.Factor,
			Scale: func(u32) f32 { return scale }}
		return added.Row(e, token, gain)
	})
}

// each makes the vectors of a span's tokens, of row, and zeros for those that pad them, unroll times 128 elements at a
// time.
func (t *Residual) each(e *grid.Env, span Span, norm u32, padded, unroll int, row func(token u32) product.Vector) {
	k, n := e.K, span.N
	if t.Out.K%4 != 0 {
		k.Require(false, "embedding: vectors of %d elements, want a multiple of 4", t.Out.K)
		return
	}
	all, count, from := span.tiles(k, padded)
	dsl.Optional(count)
	k.Note("residual vectors, a token a warp; zeros for tokens that pad a tile")
	first := from.MulC(padded).Add(e.CTA.MulC(e.Consumers).Add(e.Warp))
	k.ForStep(first, all.MulC(padded), e.Grid*e.Consumers, func(token u32) {
		squares := dsl.NewVar(k.F32(0), "squares")
		row := row(token)
		k.ForStep(e.Lane, k.U32(t.Out.K/4), dsl.WarpSize, func(i u32) {
			at := i.MulC(4)
			x := row(at)
			for i := range x {
				x[i] = dsl.Select(token.Lt(n), x[i], k.F32(0))
			}
			t.keep(k, token, token.MulC(t.Out.K).Add(at), at, norm, x, squares)
		}, dsl.Unroll(unroll))
		if t.None {
			return
		}
		sum := dsl.WarpSum(squares.Get())
		k.ForStep(e.Lane, k.U32(t.Norm.Parts), dsl.WarpSize, func(part u32) {
			t.Norm.SQ.Store(token.MulC(t.Norm.Parts).Add(part), dsl.Select(part.EqC(0), sum, k.F32(0)))
		}, dsl.Unroll(1))
	}, dsl.Unroll(1))
}

// Branch is what attention or the MLP adds to the residual vectors behind a norm of its own.
type Branch struct {
	N        int              // length of the vectors
	Y        dsl.Buf[dsl.F32] // [T][N] before the norm
	Norm     Norm             // of Y
	PlusOne  bool             // the factor of an element is 1 + gain
	Factor   float64          // of norm(y)
	Unscaled bool             // plants a fault: y gets its gains, and no more
}

// Epilogue is y + bias of the branch's last projection, whose tiles are the parts of the sums of squares. bias may be
// nil.
func (b *Branch) Epilogue(e *grid.Env, bias product.Rows) Epilogue {
	return func(p *Part) {
		squares := dsl.NewArray(e.K.F32(0), 2, "squares")
		p.Each(func(v Pair) {
			y0, y1 := product.WithBias(e, bias, 1, v.Row, v.Y0, v.Y1)
			b.Y.StoreN(p.Tokens[v.Half].MulC(b.N).Add(v.Row), []f32{y0, y1})
			s := squares[v.Half]
			s.Set(dsl.FMA(y1, y1, dsl.FMA(y0, y0, s.Get())))
		})
		b.Norm.publish(e, p, squares)
	}
}

// GLU is GLU.Epilogue of a prefill step's tokens; out.K is half the matrix's rows. norm is of the product's input.
func GLU(g product.GLU, e *grid.Env, out Activations, act dsl.Buf[dsl.BF16], norm *Norm) Epilogue {
	return func(p *Part) {
		e.K.Note("the activation of gate, times up")
		scales := [2]f32{norm.Of(e, p.Tokens[0]), norm.Of(e, p.Tokens[1])}
		p.Each(func(v Pair) {
			gate, up := g.Of(e.K, v.Row, v.Y0, v.Y1, scales[v.Half])
			act.Store(out.At(p.Tokens[v.Half], v.Row.DivC(2)), dsl.Cast[dsl.BF16](gate.Mul(up)))
		})
	}
}

// Logits is the epilogue of an LM head whose logits are wanted of the step's last token, the last of n, alone.
// The others' are not stored. search is begun before the first tile, of that token's scale, see Argmax.Start.
func Logits(e *grid.Env, n u32, search product.Epilogue) Epilogue {
	return func(p *Part) {
		e.K.Note("logits of the step's last token, and the largest")
		p.Each(func(v Pair) {
			e.K.If(p.Tokens[v.Half].AddC(1).Eq(n), func() { search(v.Row, v.Y0, v.Y1) })
		})
	}
}
