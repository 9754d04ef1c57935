package tasks

import (
	"cmp"
	"math"

	"github.com/mkgen/mkgen/dsl"
)

// PrefillNorm is RMSNorm's scale of the tokens of a prefill step, 1/√(mean(x²) + ε), from sums of squares in parts.
type PrefillNorm struct {
	N     int              // length of the vectors
	Eps   float64          // ε
	SQ    dsl.Buf[dsl.F32] // [tokens][Parts] sums of squares
	Parts int
}

// Of is a token's scale. Four lanes that differ in their last two bits have the same token.
func (t *PrefillNorm) Of(e *Env, token u32) f32 {
	sum, at := e.K.F32(0), token.MulC(t.Parts)
	if t.Parts%16 == 0 { // each has a quarter of the parts
		at = at.Add(e.Lane.RemC(4).MulC(4))
		for i := 0; i < t.Parts; i += 16 {
			for _, part := range t.SQ.LoadN(at.AddC(i), 4) {
				sum = sum.Add(part)
			}
		}
		for d := 1; d < 4; d *= 2 {
			sum = sum.Add(dsl.ShflXor(sum, d))
		}
	} else {
		for i := range t.Parts {
			sum = sum.Add(t.SQ.Load(at.AddC(i)))
		}
	}
	return dsl.Rsqrt(sum.Mul(e.K.F32(1 / float64(t.N))).Add(e.K.F32(t.Eps)))
}

// PrefillResidual is what keeps the residual vectors of a prefill step and makes the next product's input of them.
type PrefillResidual struct {
	Out  PrefillActivations // of the next product: K is the vectors' length
	X    dsl.Buf[dsl.F32]   // [T][K] residual vectors
	Next dsl.Buf[dsl.BF16]  // x·gain out, Out.Len() long
	Gain dsl.Buf[dsl.BF16]  // [norms][K]
	Norm PrefillNorm        // whose sums are written
}

// Epilogue is x += y of a projection back into the residual vectors, whose tiles are the parts of the sums of squares.
// norm is the next norm's row of Gain.
func (t *PrefillResidual) Epilogue(e *Env, norm u32) PrefillEpilogue {
	k := e.K
	return func(tokens [2]u32, tile u32) (func(half int, row u32, y0, y1 f32), func()) {
		squares := dsl.NewArray(k.F32(0), 2, "squares")
		each := func(half int, row u32, y0, y1 f32) {
			at := tokens[half].MulC(t.Out.K).Add(row)
			x := t.X.LoadN(at, 2)
			t.keep(k, tokens[half], at, row, norm, []f32{x[0].Add(y0), x[1].Add(y1)}, squares[half])
		}
		return each, func() {
			for half, s := range squares {
				sum := s.Get()
				for d := 1; d < 4; d *= 2 {
					sum = sum.Add(dsl.ShflXor(sum, d))
				}
				k.If(e.Lane.AndC(3).EqC(0), func() { t.Norm.SQ.Store(tokens[half].MulC(t.Norm.Parts).Add(tile), sum) })
			}
		}
	}
}

// keep stores neighbouring elements of a token's vector, from element row on at at in X, and what the next product has
// of them.
func (t *PrefillResidual) keep(k *dsl.Kernel, token, at, row, norm u32, x []f32, squares *dsl.Var[dsl.F32]) {
	gains := dsl.View[dsl.BF16x2](t.Gain).LoadN(norm.MulC(t.Out.K/2).Add(row.DivC(2)), len(x)/2, dsl.CacheHint(dsl.NonCoherent))
	t.X.StoreN(at, x)
	var next []pair
	s := squares.Get()
	for i, g := range gains {
		lo, hi := dsl.Unpack(g)
		next = append(next, dsl.Pack[dsl.BF16x2](x[2*i].Mul(lo), x[2*i+1].Mul(hi)))
		s = dsl.FMA(x[2*i+1], x[2*i+1], dsl.FMA(x[2*i], x[2*i], s))
	}
	squares.Set(s)
	dsl.View[dsl.BF16x2](t.Next).StoreN(t.Out.At(token, row).DivC(2), next)
}

