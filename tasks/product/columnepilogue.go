package product

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
)

// ColumnScale is a token's scale of RMSNorm.
type ColumnScale func(token u32) f32

// AddResidualColumns is the epilogue of a projection back into the residual vectors:
// x += y, and with it what the next product wants: x·gain rounded to bf16 in
// fragment order, and each CTA's sums of squares. The rows' owner is the only one
// who touches them.
type AddResidualColumns struct {
	Out    Activations       // of the next product: K is the vectors' length
	X      dsl.Buf[dsl.F32]  // [T][K] residual vectors
	Next   dsl.Buf[dsl.BF16] // x·gain out, Out.Len() long
	Gain   dsl.Buf[dsl.BF16] // [norms][K]
	SQ     dsl.Buf[dsl.F32]  // [grid][padded T] out: sums of squares, zeros for tokens the step does not have
	Shared dsl.Buf[dsl.F32]  // shared memory, ColumnSumsLen long

	PlusOne bool // the factor of an element is 1 + gain
}

func (t *AddResidualColumns) problem(e *grid.Env) string {
	p := t.Out.Padded()
	return rule.First(
		rule.Sound(t.Out.problem("residual", t.Next)),
		rule.Need(int(t.X.Len()) >= t.Out.T*t.Out.K, "residual: X has %d elements, want %d", t.X.Len(), t.Out.T*t.Out.K),
		rule.Need(int(t.SQ.Len()) >= e.Grid*p, "residual: SQ has %d elements, want %d", t.SQ.Len(), e.Grid*p),
		rule.Need(int(t.Shared.Len()) >= ColumnSumsLen(e.Consumers, p), "residual: Shared has %d elements, want %d",
			t.Shared.Len(), ColumnSumsLen(e.Consumers, p)))
}

// Start returns the epilogue and publish, to be run by all consumer threads of every
// CTA after its last row: it writes the sums. norm is the next norm's row of Gain.
// Shared must not be in use since the last sync.
func (t *AddResidualColumns) Start(e *grid.Env, norm u32) (epilogue ColumnEpilogue, publish func()) {
	if p := t.problem(e); p != "" {
		e.K.Require(false, "%s", p)
		return func(_, _ u32, _, _ f32) {}, func() {}
	}
	return t.start(e, func(row, token u32) ([]f32, pair) { return t.load(norm, row, token) })
}

// start is Start with the old values and gains of a pair of rows from load.
func (t *AddResidualColumns) start(e *grid.Env,
	load func(row, token u32) ([]f32, pair)) (epilogue ColumnEpilogue, publish func()) {
	sums := newColumnSums(e, t.Out.Padded(), t.Shared)
	epilogue = func(row, token u32, y0, y1 f32) {
		e.K.Note("the residual vector, and what the next product takes of it")
		x, gain := load(row, token)
		g0, g1 := GainsOf(e.K, gain, t.PlusOne)
		x0, x1 := x[0].Add(y0), x[1].Add(y1)
		t.X.StoreN(token.MulC(t.Out.K).Add(row), []f32{x0, x1})
		t.Out.store(e.K, t.Next, token, row, x0.Mul(g0), x1.Mul(g1))
		sums.square(token, x0, x1)
	}
	return epilogue, func() { sums.publish(t.SQ) }
}

func (t *AddResidualColumns) load(norm, row, token u32) ([]f32, pair) {
	gain := dsl.View[dsl.BF16x2](t.Gain).Load(norm.MulC(t.Out.K/2).Add(row.DivC(2)), dsl.CacheHint(dsl.NonCoherent))
	return t.X.LoadN(token.MulC(t.Out.K).Add(row), 2), gain
}

