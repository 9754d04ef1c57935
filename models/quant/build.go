package quant

import (
	"encoding/binary"
	"fmt"
	"math"
)

func leUint32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }

func leUint64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// codeOf returns the type of integers of 4 or 8 bits.
func codeOf(bits int) Code {
	if bits == 4 {
		return I4
	}
	return I8
}

// setGroup makes the matrix one of groups of columns, all of them for -1, and returns how many a row has.
func (m *Matrix) setGroup(group int) int {
	_, across := m.setBlocks(1, max(group, 0))
	return across
}

// setScales says where the scales are, and makes their type the one that everything is rounded to.
func (m *Matrix) setScales(tensor, dtype string, down, across int) {
	m.scales.tensor, m.scales.down, m.scales.across = tensor, down, across
	m.Format.Scale, m.DType = scaleOf(dtype)
	m.steps.product, m.steps.result = m.DType, m.DType
}

// setBlocks makes the matrix one of blocks of rows and columns, those at the edges smaller, and returns how many
// there are; 0 stands for all rows or columns.
func (m *Matrix) setBlocks(rows, cols int) (down, across int) {
	if rows == 1 && cols >= m.Cols {
		cols = 0
	}
	m.Format.Rows, m.Format.Cols = rows, cols
	m.scales.rows, m.scales.columns = rows, cols
	if rows == 0 {
		m.scales.rows = m.Rows
	}
	if cols == 0 {
		m.scales.columns = m.Cols
	}
	return (m.Rows + m.scales.rows - 1) / m.scales.rows, (m.Cols + m.scales.columns - 1) / m.scales.columns
}

// scalar takes a tensor of one F32, which must be finite and positive.
func (m *module) scalar(leaf string) (value float32, err error) {
	if _, ok := m.shaped(leaf, "F32", []int64{1}, nil); !ok {
		return 0, nil
	}
	err = m.read(leaf, func(data []byte) {
		if value = ScaleF32.number(data, 0); !(value > 0 && value <= math.MaxFloat32) {
			m.problem(leaf, fmt.Sprint(value), "a positive number", "")
		}
	})
	return value, err
}

// bytes says that the codes are bytes of a tensor.
func (m *Matrix) bytes(tensor string, signed bool) {
	m.codes = ints{tensor: tensor, bits: 8, perWord: 1, width: m.Cols, signed: signed}
}

// nibbles says that the codes are nibbles of a tensor's bytes, the lower one first.
func (m *Matrix) nibbles(tensor string) {
	m.codes = ints{tensor: tensor, bits: 4, perWord: 2, width: m.Cols / 2}
}
