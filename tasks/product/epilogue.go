package product

import (
	"github.com/mkgen/mkgen/dsl"
)

// Epilogue finishes two neighbouring rows of the packed matrix, row and row+1
// (row even), whose dot products are y0 and y1. It runs in some of the consumer
// threads, once for each pair of the CTA's rows; rows that pad the last tile are
// left out, but for row+1 of the last pair where the matrix has an odd number
// of rows (y1 is then 0).
type Epilogue func(row u32, y0, y1 f32)

// FourRows is an Epilogue of four rows, row a multiple of 4, of a matrix whose row count is a multiple of 4.
type FourRows func(row u32, y []f32)

// EightRows is an Epilogue of a tile's rows, of a matrix whose tiles are whole.
type EightRows func(row u32, y []f32)

// Finisher finishes a product's rows, as many neighbouring ones at a time as a thread sums: an Epilogue, FourRows or
// EightRows.
type Finisher interface {
	Each() int               // rows
	Finish(row u32, y []f32) // those from row on, a multiple of Each
}

// Each is 2.
func (Epilogue) Each() int { return 2 }

// Finish finishes rows row and row + 1.
func (f Epilogue) Finish(row u32, y []f32) { f(row, y[0], y[1]) }

// Each is 4.
func (FourRows) Each() int { return 4 }

// Finish finishes rows row to row + 3.
func (f FourRows) Finish(row u32, y []f32) { f(row, y) }

// Each is 8.
func (EightRows) Each() int { return 8 }

// Finish finishes rows row to row + 7.
func (f EightRows) Finish(row u32, y []f32) { f(row, y) }

// AddResidual is the epilogue x[row] = old[row] + y of a projection back into
// the residual vector x; old is x itself, or what the vector begins with. The
// rows' owner is the only one who touches them. Each of also gets the sums, too.
func AddResidual(x dsl.Buf[dsl.F32], old Vector, also ...Keep) FourRows {
	return func(row u32, y []f32) {
		sum := added(old(row), y)
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