// StartAhead is Start for a product whose shares are so small that no thread
// finishes more than one pair: ahead, to be given to g.Consume as what it does
// meanwhile, loads the pair's old values and gains, so that a round trip to memory
// less lies between the last row and the sync. Where shares are larger ahead is
// nil, and this is Start.
func (t *AddResidualColumns) StartAhead(e *grid.Env, norm u32, g *GEMM, share Share,
	n u32) (ahead func(), epilogue ColumnEpilogue, publish func()) {
	if !g.OnePair(e) || t.problem(e) != "" {
		epilogue, publish = t.Start(e, norm)
		return nil, epilogue, publish
	}
	k := e.K
	x, gain := dsl.NewArray(k.F32(0), 2, "x"), dsl.NewVar(dsl.Lit[dsl.BF16x2](k, 0), "gain")
	ahead = func() {
		k.Note("%s: old elements and gains of this thread's pair", g.Name)
		g.PairOf(e, share, n, func(row, token u32) {
			v, w := t.load(norm, row, token)
			x[0].Set(v[0])
			x[1].Set(v[1])
			gain.Set(w)
		})
	}
	epilogue, publish = t.start(e, func(u32, u32) ([]f32, pair) { return []f32{x[0].Get(), x[1].Get()}, gain.Get() })
	return ahead, epilogue, publish
}

// ScaleColumns is RMSNorm's scale of each token, 1/√(mean(x²) + ε), from the sums of
// squares that all CTAs have published.
type ScaleColumns struct {
	N      int              // length of the vectors
	Eps    float64          // ε
	T      int              // most tokens of a step
	SQ     dsl.Buf[dsl.F32] // [grid][padded T]
	Shared dsl.Buf[dsl.F32] // shared memory, ScaleColumnsLen long
}

// ScaleColumnsLen is the length, in f32, of ScaleColumns.Shared: a sum a warp, and
// the scale, of each column (8 or 16).
func ScaleColumnsLen(consumers, padded int) int { return (consumers + 1) * padded }

// Emit runs in the consumer warps. The scales may be read after the next barrier of
// the consumer warps; Shared must not be in use since the last one.
func (t *ScaleColumns) Emit(e *grid.Env) ColumnScale {
	k, padded := e.K, ColumnsPadded(t.T)
	scales := e.Consumers * padded
	if p := rule.First(
		rule.Need(t.N > 0, "scale: vectors of %d, want at least 1", t.N),
		rule.Need(t.T >= 2 && t.T <= MaxColumns, "scale: %d tokens, want 2 to %d", t.T, MaxColumns),
		rule.Need(int(t.SQ.Len()) >= e.Grid*padded, "scale: SQ has %d elements, want %d", t.SQ.Len(), e.Grid*padded),
		rule.Need(int(t.Shared.Len()) >= scales+padded, "scale: Shared has %d elements, want %d", t.Shared.Len(),
			scales+padded)); p != "" {
		k.Require(false, "%s", p)
		return func(u32) f32 { return k.F32(1) }
	}
	k.Note("the norms' scales: sums of squares of all SMs, a token a lane")
	sum := t.mine(e, padded)
	for d := 16; d >= padded; d /= 2 { // lanes l and l + padded have the same token
		sum = sum.Add(dsl.ShflXor(sum, d))
	}
	k.If(e.Lane.LtC(padded), func() { t.Shared.Store(e.Warp.MulC(padded).Add(e.Lane), sum) })
	e.Sync()
	k.If(e.Tid.LtC(padded), func() {
		total := t.Shared.Load(e.Tid)
		for w := 1; w < e.Consumers; w++ {
			total = total.Add(t.Shared.Load(e.Tid.AddC(w * padded)))
		}
		mean := total.Mul(k.F32(1 / float64(t.N)))
		t.Shared.Store(e.Tid.AddC(scales), dsl.Rsqrt(mean.Add(k.F32(t.Eps))))
	})
	return func(token u32) f32 { return t.Shared.Load(token.AddC(scales)) }
}

// mine is the sum of every n-th CTA' in this thread, of token Tid mod padded.
func (t *ScaleColumns) mine(e *grid.Env, padded int) f32 {
	k := e.K
	var parts []f32
	for first := 0; first < e.Grid; first += e.Threads() / padded {
		at := e.Tid.AddC(first * padded)
		if (first+e.Threads()/padded)*padded <= e.Grid*padded {
			parts = append(parts, t.SQ.Load(at))
			continue
		}
		v := dsl.NewVar(k.F32(0), "v")
		k.If(at.LtC(e.Grid*padded), func() { v.Set(t.SQ.Load(at)) })
		parts = append(parts, v.Get())
	}
	sum := parts[0]
	for _, v := range parts[1:] {
		sum = sum.Add(v)
	}
	return sum
}
