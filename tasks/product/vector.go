package product

import (
	"cmp"
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
)

// Vector reads elements at to at + 3 of an f32 vector, at a multiple of 4.
type Vector func(at u32) []f32

// Source is a vector of f32 that all consumer threads read together, four elements each
// at a time.
type Source interface {
	// elements calls begin, for i as in Env.EachConsumer, before elements 4i to 4i + 3 of
	// n are there, and what that returns with them.
	elements(e *grid.Env, n int, begin func(i u32) func(x []f32))

	// four are elements 4i to 4i + 3, for a few threads.
	four(e *grid.Env, i u32) []f32
}

func (v Vector) elements(e *grid.Env, n int, begin func(i u32) func(x []f32)) {
	e.EachConsumer(n/4, func(i u32) {
		x := v(i.MulC(4))
		begin(i)(x)
	})
}

func (v Vector) four(_ *grid.Env, i u32) []f32 { return v(i.MulC(4)) }

// EitherSource is a where p, the same in all threads, holds, and b elsewhere.
func EitherSource(p dsl.Pred, a, b Source) Source { return choice{p, a, b} }

type choice struct {
	p    dsl.Pred
	a, b Source
}

func (c choice) elements(e *grid.Env, n int, begin func(i u32) func(x []f32)) {
	e.K.IfElse(c.p, func() { c.a.elements(e, n, begin) }, func() { c.b.elements(e, n, begin) })
}

func (c choice) four(e *grid.Env, i u32) []f32 {
	of := func(s Source) Vector { return func(u32) []f32 { return s.four(e, i) } }
	return Either(e, c.p, of(c.a), of(c.b))(e.K.U32(0))
}

// FromBuf is the Vector of a buffer.
func FromBuf(x dsl.Buf[dsl.F32]) Vector {
	return func(at u32) []f32 { return x.LoadN(at, 4) }
}

// Embedding is a matrix of token embeddings.
type Embedding struct {
	N     int               // length of a row, a multiple of 4
	Table dsl.Buf[dsl.BF16] // [Vocab][N]
	Vocab int               // rows of Table; a token must be below
}

// Row is the embedding of one token.
func (t *Embedding) Row(e *grid.Env, token u32) Vector {
	if !checkEmbedding(e, t.N, t.Vocab, token) {
		return zeros(e)
	}
	row := dsl.Cast[dsl.U64](token).MulC(t.N / 2)
	return pairs(dsl.View[dsl.BF16x2](t.Table),
		func(at u32) dsl.Val[dsl.U64] { return row.Add(dsl.Cast[dsl.U64](at.DivC(2))) })
}

// PackedEmbedding is the embedding of a model whose LM head is the same matrix:
// rows are read where the head's packed matrix has them.
type PackedEmbedding struct {
	M       *pipeline.MatrixPlan // the LM head: a row a token, K the length, a multiple of 4
	Weights dsl.Buf[dsl.B128]    // the packed weights
	Start   int64                // where M's tile 0 begins in them, in bytes
}

// Row is the embedding of one token; pipeline.TileOffset says where its elements lie.
func (t *PackedEmbedding) Row(e *grid.Env, token u32) Vector {
	if !checkEmbedding(e, t.M.K, t.M.Rows, token) {
		return zeros(e)
	}
	const group, unit = pipeline.GroupBytes / 4, 4 // in pairs; a unit is 8 elements
	in := token.RemC(pipeline.TileRows)
	tile := dsl.Cast[dsl.U64](token.DivC(pipeline.TileRows)).MulC(int(t.M.TileBytes() / 4))
	row := tile.Add(dsl.Cast[dsl.U64](in.MulC(pipeline.GroupK / 2))).AddC(int(t.Start / 4))
	swizzle := in.ShrC(1).Named("swizzle")
	return pairs(dsl.View[dsl.BF16x2](t.Weights), func(at u32) dsl.Val[dsl.U64] {
		units := at.ShrC(3).AndC(3).Xor(swizzle).MulC(unit).Add(at.ShrC(1).AndC(3))
		return row.Add(dsl.Cast[dsl.U64](at.DivC(pipeline.GroupK).MulC(group).Add(units)))
	})
}

