package product

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/grid"
)

// AddResidual is the epilogue x[row] = old[row] + y of a projection back into
// the residual vector x; old is x itself, or what the vector begins with. The
// rows' owner is the only one who touches them. Each of also gets the sums of
// rows row and row + 1, too.
func AddResidual(x dsl.Buf[dsl.F32], old Vector, also ...Keep) Epilogue {
	return func(row u32, y0, y1 f32) {
		v := old(row, 2)
		sum := []f32{v[0].Add(y0), v[1].Add(y1)}
		x.StoreN(row, sum)
		for _, keep := range also {
			keep(row, sum)
		}
	}
}

// Keep stores the sums of rows row and row + 1 of a residual vector.
type Keep func(row u32, sum []f32)

// GateUpSource says which row of the concatenated gate and up weights, each of
// n rows, is packed row r.
func GateUpSource(n int) func(r int) int {
	return func(r int) int { return r/2 + r%2*n }
}

// HandResidual is AddResidual whose sums are passed in LL packets.
func HandResidual(e *grid.Env, x *VectorPackets, old Vector, also ...Keep) Epilogue {
	return func(row u32, y0, y1 f32) {
		v, bits := old(row, 2), dsl.Bits[dsl.U32, dsl.F32]
		x.Store(e, row.DivC(2), Payload{bits(v[0].Add(y0)), bits(v[1].Add(y1))})
		for _, keep := range also {
			keep(row, []f32{v[0].Add(y0), v[1].Add(y1)})
		}
	}
}
