package product

import (
	"github.com/mkgen/mkgen/dsl"
)

// AddResidual is the epilogue x[row] = old[row] + y of a projection back into
// the residual vector x; old is x itself, or what the vector begins with. The
// rows' owner is the only one who touches them. Each of also gets the sums, too.
func AddResidual(x dsl.Buf[dsl.F32], old Vector, also ...Keep) FourRows {
	return func(row u32, y []f32) {
		sum := added(old(row, 4), y)
		x.StoreN(row, sum)
		for _, keep := range also {
			keep(row, sum)
		}
	}
}

// added are the sums of two lists' elements.
func added(a, b []f32) (sum []f32) {
	for i, v := range a {
		sum = append(sum, v.Add(b[i]))
	}
	return sum
}

// Keep stores the sums of rows row to row + 3 of a residual vector.
type Keep func(row u32, sum []f32)

// GateUpSource says which row of the concatenated gate and up weights, each of
// n rows, is packed row r.
func GateUpSource(n int) func(r int) int {
	return func(r int) int { return r/2 + r%2*n }
}
