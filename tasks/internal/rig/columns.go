package rig

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/product"
)

// Step is a shape of a kernel around an epilogue for several tokens.
type Step struct{ T, N, SMs, Consumers int }

// StepOf is a kernel for t tokens, of which a step has n, on sms SMs of that many consumer warps.
func StepOf(t, n, sms, consumers int) Step { return Step{t, n, sms, consumers} }

// String names the shape, for a test's name.
func (s Step) String() string {
	return fmt.Sprintf("%d of %d tokens on %d SMs, %d warps", s.N, s.T, s.SMs, s.Consumers)
}

// Padded is the number of tokens that a kernel for T tokens has room for.
func (s Step) Padded() int { return product.ColumnsPadded(s.T) }

// Steps are the shapes that epilogues for several tokens are tried with.
func Steps() []Step {
	return []Step{{2, 2, 1, 1}, {2, 1, 3, 2}, {3, 3, 2, 3}, {8, 8, 1, 8}, {8, 5, 3, 1}, {9, 9, 2, 1}, {9, 2, 1, 3},
		{16, 16, 3, 8}, {16, 11, 2, 2}}
}

// EachColumnPair calls an epilogue for every pair of rows and every token below n
// with the dot products in y ([token][rows]), each thread its own tokens, as a GEMM
// would: CTA c has tiles of 8 rows c, c+grid, ….
func (r *Rig) EachColumnPair(y dsl.Buf[dsl.F32], rows, padded int, n dsl.Val[dsl.U32],
	epilogue product.ColumnEpilogue) {
	e := r.Env
	r.K.ForStep(e.CTA, r.K.U32((rows+7)/8), e.Grid, func(tile dsl.Val[dsl.U32]) {
		e.EachConsumer(4*padded, func(i dsl.Val[dsl.U32]) {
			row, token := tile.MulC(8).Add(i.RemC(4).MulC(2)), i.DivC(4).RemC(padded)
			r.K.If(row.LtC(rows).And(token.Lt(n)), func() {
				v := y.LoadN(token.MulC(rows).Add(row), 2)
				epilogue(row, token, v[0], v[1])
			})
		})
	})
}

// Owner is the CTA that EachColumnPair gives a row.
func (s Step) Owner(row int) int { return row / 8 % s.SMs }

// Scales are a token's scale, for epilogues that take one.
func (r *Rig) Scales(t int) ([]float64, product.ColumnScale) {
	var v []float32
	var wide []float64
	for i := range t {
		v = append(v, 0.5+float32(i)/16)
		wide = append(wide, float64(v[i]))
	}
	buf := In[dsl.F32](r, "scale", F32Bytes(v), t)
	return wide, func(token dsl.Val[dsl.U32]) dsl.Val[dsl.F32] { return buf.Load(token) }
}

// SharedF32 declares n floats in shared memory, aligned for 16-byte accesses.
func SharedF32(r *Rig, name string, n int) dsl.Buf[dsl.F32] {
	return dsl.Shared[dsl.F32](r.K, name, n, dsl.Align(16))
}
