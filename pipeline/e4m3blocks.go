package pipeline

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/mkgen/mkgen/models/half"
)

// Weights of e4m3 with a scale for each block of 128 rows and 128 columns of a tensor, as DeepSeek-V3 and Qwen3 publish
// them. A packed matrix has the rows of its tensors in another order; in a tile of 8 rows those with even numbers are
// of one block, and those with odd numbers too, for every model of the registry. So a tile has two scales for 128
// columns. A tile group is 256 columns: four of e4m3, and then four f32, the even rows' of both blocks first.

// BlockSize is the rows, and the columns, of a block.
const BlockSize = 128

// Blocks reports whether a format has a scale for each block of BlockSize rows and columns.
func (f Format) Blocks() bool { return f == FormatE4M3B128 }

// GroupSize is the bytes of a tile group, scales included: of integers those of a group of a run are not.
func (f Format) GroupSize() int {
	if f.Blocks() {
		return f.Parts()/2*GroupBytes + 4*4
	}
	return GroupBytes
}

// E4M3BlockOffset is where element (r, k) of a tile of e4m3 with blocks lies, from its start, in bytes, and where its
// scale lies, an f32.
func E4M3BlockOffset(r, k int) (code, scale int) {
	columns := FormatE4M3B128.Columns()
	group, in := k/columns*FormatE4M3B128.GroupSize(), k%columns
	return group + E4M3Offset(r, in), group + columns*TileRows + r%2*8 + in/BlockSize*4
}

// blockElement is element (r, k) of a tile, if a bf16 can hold it.
func blockElement(tile []byte, r, k int) float32 {
	code, scale := E4M3BlockOffset(r, k)
	return FromE4M3(tile[code]) * math.Float32frombits(binary.LittleEndian.Uint32(tile[scale:]))
}

// MostOfBlocks raises most, one number for each block of a row, to the largest magnitudes there, infinities and NaN
// aside.
func MostOfBlocks(most []float32, row []half.BF16) {
	for g := range most {
		most[g] = max(most[g], mostOf(row[g*BlockSize:min((g+1)*BlockSize, len(row))]))
	}
}

// E4M3BlockCodes are the codes of a row of bf16 patterns, with a scale for each of its blocks.
func E4M3BlockCodes(codes []int8, row []half.BF16, scales []float32) {
	for k, v := range row {
		codes[k] = int8(ToE4M3(v.Float32() / scales[k/BlockSize]))
	}
}

// blockScales are the scales of rows that are all of their blocks.
func blockScales(rows ...[]half.BF16) (scales []float32) {
	for _, row := range rows {
		if scales == nil {
			scales = make([]float32, CeilDiv(len(row), BlockSize))
		}
		if row != nil {
			MostOfBlocks(scales, row)
		}
	}
	for g, most := range scales {
		scales[g] = E4M3Scale(most)
	}
	return scales
}

// RoundRows rounds the rows of a tensor of k columns to what they are in a format: see RoundRow.
func (f Format) RoundRows(data []half.BF16, k int) {
	if !f.Blocks() {
		for row := range slices.Chunk(data, k) {
			f.RoundRow(row)
		}
		return
	}
	for block := range slices.Chunk(data, BlockSize*k) {
		rows := slices.Collect(slices.Chunk(block, k))
		scales := blockScales(rows...)
		for _, row := range rows {
			RoundBlockRow(row, scales)
		}
	}
}

// RoundBlockRow rounds a row of bf16 patterns, with a scale for each of its blocks.
func RoundBlockRow(row []half.BF16, scales []float32) {
	codes := make([]int8, len(row))
	E4M3BlockCodes(codes, row, scales)
	for k, code := range codes {
		row[k] = half.ExactBF16(FromE4M3(byte(code)) * scales[k/BlockSize])
	}
}

// packBlocks is PackRows of e4m3 with blocks. Knowing a tile only, it takes the tile's even rows as the rows of a
// block, and its odd ones: what the rest of a block would make of the scale changes no weight that is rounded to the
// format already.
func packBlocks(dst []byte, rows *[TileRows][]byte) {
	clear(dst)
	for parity := range 2 {
		var all [][]half.BF16
		for r := parity; r < TileRows; r += 2 {
			if rows[r] != nil {
				all = append(all, patterns(rows[r]))
			}
		}
		scales := blockScales(all...)
		for i, row := range all {
			codes := make([]int8, len(row))
			E4M3BlockCodes(codes, row, scales)
			putBlockRow(dst, parity+2*i, codes, scales)
		}
	}
}

// putBlockRow writes a row of a tile.
func putBlockRow(dst []byte, r int, codes []int8, scales []float32) {
	for k, v := range codes {
		code, scale := E4M3BlockOffset(r, k)
		dst[code] = byte(v)
		if k%BlockSize == 0 {
			binary.LittleEndian.PutUint32(dst[scale:], math.Float32bits(scales[k/BlockSize]))
		}
	}
}

// packBlocks is PackCoded of e4m3 with blocks. It refuses a tile whose even rows, or odd ones, do not share their
// scales. A NaN stays one.
func (m *MatrixPlan) packBlocks(dst []byte, rows *[TileRows]*Int4Row) error {
	clear(dst)
	blocks := CeilDiv(m.K, BlockSize)
	for r, row := range rows {
		if row == nil {
			continue
		}
		if len(row.Codes) != m.K || len(row.Scales) != blocks {
			return fmt.Errorf("pipeline: row %d of a tile of %q has %d codes and %d scales, want %d and %d", r, m.Name,
				len(row.Codes), len(row.Scales), m.K, blocks)
		}
		for g, scale := range row.Scales {
			if first := rows[r%2]; first != nil && math.Float32bits(first.Scales[g]) != math.Float32bits(scale) {
				return fmt.Errorf("pipeline: %q: rows %d and %d of a tile have scales %v and %v for columns from %d on, want one: "+
					"in %s every other row of a tile has to be of one block", m.Name, r%2, r, first.Scales[g], scale, g*BlockSize,
					m.Format)
			}
		}
		putBlockRow(dst, r, row.Codes, row.Scales)
	}
	return nil
}
