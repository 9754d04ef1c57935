package pipeline

import (
	"encoding/binary"
	"math"

	"github.com/mkgen/mkgen/pipeline/i4"
)

// LeastInt4Exponent is the least biased exponent of a scale of weights of 4 bits.
const LeastInt4Exponent = 30

// Int4Scale is the scale of a group of weights whose largest magnitude is most, a bf16, as bits of a
// bf16: the least number of five binary digits that is a seventh of most at least, and no less than 2 to
// the LeastInt4Exponent − 127. Of five digits, so that seven times it is still a bf16: what a weight
// rounds to is one. The scale is NaN where most is no number, or infinite.
func Int4Scale(most uint16) uint16 {
	most &= 0x7fff
	if most >= infinity>>16 {
		return 0x7fc0
	}
	exponent, m := most>>7, most&0x7f|0x80 // most is m·2^(exponent − 134)
	k := (m + 6) / 7
	exponent -= min(exponent, 3)
	if k > 31 {
		k = (m + 13) / 14
		exponent++
	}
	if exponent < LeastInt4Exponent {
		return LeastInt4Exponent << 7
	}
	return exponent<<7 | (k-16)<<3
}

// int4Group is the scale of a group of bf16 patterns, and their codes: the nearest, ties to even.
func int4Group(codes []int8, group []uint16) (scale uint16) {
	most := uint16(0)
	for _, v := range group {
		most = max(most, v&0x7fff)
	}
	scale = Int4Scale(most)
	by := ofBF16(scale)
	for i, v := range group {
		const round = 0x1.8p23 // adding it to what is small leaves the nearest integer in the low bits
		codes[i] = 0
		if q := ofBF16(v) / by; q == q {
			codes[i] = int8(math.Float32bits(q+round) - math.Float32bits(round))
		}
	}
	return scale
}

func ofBF16(v uint16) float32 { return math.Float32frombits(uint32(v) << 16) }

// eachInt4Group calls body for the scale groups of a row, the last of which may be shorter.
func eachInt4Group(row []uint16, group int, body func(g int, v []uint16)) {
	if group == i4.Whole {
		body(0, row)
		return
	}
	for first := 0; first < len(row); first += group {
		body(first/group, row[first:min(first+group, len(row))])
	}
}

// roundInt4 rounds a row to what it is in 4 bits.
func roundInt4(row []uint16, group int) {
	codes := make([]int8, len(row))
	eachInt4Group(row, group, func(_ int, v []uint16) {
		scale := ofBF16(int4Group(codes, v))
		for i, code := range codes[:len(v)] {
			v[i] = uint16(math.Float32bits(float32(code)*scale) >> 16)
		}
	})
}

// packInt4 writes one row tile of 4 bits.
func packInt4(dst []byte, shape i4.Shape, rows *[TileRows][]byte) {
	runs := dst
	if shape.Group == i4.Whole {
		runs = dst[:len(dst)-GroupBytes]
	}
	clear(dst)
	columns := shape.Run * i4.Columns
	codes := make([]int8, len(runs)/shape.RunBytes()*columns)
	for r, v := range rows {
		row := patterns(v)
		clear(codes)
		eachInt4Group(row, shape.Group, func(g int, v []uint16) {
			scale := int4Group(codes[g*shape.Group:], v)
			if shape.Group == i4.Whole {
				binary.LittleEndian.PutUint32(dst[len(runs)+4*r:], uint32(scale)<<16)
				return
			}
			run := runs[g/shape.RowEntries()*shape.RunBytes():]
			binary.LittleEndian.PutUint16(run[shape.Entry(r, g%shape.RowEntries()):], scale)
		})
		for run := 0; run < len(codes)/columns; run++ {
			shape.PutRow(runs[run*shape.RunBytes():], r, codes[run*columns:][:columns])
		}
	}
}

// unpackInt4 is what a row of a tile of 4 bits means.
func unpackInt4(row []uint16, tile []byte, shape i4.Shape, r int) {
	columns := shape.Run * i4.Columns
	for k := range row {
		run := tile[k/columns*shape.RunBytes():]
		at, high := shape.Code(r, k%columns)
		code := int8(run[at]<<4) >> 4
		if high {
			code = int8(run[at]) >> 4
		}
		var scale float32
		if shape.Group == i4.Whole {
			behind := ceilDiv(len(row), columns) * shape.RunBytes()
			scale = math.Float32frombits(binary.LittleEndian.Uint32(tile[behind+4*r:]))
		} else {
			scale = ofBF16(binary.LittleEndian.Uint16(run[shape.Entry(r, k%columns/shape.Group):]))
		}
		row[k] = uint16(math.Float32bits(float32(code)*scale) >> 16)
	}
}
