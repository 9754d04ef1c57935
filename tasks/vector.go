package tasks

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
)

// Embedding copies one row of the embedding matrix into the residual vector:
// x[i] = table[token][i], for i in this CTA's share of 0 … N−1.
type Embedding struct {
	N     int               // length of the residual vector, even
	Table dsl.Buf[dsl.BF16] // [vocabulary][N]
	X     dsl.Buf[dsl.F32]  // [N]
	Vocab int               // rows of Table; a token must be below
}

// Emit runs in the consumer warps; every element is written by exactly one CTA.
func (t *Embedding) Emit(e *Env, token u32) {
	k := e.K
	if t.N < 2 || t.N%2 != 0 {
		k.Require(false, "embedding: length %d is not a positive even number", t.N)
		return
	}
	k.Assert(token.LtC(t.Vocab), "embedding: token is not below the vocabulary")
	table := dsl.View[dsl.BF16x2](t.Table)
	row := dsl.Cast[dsl.U64](token).MulC(t.N / 2)
	pairs := t.N / 2
	first := e.CTA.MulC(e.Threads()).Add(e.Tid)
	k.ForStep(first, k.U32(pairs), e.Threads()*e.Grid, func(i u32) {
		lo, hi := dsl.Unpack(table.Load(row.Add(dsl.Cast[dsl.U64](i))))
		t.X.StoreN(i.MulC(2), []f32{lo, hi})
	})
}

// NormInput stages x·gain, rounded to bf16, as a GEMV's input and computes the
// scale of RMSNorm, 1/√(mean(x²) + ε) (Zhang and Sennrich 2019). The scale is
// one number for the whole vector, so it may be applied after the dot products:
// the epilogue multiplies by it.
type NormInput struct {
	N    int               // length of x, a multiple of 4
	Eps  float64           // ε
	X    dsl.Buf[dsl.F32]  // [N], the residual vector in global memory
	Gain dsl.Buf[dsl.BF16] // gains of all norms, [norms][N]
	Dst  dsl.Buf[dsl.BF16] // shared memory, at least N padded to the k group
}

// Emit runs in the consumer warps and returns the scale. norm picks the row of
// Gain. Dst is complete for all consumers on return.
func (t *NormInput) Emit(e *Env, norm u32) (scale f32) {
	k := e.K
	if p := inputProblem("norm input", t.N, 4, t.Dst); p != "" {
		k.Require(false, "%s", p)
		return k.F32(1)
	}
	gain, dst := dsl.View[dsl.BF16x2](t.Gain), dsl.View[dsl.BF16x2](t.Dst)
	squares := dsl.NewVar(k.F32(0), "squares")
	row := norm.MulC(t.N / 2)
	e.EachConsumer(t.N/4, func(i u32) {
		x := t.X.LoadN(i.MulC(4), 4)
		g := gain.LoadN(row.Add(i.MulC(2)), 2, dsl.CacheHint(dsl.NonCoherent))
		g0, g1 := dsl.Unpack(g[0])
		g2, g3 := dsl.Unpack(g[1])
		s := squares.Get()
		for _, v := range x {
			s = dsl.FMA(v, v, s)
		}
		squares.Set(s)
		dst.StoreN(i.MulC(2), []pair{
			dsl.Pack[dsl.BF16x2](x[0].Mul(g0), x[1].Mul(g1)), dsl.Pack[dsl.BF16x2](x[2].Mul(g2), x[3].Mul(g3))})
	})
	zeroPadding(e, t.Dst, t.N)
	sum := dsl.CTASum(squares.Get(), e.Scratch, 0, e.Consumers, e.Sync)
	mean := sum.Mul(k.F32(1 / float64(t.N)))
	return dsl.Rsqrt(mean.Add(k.F32(t.Eps))).Named("scale")
}

// PlainInput stages a bf16 vector from global memory as a GEMV's input.
type PlainInput struct {
	N   int               // length, a multiple of 8
	X   dsl.Buf[dsl.BF16] // [N] in global memory
	Dst dsl.Buf[dsl.BF16] // shared memory, at least N padded to the k group
}

// Emit runs in the consumer warps. Dst is complete for all consumers on return.
func (t *PlainInput) Emit(e *Env) {
	if p := inputProblem("plain input", t.N, 8, t.Dst); p != "" {
		e.K.Require(false, "%s", p)
		return
	}
	x, dst := dsl.View[dsl.U32](t.X), dsl.View[dsl.U32](t.Dst)
	e.EachConsumer(t.N/8, func(i u32) {
		dst.StoreN(i.MulC(4), x.LoadN(i.MulC(4), 4))
	})
	zeroPadding(e, t.Dst, t.N)
	e.Sync()
}

// inputProblem says why n elements cannot be staged in dst, or nothing.
func inputProblem(what string, n, multiple int, dst dsl.Buf[dsl.BF16]) string {
	padded := ceilDiv(n, pipeline.GroupK) * pipeline.GroupK
	return firstOf(
		need(n > 0 && n%multiple == 0, "%s: length %d is not a positive multiple of %d", what, n, multiple),
		need(int(dst.Len()) >= padded, "%s: Dst has %d elements, want %d for %d padded", what, dst.Len(), padded, n))
}

// zeroPadding clears elements n … of the last k group.
func zeroPadding(e *Env, dst dsl.Buf[dsl.BF16], n int) {
	pad := ceilDiv(n, pipeline.GroupK)*pipeline.GroupK - n
	if pad > 0 {
		e.K.If(e.Tid.LtC(pad), func() { dst.Store(e.Tid.AddC(n), dsl.Lit[dsl.BF16](e.K, 0)) })
	}
}
