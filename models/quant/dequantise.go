package quant

import (
	"sync"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
)

// reader dequantises rows and keeps the memory that it takes from row to row. Not safe for concurrent use.
type reader struct {
	factors []float32
	zeros   []int8
	codes   []int8
	wide    []float32
	table   [256]float32
	blocks  [4]block
	oldest  int // of blocks
}

// readers are those that no call uses.
var readers = sync.Pool{New: func() any { return new(reader) }}

// blockRows is how many rows of a transposed matrix are unpacked together: a word holds as many or a part of them.
const blockRows = 8

// block is the codes of blockRows rows of a matrix, from row first on. A packed matrix asks for rows of several
// places and tensors in turn, so a reader keeps some.
type block struct {
	of    *Matrix
	first int
	codes []int8
}

// sized returns s with n elements, whose content is anything.
func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// row computes (code - zero point) * scale with the package's roundings. The difference is exact in each of the
// types, and so is its product with a scale of 16 bits in float32.
func (r *reader) row(m *Matrix, data func(string) []byte, row int, dst []float32) {
	blocks := m.Blocks()
	r.factors, r.zeros = sized(r.factors, blocks), sized(r.zeros, blocks)
	m.readScales(data(m.scales.tensor), row, r.factors)
	m.readZeros(data, row, r.zeros)
	for g := range r.factors {
		switch m.Format.Global {
		case Multiplies:
			r.factors[g] *= m.factor
		case Divides:
			r.factors[g] /= m.factor
		}
		r.factors[g] = Round(r.factors[g], m.steps.scale)
	}
	codes := r.codesOf(m, data(m.codes.tensor), row)
	if m.groups != nil {
		for c, code := range codes {
			g := m.groups[c]
			dst[c] = m.weight(code, r.zeros[g], r.factors[g])
		}
		return
	}
	columns := m.scales.columns
	for g := range r.factors {
		from, to := g*columns, min((g+1)*columns, m.Cols)
		r.group(m, codes[from:to], dst[from:to], r.zeros[g], r.factors[g])
	}
}

// group dequantises codes that share a scale: by a table of all codes where they are many.
func (r *reader) group(m *Matrix, codes []int8, dst []float32, zero int8, factor float32) {
	mask := uint8(0xff)
	if m.Format.Code == I4 || m.Format.Code == E2M1 {
		mask = 15
	}
	if len(codes) < 2*int(mask)+2 {
		dst = dst[:len(codes)]
		if m.Format.Code == E4M3 { // most of all, with blocks of 128 columns
			for i, code := range codes {
				dst[i] = e4m3[uint8(code)] * factor
			}
		} else {
			for i, code := range codes {
				dst[i] = m.number(code, zero) * factor
			}
		}
		roundAll(dst, m.steps.product)
		roundAll(dst, m.steps.result)
		return
	}
	for i := range int(mask) + 1 {
		code := int8(i)
		if m.Format.Code == I4 {
			code = int8(i<<4) >> 4
		}
		r.table[i] = m.weight(code, zero, factor)
	}
	dst = dst[:len(codes)]
	for i, code := range codes {
		dst[i] = r.table[uint8(code)&mask]
	}
}

// number returns what a code stands for before it is scaled.
func (m *Matrix) number(code, zero int8) float32 {
	switch m.Format.Code {
	case E4M3:
		return e4m3[uint8(code)]
	case E2M1:
		value := e2m1[code&15]
		if value == 0 && m.Format.Global == Multiplies {
			return 0 // ModelOpt's table has no negative zero
		}
		return value
	}
	return float32(int(code) - int(zero))
}

// weight is one weight, rounded as the package does.
func (m *Matrix) weight(code, zero int8, factor float32) float32 {
	return Round(Round(m.number(code, zero)*factor, m.steps.product), m.steps.result)
}

// roundAll is round of each number, in place.
func roundAll(all []float32, t models.DType) {
	switch t {
	case models.BF16:
		for i, x := range all {
			all[i] = half.BF16Of(x).Float32()
		}
	case models.F16:
		for i, x := range all {
			all[i] = half.F16Of(float64(x)).Float32()
		}
	}
}

// codesOf returns the codes of a row, valid until the next call.
func (r *reader) codesOf(m *Matrix, data []byte, row int) []int8 {
	if !m.codes.transposed || m.codes.perWord*m.codes.bits != 32 {
		r.codes = sized(r.codes, m.Cols)
		m.codes.row(data, row, r.codes)
		return r.codes
	}
	first := row / blockRows * blockRows
	at := (row - first) * m.Cols
	for i := range r.blocks {
		if b := &r.blocks[i]; b.of == m && b.first == first {
			return b.codes[at:][:m.Cols]
		}
	}
	b := &r.blocks[r.oldest]
	r.oldest = (r.oldest + 1) % len(r.blocks)
	*b = block{of: m, first: first, codes: sized(b.codes, blockRows*m.Cols)}
	m.codes.block(data, first, min(blockRows, m.Rows-first), b.codes, m.Cols)
	return b.codes[at:][:m.Cols]
}

// bf16 fills dst with bf16 patterns of a row, rounded to the nearest even where its numbers are not exact in bf16.
func (r *reader) bf16(m *Matrix, data func(string) []byte, row int, dst []half.BF16) {
	r.wide = sized(r.wide, m.Cols)
	m.fill(r, data, row, r.wide)
	dst = dst[:len(r.wide)]
	if m.DType == models.BF16 {
		for i, x := range r.wide {
			dst[i] = half.ExactBF16(x)
		}
		return
	}
	for i, x := range r.wide {
		dst[i] = half.BF16Of(x)
	}
}
