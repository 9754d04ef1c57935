package quant

import (
	"fmt"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/half"
)

// Matrix is one weight in neutral form: [Rows, Cols] as a linear layer has it, outputs by inputs. A vector has
// one row, a scalar one element. All methods may be called from several goroutines at a time.
type Matrix struct {
	Name       string // of the weight, as an unquantised checkpoint would call it: "model.layers.0.mlp.up_proj.weight"
	Rows, Cols int
	Format     Format
	DType      models.DType // the type in which the format's package computes; Row's numbers are exact in it

	files  *checkpoint.Tensors
	codes  ints   // of an unquantised matrix only the tensor matters
	scales scales // not of an unquantised one
	zeros  ints   // where Format.Zeros
	factor float32
	groups []int32 // see Groups
	steps  steps
}

// scales says where in a tensor the scales are.
type scales struct {
	tensor  string
	down    int // elements from one block of rows to the next
	across  int // elements from one block of columns to the next
	rows    int // rows of a block
	columns int // columns of a block
}

// steps are the types to which a package rounds on its way from a code to a weight, unstated where it does not round
// beyond float32: the scale, then their product, then the result.
type steps struct{ scale, product, result models.DType }

// Blocks returns the number of scales of a row, 0 for an unquantised matrix.
func (m *Matrix) Blocks() int {
	if !m.Format.Quantised() {
		return 0
	}
	return (m.Cols + m.scales.columns - 1) / m.scales.columns
}

// Groups returns for each column the index of its scale among the Blocks of a row, where that is an arbitrary one
// (activation order, g_idx). It is nil where column c has scale c / Format.Cols. It must not be changed.
func (m *Matrix) Groups() []int32 { return m.groups }

// Factor returns the global factor, 1 without one. Format.Global says how it is used.
func (m *Matrix) Factor() float32 {
	if m.Format.Global == NoGlobal {
		return 1
	}
	return m.factor
}

// Codes fills dst, of Cols elements, with the codes of a row: integers as they are, E4M3 and E2M1 as bits.
//
// Errors: an unquantised matrix, a row outside it, a dst of another length, checkpoint.ErrClosed, and a file
// that cannot be read any more. dst may then be partly written. Those of Scales, Zeros and Row are the same.
func (m *Matrix) Codes(row int, dst []int8) error {
	if err := m.fits(row, len(dst), m.Cols, true); err != nil {
		return err
	}
	return m.files.Reading(func(data func(string) []byte) error {
		m.codes.row(data(m.codes.tensor), row, dst)
		return nil
	})
}

// Scales fills dst, of Blocks elements, with the scales of a row, exactly as stored, without the global factor.
func (m *Matrix) Scales(row int, dst []float32) error {
	if err := m.fits(row, len(dst), m.Blocks(), true); err != nil {
		return err
	}
	return m.files.Reading(func(data func(string) []byte) error {
		m.readScales(data(m.scales.tensor), row, dst)
		return nil
	})
}

// Zeros fills dst, of Blocks elements, with the zero points of a row, in the codes' range; 0 where the format
// has none.
func (m *Matrix) Zeros(row int, dst []int8) error {
	if err := m.fits(row, len(dst), m.Blocks(), true); err != nil {
		return err
	}
	return m.files.Reading(func(data func(string) []byte) error {
		m.readZeros(data, row, dst)
		return nil
	})
}

// Row fills dst, of Cols elements, with a row of weights as the format's package dequantises them, exact in DType.
func (m *Matrix) Row(row int, dst []float32) error {
	if err := m.fits(row, len(dst), m.Cols, false); err != nil {
		return err
	}
	r := readers.Get().(*reader)
	defer readers.Put(r)
	return m.files.Reading(func(data func(string) []byte) error {
		m.fill(r, data, row, dst)
		return nil
	})
}

// fill is Row without its checks.
func (m *Matrix) fill(r *reader, data func(string) []byte, row int, dst []float32) {
	if m.Format.Quantised() {
		r.row(m, data, row, dst)
	} else {
		m.plain(data(m.codes.tensor), row, dst)
	}
}

// fits checks the arguments of a method that fills n elements.
func (m *Matrix) fits(row, n, want int, codes bool) error {
	switch {
	case codes && !m.Format.Quantised():
		return fmt.Errorf("quant: %s: found codes asked for, want a quantised matrix: it is %s", m.Name, m.Format)
	case row < 0 || row >= m.Rows:
		return fmt.Errorf("quant: %s: found row %d asked for, want 0 to %d", m.Name, row, m.Rows-1)
	case n != want:
		return fmt.Errorf("quant: %s: found a destination of %d elements, want %d", m.Name, n, want)
	}
	return nil
}

func (m *Matrix) readScales(data []byte, row int, dst []float32) {
	for g := range dst {
		dst[g] = m.Format.Scale.number(data, row/m.scales.rows*m.scales.down+g*m.scales.across)
	}
}

func (m *Matrix) readZeros(data func(string) []byte, row int, dst []int8) {
	if !m.Format.Zeros {
		clear(dst)
		return
	}
	zeros := data(m.zeros.tensor)
	for g := range dst {
		dst[g] = int8(m.zeros.at(zeros, row/m.scales.rows, g))
	}
}

// plain converts a row of an unquantised matrix.
func (m *Matrix) plain(data []byte, row int, dst []float32) {
	size := m.DType.Bytes()
	data = data[row*m.Cols*size:]
	switch m.Format.Code {
	case BF16:
		for c := range dst {
			dst[c] = half.BF16At(data[2*c:]).Float32()
		}
	case F16:
		for c := range dst {
			dst[c] = half.F16At(data[2*c:]).Float32()
		}
	default:
		for c := range dst {
			dst[c] = ScaleF32.number(data, c)
		}
	}
}