// checkEmbedding refuses rows that cannot be read in fours, and asserts that the
// token has one.
func checkEmbedding(e *grid.Env, n, vocab int, token u32) bool {
	if n < 4 || n%4 != 0 {
		e.K.Require(false, "embedding: length %d is not a positive multiple of 4", n)
		return false
	}
	e.K.Assert(token.LtC(vocab), "embedding: token is not below the vocabulary")
	return true
}

func zeros(e *grid.Env) Vector {
	return func(u32) []f32 { return slices.Repeat([]f32{e.K.F32(0)}, 4) }
}

// pairs reads a read-only bf16 vector; pair says where the pair with element at,
// an even number, lies.
func pairs(table dsl.Buf[dsl.BF16x2], pair func(at u32) dsl.Val[dsl.U64]) Vector {
	return func(at u32) []f32 {
		var out []f32
		for _, p := range table.LoadN(pair(at), 2, dsl.CacheHint(dsl.NonCoherent)) {
			lo, hi := dsl.Unpack(p)
			out = append(out, lo, hi)
		}
		return out
	}
}

// Either reads a where p holds and b elsewhere.
func Either(e *grid.Env, p dsl.Pred, a, b Vector) Vector {
	return func(at u32) []f32 {
		vs := dsl.NewArray(e.K.F32(0), 4, "v")
		set := func(from Vector) func() {
			return func() {
				for i, x := range from(at) {
					vs[i].Set(x)
				}
			}
		}
		e.K.IfElse(p, set(a), set(b))
		out := make([]f32, 4)
		for i, v := range vs {
			out[i] = v.Get()
		}
		return out
	}
}

// NormInput stages x·gain, rounded to bf16, as a GEMV's input and computes the
// scale of RMSNorm, 1/√(mean(x²) + ε) (Zhang and Sennrich 2019). The scale is
// one number for the whole vector, so it may be applied after the dot products:
// the epilogue multiplies by it.
type NormInput struct {
	N    int               // length of x, a multiple of 4
	Eps  float64           // ε
	X    Source            // the residual vector
	Gain dsl.Buf[dsl.BF16] // gains of all norms, [norms][N]
	Dst  dsl.Buf[dsl.BF16] // shared memory, at least N padded to the k group, in the order of InputPair

	Format pipeline.Format // as in PlainInput
	Fixed  *FixedInput     // as in PlainInput

	PlusOne bool // the factor of an element is 1 + gain
	// None stages x as it is, without gains and with a scale of 1: the input of a layer that has no norm before it.
	None bool

	// Early, unless nil, is where this norm's gains have been fetched to, in the order of Fixed.
	Early *Gains
}

// NormScale returns RMSNorm's scale of a product's input. Only the product's epilogue may call it: where each warp
// stages what it multiplies, the warps' sums of squares are there behind the barrier in front of the epilogue, in
// Env.Scratch.
type NormScale func() f32

// KnownScale returns a scale that is there already.
func KnownScale(v f32) NormScale { return func() f32 { return v } }

// Emit runs in the consumer warps and returns the scale. norm picks the row of
// Gain. On return Dst is complete for all consumers, or where Fixed has an Order each warp's part for that warp.
func (t *NormInput) Emit(e *grid.Env, norm u32) NormScale {
	k := e.K
	p := inputProblem("norm input", t.N, 4, t.Format, t.Dst, t.Fixed)
	if !t.None { // without a norm no gains have been fetched
		p = cmp.Or(p, t.Early.problem(t.N, t.Fixed.order()))
	}
	if p != "" {
		k.Require(false, "%s", p)
		return KnownScale(k.F32(1))
	}
	norm = dsl.Optional(norm)
	if t.None {
		t.stage(e, func(u32) func(x []f32) [4]f32 { return func(x []f32) [4]f32 { return [4]f32(x) } })
		t.Fixed.wait(e)
		return KnownScale(k.F32(1))
	}
	gains := t.Early
	if gains == nil || t.Fixed != nil && t.N%t.Format.Columns() != 0 { // it comes to the last elements in another order
		gains = &Gains{N: t.N, Gain: t.Gain}
	}
	k.Note("input of a product: x times the norm's gain, to shared memory, and the squares of x")
	squares, nth := dsl.NewVar(k.F32(0), "squares"), 0
	t.stage(e, func(i u32) func(x []f32) [4]f32 {
		g := gains.of(e, norm, i, nth)
		nth++
		return func(x []f32) [4]f32 {
			g0, g1 := GainsOf(k, g[0], t.PlusOne)
			g2, g3 := GainsOf(k, g[1], t.PlusOne)
			s := squares.Get()
			for _, v := range x {
				s = dsl.FMA(v, v, s)
			}
			squares.Set(s)
			return [4]f32{x[0].Mul(g0), x[1].Mul(g1), x[2].Mul(g2), x[3].Mul(g3)}
		}
	})
	if n := len(gains.pairs); n > 0 && nth%n != 0 {
		panic("BUG: a source of a norm's input came to other elements than its gains")
	}
	if t.Fixed.order() != nil {
		k.Note("each warp goes on with its own columns; the norm's scale is made behind the barrier in front of the epilogue")
		t.Fixed.wait(e)
		sum := dsl.WarpSum(squares.Get())
		k.If(e.Lane.EqC(0), func() { e.Scratch.Store(e.Warp, sum) })
		return func() f32 { return t.scale(e, dsl.SumOf(e.Scratch, e.Consumers)) }
	}
	k.Note("the norm's scale: one over the root of the mean square")
	return KnownScale(t.scale(e, dsl.CTASum(squares.Get(), e.Scratch, 0, e.Consumers, e.Sync)))
}

