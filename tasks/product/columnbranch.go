package product

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/grid"
)

// BranchColumns is the epilogue of a projection behind which a norm comes before it is added to the residual vectors:
// it writes y, and each CTA's sums of squares of it.
type BranchColumns struct {
	N, T   int
	Y      dsl.Buf[dsl.F32] // [T][N] out
	SQ     dsl.Buf[dsl.F32] // [grid][padded T] out
	Shared dsl.Buf[dsl.F32] // shared memory, ColumnSumsLen long
}

// Start returns the epilogue and publish, as AddResidualColumns.Start does.
func (t *BranchColumns) Start(e *grid.Env) (epilogue ColumnEpilogue, publish func()) {
	sums := newColumnSums(e, ColumnsPadded(t.T), t.Shared)
	epilogue = func(row, token u32, y0, y1 f32) {
		t.Y.StoreN(token.MulC(t.N).Add(row), []f32{y0, y1})
		sums.square(token, y0, y1)
	}
	return epilogue, func() { sums.publish(t.SQ) }
}

// AddedColumns are residual vectors with the norm of a branch added: rows for EmbedColumns, which writes them back, and
// what the next product wants of them.
type AddedColumns struct {
	N       int
	X, Y    dsl.Buf[dsl.F32]  // [T][N]
	Gain    dsl.Buf[dsl.BF16] // [norms][N]
	PlusOne bool              // the factor of an element is 1 + gain
	Factor  float64           // of norm(y)
	Scale   ColumnScale       // of the norm of Y
}

// Row is the vector of a token, behind the norm with row norm of Gain.
func (t *AddedColumns) Row(e *grid.Env, token, norm u32) Vector {
	k := e.K
	return func(at u32) []f32 {
		scale := t.Scale(token)
		if t.Factor != 1 {
			scale = scale.Mul(k.F32(t.Factor))
		}
		x, y := t.X.LoadN(token.MulC(t.N).Add(at), 4), t.Y.LoadN(token.MulC(t.N).Add(at), 4)
		for j, p := range dsl.View[dsl.BF16x2](t.Gain).LoadN(norm.MulC(t.N/2).Add(at.DivC(2)), 2,
			dsl.CacheHint(dsl.NonCoherent)) {
			lo, hi := GainsOf(k, p, t.PlusOne)
			x[2*j] = dsl.FMA(y[2*j].Mul(scale), lo, x[2*j])
			x[2*j+1] = dsl.FMA(y[2*j+1].Mul(scale), hi, x[2*j+1])
		}
		return x
	}
}
