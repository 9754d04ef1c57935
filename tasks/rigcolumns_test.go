package tasks_test

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks"
)

// step is a shape of a kernel around an epilogue for several tokens.
type step struct{ t, n, sms, consumers int }

// stepOf is a kernel for t tokens, of which a step has n, on sms SMs of that many consumer warps.
func stepOf(t, n, sms, consumers int) step { return step{t, n, sms, consumers} }

func (s step) String() string {
	return fmt.Sprintf("%d of %d tokens on %d SMs, %d warps", s.n, s.t, s.sms, s.consumers)
}

// padded is the number of tokens that a kernel of s.t has room for.
func (s step) padded() int { return tasks.ColumnsPadded(s.t) }

// steps are the shapes that epilogues for several tokens are tried with.
func steps() []step {
	return []step{{2, 2, 1, 1}, {2, 1, 3, 2}, {3, 3, 2, 3}, {8, 8, 1, 8}, {8, 5, 3, 1}, {9, 9, 2, 1}, {9, 2, 1, 3},
		{16, 16, 3, 8}, {16, 11, 2, 2}}
}

// eachColumnPair calls an epilogue for every pair of rows and every token below n
// with the dot products in y ([token][rows]), each thread its own tokens, as a GEMM
// would: CTA c has tiles of 8 rows c, c+grid, ….
func (r *rig) eachColumnPair(y dsl.Buf[dsl.F32], rows, padded int, n dsl.Val[dsl.U32], epilogue tasks.ColumnEpilogue) {
	e := r.e
	r.k.ForStep(e.CTA, r.k.U32((rows+7)/8), e.Grid, func(tile dsl.Val[dsl.U32]) {
		e.EachConsumer(4*padded, func(i dsl.Val[dsl.U32]) {
			row, token := tile.MulC(8).Add(i.RemC(4).MulC(2)), i.DivC(4).RemC(padded)
			r.k.If(row.LtC(rows).And(token.Lt(n)), func() {
				v := y.LoadN(token.MulC(rows).Add(row), 2)
				epilogue(row, token, v[0], v[1])
			})
		})
	})
}

// owner is the CTA that eachColumnPair gives a row.
func (s step) owner(row int) int { return row / 8 % s.sms }

// scales are a token's scale, for epilogues that take one.
func (r *rig) scales(t int) ([]float64, tasks.ColumnScale) {
	var v []float32
	var wide []float64
	for i := range t {
		v = append(v, 0.5+float32(i)/16)
		wide = append(wide, float64(v[i]))
	}
	buf := in[dsl.F32](r, "scale", f32Bytes(v), t)
	return wide, func(token dsl.Val[dsl.U32]) dsl.Val[dsl.F32] { return buf.Load(token) }
}

// sharedF32 declares n floats in shared memory, aligned for 16-byte accesses.
func sharedF32(r *rig, name string, n int) dsl.Buf[dsl.F32] {
	return dsl.Shared[dsl.F32](r.k, name, n, dsl.Align(16))
}