// scale returns 1/√(mean(x²) + ε), of the sum of squares.
func (t *NormInput) scale(e *grid.Env, sum f32) f32 {
	mean := sum.Mul(e.K.F32(1 / float64(t.N)))
	return dsl.Rsqrt(mean.Add(e.K.F32(t.Eps))).Named("scale")
}

// stage puts what of makes of elements 4i to 4i + 3 of X, called as Source's begin is, to where the product reads them.
func (t *NormInput) stage(e *grid.Env, of func(i u32) func(x []f32) [4]f32) {
	k := e.K
	if t.Fixed != nil {
		k.Note("of each group the elements as fixed point of 16 bits, and its unit")
		t.Fixed.stageVector(e, t.X, t.N, 0, of)
		return
	}
	dst, place := dsl.View[dsl.BF16x2](t.Dst), pairsPlace(e)
	t.X.elements(e, t.N, func(i u32) func(x []f32) {
		of := of(i)
		return func(x []f32) {
			y := of(x)
			at := place(i)
			dst.Store(at, InputOf(k, t.Format, y[0], y[1]))
			dst.Store(at.AddC(2), InputOf(k, t.Format, y[2], y[3]))
		}
	})
	zeroPadding(e, t.Dst, t.N, t.Format.Columns())
}

// GainsOf are the factors of two elements of a norm: their gains, or 1 more. The sum of 1 and a bf16 is exact in f32
// down to gains of 2⁻¹⁶, and below that as exact as f32 is.
func GainsOf(k *dsl.Kernel, g pair, plusOne bool) (lo, hi f32) {
	lo, hi = dsl.Unpack(g)
	if plusOne {
		lo, hi = lo.Add(k.F32(1)), hi.Add(k.F32(1))
	}
	return lo, hi
}

// Scaled is a vector times a factor; for 1 the vector itself.
func Scaled(e *grid.Env, v Vector, factor float64) Vector {
	if factor == 1 {
		return v
	}
	return func(at u32) []f32 {
		x := v(at)
		for i := range x {
			x[i] = x[i].Mul(e.K.F32(factor))
		}
		return x
	}
}

// PlainInput stages a vector from global memory as a GEMV's input.
type PlainInput struct {
	N    int               // length, a multiple of 8
	X    dsl.Buf[dsl.BF16] // N elements in global memory; not used with Packets
	From u32               // where they begin, a multiple of 8; nothing is 0
	Dst  dsl.Buf[dsl.BF16] // shared memory, at least N padded to the k group, in the order of InputPair

	// Format is of the weights that are multiplied with it: it says in which type X and Dst have
	// the elements, and up to a multiple of which columns it is cleared.
	Format pipeline.Format

	// Packets, unless nil, is where the vector comes from.
	Packets *VectorPackets

	// Fixed is where the elements go instead of to Dst where Format is multiplied in integers, else nil.
	Fixed *FixedInput
	// Seen, unless nil, is called with Fixed for elements 4i to 4i + 3.
	Seen func(i u32, x []f32)
}