// Embed makes the vectors of n tokens, and zeros for those that pad them up to a multiple of padded. A warp makes a
// token's, whose sum of squares is the first part.
func (t *PrefillResidual) Embed(e *Env, n, norm u32, padded int, id func(token u32) u32, embedding func(e *Env, token u32) Vector) {
	k := e.K
	if t.Out.K%4 != 0 {
		k.Require(false, "embedding: vectors of %d elements, want a multiple of 4", t.Out.K)
		return
	}
	first := e.CTA.MulC(e.Consumers).Add(e.Warp)
	k.ForStep(first, n.AddC(padded-1).DivC(padded).MulC(padded), e.Grid*e.Consumers, func(token u32) {
		squares := dsl.NewVar(k.F32(0), "squares")
		row := embedding(e, id(token.Min(n.SubC(1))))
		k.ForStep(e.Lane, k.U32(t.Out.K/4), dsl.WarpSize, func(i u32) {
			at := i.MulC(4)
			x := row(at, 4)
			for i := range x {
				x[i] = dsl.Select(token.Lt(n), x[i], k.F32(0))
			}
			t.keep(k, token, token.MulC(t.Out.K).Add(at), at, norm, x, squares)
		}, dsl.Unroll(1))
		sum := dsl.WarpSum(squares.Get())
		k.ForStep(e.Lane, k.U32(t.Norm.Parts), dsl.WarpSize, func(part u32) {
			t.Norm.SQ.Store(token.MulC(t.Norm.Parts).Add(part), dsl.Select(part.EqC(0), sum, k.F32(0)))
		}, dsl.Unroll(1))
	}, dsl.Unroll(1))
}

// PrefillSwiGLU is SwiGLU's epilogue; out.K is half the matrix's rows.
func PrefillSwiGLU(e *Env, out PrefillActivations, act dsl.Buf[dsl.BF16], norm *PrefillNorm) PrefillEpilogue {
	k := e.K
	return func(tokens [2]u32, _ u32) (func(half int, row u32, y0, y1 f32), func()) {
		scales := [2]f32{norm.Of(e, tokens[0]), norm.Of(e, tokens[1])}
		return func(half int, row u32, y0, y1 f32) {
			gate, up := y0.Mul(scales[half]), y1.Mul(scales[half])
			silu := gate.Mul(dsl.Rcp(dsl.Exp2(gate.Mul(k.F32(-math.Log2E))).Add(k.F32(1))))
			act.Store(out.At(tokens[half], row.DivC(2)), dsl.Cast[dsl.BF16](silu.Mul(up)))
		}, nil
	}
}

// PrefillQKV is QKV of consecutive tokens of one sequence, the first at position First. Q is [T][Heads][D].
type PrefillQKV struct {
	QKV
	Norm *PrefillNorm
}

// Epilogue finishes the rows of the n tokens of a step, and leaves those out that pad them.
func (t *PrefillQKV) Epilogue(e *Env, s Step, n u32) PrefillEpilogue {
	k := e.K
	if p := cmp.Or(t.problem(), t.KV.stepProblem(s)); p != "" {
		k.Require(false, "%s", p)
		return func([2]u32, u32) (func(int, u32, f32, f32), func()) { return func(int, u32, f32, f32) {}, nil }
	}
	return func(tokens [2]u32, _ u32) (func(half int, row u32, y0, y1 f32), func()) {
		var scale [2]f32
		var at [2]u32
		var st [2]stores
		for half, token := range tokens {
			scale[half] = t.Norm.Of(e, token)
			at[half] = s.Pos.Add(token.Min(n.SubC(1)))
			page := s.Table.Load(at[half].DivC(t.KV.Page)).Named("page")
			st[half] = t.stores(place{t: &t.QKV, e: e, s: s, page: page, slot: at[half].RemC(t.KV.Page).Named("slot")})
		}
		return func(half int, row u32, y0, y1 f32) {
			k.If(tokens[half].Lt(n), func() {
				t.finish(e, s, row, y0.Mul(scale[half]), y1.Mul(scale[half]), at[half], st[half], func(head u32) u32 { return tokens[half].MulC(t.Heads).Add(head) })
			})
		}, nil
	}
}

// PrefillLogits is the epilogue of an LM head whose logits are wanted of the step's last token, the last of n, alone.
// The others' are not stored. search is begun before the first tile, of that token's scale, see Argmax.Start.
func PrefillLogits(e *Env, n u32, search Epilogue) PrefillEpilogue {
	return func(tokens [2]u32, _ u32) (func(half int, row u32, y0, y1 f32), func()) {
		return func(half int, row u32, y0, y1 f32) {
			e.K.If(tokens[half].AddC(1).Eq(n), func() { search(row, y0, y1) })
		}, nil
	}
}
