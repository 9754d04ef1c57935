package product

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/grid"
)

// Rows reads the numbers of rows row and row + 1 of a packed matrix, row even.
type Rows func(row u32) []f32

// RowsOf are the rows of a buffer, of which a matrix's first is element from, an even number.
func RowsOf(b dsl.Buf[dsl.BF16], from u32) Rows {
	return func(row u32) []f32 {
		lo, hi := dsl.Unpack(dsl.View[dsl.BF16x2](b).Load(from.Add(row).DivC(2), dsl.CacheHint(dsl.NonCoherent)))
		return []f32{lo, hi}
	}
}

// Plus is a vector with rows added times a factor: what a projection with biases is added to. rows may be nil.
func Plus(e *grid.Env, v Vector, rows Rows, factor float64) Vector {
	if rows == nil {
		return v
	}
	return func(at u32) []f32 {
		x := v(at)
		for i := 0; i < len(x); i += 2 {
			for j, b := range rows(at.AddC(i)) {
				x[i+j] = dsl.FMA(b, e.K.F32(factor), x[i+j])
			}
		}
		return x
	}
}

// Times is an epilogue whose products are multiplied by a factor.
func Times(e *grid.Env, factor float64, to Finisher) Finisher {
	if factor == 1 {
		return to
	}
	return timesFactor{to, e.K.F32(factor)}
}

type timesFactor struct {
	Finisher
	factor f32
}

func (s timesFactor) Finish(row u32, y []f32) {
	var scaled []f32
	for _, v := range y {
		scaled = append(scaled, v.Mul(s.factor))
	}
	s.Finisher.Finish(row, scaled)
}

// WithBias returns factor·(y + bias) of two rows, row and row + 1, as a product's epilogue adds them.
func WithBias(e *grid.Env, rows Rows, factor float64, row u32, y0, y1 f32) (f32, f32) {
	if rows != nil {
		b := rows(row)
		y0, y1 = y0.Add(b[0]), y1.Add(b[1])
	}
	if factor != 1 {
		y0, y1 = y0.Mul(e.K.F32(factor)), y1.Mul(e.K.F32(factor))
	}
	return y0, y1
}

// BiasedColumns is an epilogue of several tokens whose products have biases added, and then a factor:
// factor·(y + bias). rows may be nil.
func BiasedColumns(e *grid.Env, rows Rows, factor float64, to ColumnEpilogue) ColumnEpilogue {
	if rows == nil && factor == 1 {
		return to
	}
	return func(row, token u32, y0, y1 f32) {
		y0, y1 = WithBias(e, rows, factor, row, y0, y1)
		to(row, token, y0, y1)
	}
}

// Cap is limit·tanh(x/limit), as accurate as SoftCap's; x itself where limit is 0.
func Cap(k *dsl.Kernel, limit float64, x f32) f32 {
	if limit == 0 {
		return x
	}
	e := dsl.Exp2(x.Mul(k.F32(2 * math.Log2E / limit)))
	return k.F32(1).Sub(dsl.Rcp(e.Add(k.F32(1))).Mul(k.F32(2))).Mul(k.F32(limit))
}