// Emit runs in the consumer warps. On return Dst is complete for all consumers, or where Fixed has an Order each warp's
// part for that warp.
func (t *PlainInput) Emit(e *grid.Env) {
	h := t.Packets
	if p := rule.First(rule.Sound(inputProblem("plain input", t.N, 8, t.Format, t.Dst, t.Fixed)),
		rule.Need(h == nil || h.N == t.N, "plain input: it does not come as %d elements", t.N)); p != "" {
		e.K.Require(false, "%s", p)
		return
	}
	note := "input of a product, to shared memory"
	if t.Fixed != nil {
		note += ": of each group the elements as fixed point of 16 bits, and its unit"
	}
	e.K.Note("%s", note)
	if t.Fixed != nil {
		t.Fixed.stageVector(e, t.passed(e), t.N, inputShift, func(i u32) func(x []f32) [4]f32 {
			return func(x []f32) [4]f32 {
				if t.Seen != nil {
					var elements []f32
					for _, v := range x {
						elements = append(elements, v.Mul(e.K.F32(1/inputScale)))
					}
					t.Seen(i, elements)
				}
				return [4]f32(x)
			}
		})
		t.Fixed.wait(e)
		return
	}
	dst := dsl.View[dsl.U32](t.Dst)
	if h == nil {
		x, from := dsl.View[dsl.U32](t.X), t.from(e)
		e.EachConsumer(t.N/8, func(i u32) {
			v := x.LoadN(i.MulC(4).Add(from), 4)
			dst.StoreN(i.MulC(4), []u32{v[InputPair(0)], v[InputPair(1)], v[InputPair(2)], v[InputPair(3)]}) // its own inverse
		})
	} else {
		place := pairsPlace(e)
		h.each(e, t.N/4, func(i u32) func(dsl.Val[dsl.B128]) {
			return func(packet dsl.Val[dsl.B128]) {
				at, v := place(i), pairsOf(packet)
				dst.Store(at, v[0])
				dst.Store(at.AddC(2), v[1])
			}
		})
	}
	zeroPadding(e, t.Dst, t.N, t.Format.Columns())
	e.Sync()
}

// from is where the vector begins, in pairs.
func (t *PlainInput) from(e *grid.Env) u32 {
	if t.From.Given() {
		return t.From.DivC(2)
	}
	return e.K.U32(0)
}

// pairsPlace returns where the first pair of elements 4i to 4i + 3 lies in a product's input, i being of EachConsumer;
// the second is two pairs on.
func pairsPlace(e *grid.Env) func(i u32) u32 {
	first := inputPair(e.Tid.MulC(2)).Named("first")
	return func(i u32) u32 { return first.Add(i.Sub(e.Tid).MulC(2)) }
}

// inputProblem says why n elements cannot be staged for a format's product, or nothing.
func inputProblem(what string, n, multiple int, f pipeline.Format, dst dsl.Buf[dsl.BF16], fixed *FixedInput) string {
	padded := n + padding(n, f.Columns())
	long := rule.Need(n > 0 && n%multiple == 0, "%s: length %d is not a positive multiple of %d", what, n, multiple)
	if fixed != nil || inFixed(f) {
		return rule.First(long,
			rule.Need(fixed != nil && inFixed(f), "%s: %s weights and Fixed do not belong together", what, f),
			rule.Need(fixed == nil || fixed.K == padded, "%s: Fixed is not of %d elements", what,
				padded),
			rule.Sound(fixed.problem(what)))
	}
	return rule.First(long, rule.Need(int(dst.Len()) >= padded, "%s: Dst has %d elements, want %d for %d padded", what,
		dst.Len(),
		padded, n))
}

// padding is how many elements n lacks of a multiple of to.
func padding(n, to int) int { return pipeline.CeilDiv(n, to)*to - n }

// zeroPadding clears elements n … of the last to elements.
func zeroPadding(e *grid.Env, dst dsl.Buf[dsl.BF16], n, to int) {
	if pad := padding(n, to); pad > 0 {
		e.EachConsumer(pad, func(i u32) {
			at := i.AddC(n)
			dst.Store(inputPair(at.DivC(2)).MulC(2).Add(at.AndC(1)), dsl.Lit[dsl.BF16](e.K, 0))
		})
	}
}
