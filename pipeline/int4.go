package pipeline

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline/i4"
)

// LeastInt4Exponent is the least biased exponent of a scale of weights of integers.
const LeastInt4Exponent = 30

// Int4Scale is the scale of a group of weights whose largest magnitude is most, a bf16, as bits of a
// bf16: the least number of five binary digits that is a seventh of most at least, and no less than 2 to
// the LeastInt4Exponent − 127. Of five digits, so that seven times it is still a bf16: what a weight
// rounds to is one. The scale is NaN where most is no number, or infinite.
func Int4Scale(most half.BF16) half.BF16 {
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

// Int8Scale is Int4Scale of weights of 8 bits: the least power of two 127 times which is most at least. 127 times it is
// still a bf16, which it would not be of a number of two digits.
func Int8Scale(most half.BF16) half.BF16 {
	most &= 0x7fff
	if most >= infinity>>16 {
		return 0x7fc0
	}
	const digits = 6 // 127 is 2⁶ times the largest bf16 below 2
	return max((most+1)>>7, LeastInt4Exponent+digits)<<7 - digits<<7
}

// MXFP4Scale is Int4Scale of weights of E2M1: the power of two times which 4 the magnitude is whose power of two is
// nearest to most, so that a weight moves by a quarter of its group's largest at most.
func MXFP4Scale(most half.BF16) half.BF16 {
	most &= 0x7fff
	if most >= infinity>>16 {
		return 0x7fc0
	}
	return max((most+E2M1Over)>>7, LeastInt4Exponent+2)<<7 - 2<<7
}

// E2M1Over is what is added to a bf16's bits so that those from 1.75 on have the next exponent: of 7 and more, times a
// scale, the nearest would be 8.
const E2M1Over = 0x20

// ToE2M1 rounds x to the nearest number of E2M1, ties to the even code; what is beyond becomes ±6. Zeros and NaN are 0.
func ToE2M1(x float32) int8 {
	code, magnitude := int8(0), x
	if x < 0 {
		magnitude = -x
	}
	for j, middle := range E2M1Middles {
		if magnitude > middle || magnitude == middle && j%2 == 1 {
			code++
		}
	}
	if x < 0 && code > 0 {
		code |= -8
	}
	return code
}

// E2M1Middles are halfway between a magnitude of E2M1 and the next.
var E2M1Middles = [7]float32{0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5}

// nvfp4Group is the columns of a scale group of FormatNVFP4.
const nvfp4Group = 16

// NVFP4Factor is the factor of a row whose largest magnitude is most, finite and not negative: the least power of two
// times which 2688, 6 times the largest e4m3, is most at least, and no less than 2 to the LeastInt4Exponent − 127. A
// code times a scale has six digits: being a power of two, the factor keeps what a row rounds to a bf16.
func NVFP4Factor(most float32) float32 {
	u := math.Float32bits(most)
	e := int(u>>23) - 11
	if u&(1<<23-1) > NVFP4Most {
		e++
	}
	return math.Float32frombits(uint32(max(e, LeastInt4Exponent)) << 23)
}

// NVFP4Most is the fraction of 2688, as an f32's, and Sixth the f32 nearest to 1/6.
const (
	NVFP4Most = 0x280000
	Sixth     = float32(1.0 / 6)
)

// nvfp4Scale is the code of the scale of a group of 16 columns whose largest magnitude is most, a bf16, in a row of a
// factor: the e4m3 nearest to a sixth of it, and not 0; NaN where it is no number, or infinite.
func nvfp4Scale(most half.BF16, factor float32) byte {
	if most >= infinity>>16 {
		return 0x7f
	}
	sixth := most.Float32() * Sixth
	return max(ToE4M3(sixth/factor), 1)
}

// factorOf is the factor of a row of bf16 patterns: 1 but of nvfp4.
func (f Format) factorOf(row []half.BF16) float32 {
	if f != FormatNVFP4 {
		return 1
	}
	return NVFP4Factor(mostOf(row))
}

// int4Scale is Int4Scale or Int8Scale or MXFP4Scale as the format has it: of binary16 scales none is below 2⁻¹⁴, and
// one of 2¹⁶ or more is NaN.
func (f Format) int4Scale(most half.BF16) float32 {
	bits := Int4Scale(most)
	switch {
	case f.E2M1():
		bits = MXFP4Scale(most)
	case f.Bits() == 8:
		bits = Int8Scale(most)
	}
	scale := bits.Float32()
	if f.F16Scales() {
		scale = max(scale, 0x1p-14)
		if scale > half.MaxF16 {
			scale = float32(math.NaN())
		}
	}
	return scale
}

// int4Group is the scale of a group of bf16 patterns in a row with a factor, and their codes: the nearest, ties to
// even.
func (f Format) int4Group(codes []int8, group []half.BF16, factor float32) (scale float32) {
	most := half.BF16(0)
	for _, v := range group {
		most = max(most, v&0x7fff)
	}
	if f == FormatNVFP4 {
		scale = FromE4M3(nvfp4Scale(most, factor))
	} else {
		scale = f.int4Scale(most)
	}
	floats := f.E2M1()
	for i, v := range group {
		const round = 0x1.8p23 // adding it to what is small leaves the nearest integer in the low bits
		codes[i] = 0
		switch q := v.Float32() / (scale * factor); {
		case q != q:
		case floats:
			codes[i] = ToE2M1(q)
		default:
			codes[i] = int8(math.Float32bits(q+round) - math.Float32bits(round))
		}
	}
	return scale
}

// eachInt4Group calls body for the scale groups of a row, the last of which may be shorter.
func eachInt4Group(row []half.BF16, group int, body func(g int, v []half.BF16)) {
	if group == i4.Whole {
		body(0, row)
		return
	}
	for first := 0; first < len(row); first += group {
		body(first/group, row[first:min(first+group, len(row))])
	}
}

// roundInt4 rounds a row to what it is in integers.
func (f Format) roundInt4(row []half.BF16, group int) {
	shape := i4.Shape{E2M1: f.E2M1()}
	codes, factor := make([]int8, len(row)), f.factorOf(row)
	eachInt4Group(row, group, func(_ int, v []half.BF16) {
		scale := f.int4Group(codes, v, factor) * factor
		for i, code := range codes[:len(v)] {
			v[i] = half.ExactBF16(float32(shape.Halves(code)) / 2 * scale)
		}
	})
}

// Int4Row is a row of codes: (code − zero point) times a scale.
type Int4Row struct {
	Codes []int8 // of each column, −8 to 7, or of 8 bits any; of e4m3 and e2m1 bits
	// of each scale group, one where a row is one, or of each of a row's blocks, as many as Format.Scales; as 16 bits of
	// the format, of mxfp4 as a power of two, or of nvfp4 as an e4m3, exact, and behind them the factor of the row's
	// tensor
	Scales []float32
	Zeros  []int8 // of each scale group, −8 to 8, or of 8 bits any, in formats with zero points
}

// int4Row is a row of bf16 patterns in the format; nil of none.
func (f Format) int4Row(row []half.BF16, shape i4.Shape) *Int4Row {
	if len(row) == 0 {
		return nil
	}
	r, factor := &Int4Row{Codes: make([]int8, len(row))}, f.factorOf(row)
	eachInt4Group(row, shape.Group, func(g int, v []half.BF16) {
		codes := r.Codes[g*shape.Group:][:len(v)]
		r.Scales = append(r.Scales, f.int4Group(codes, v, factor))
		zero := int8(0)
		if shape.Zeros {
			zero = -int8(g % 2)
		}
		r.Zeros = append(r.Zeros, zero)
		for i := range codes {
			codes[i] += zero
		}
	})
	if f == FormatNVFP4 {
		r.Scales = append(r.Scales, factor)
	}
	return r
}

// PackCoded writes one row tile of a matrix of integers or e4m3; a row that is nil is padding. A row of another form,
// and a number that the format has no room for, is refused. Weights that are not finite are NotFinite's to find.
func (m *MatrixPlan) PackCoded(dst []byte, rows *[TileRows]*Int4Row) error {
	shape, ok := m.Format.Int4(m.K)
	switch {
	case m.Format == FormatE4M3:
		return m.packE4M3(dst, rows)
	case m.Format.Blocks():
		return m.packBlocks(dst, rows)
	case !ok:
		return fmt.Errorf("pipeline: %q is %s, want integers or e4m3", m.Name, m.Format)
	}
	groups := m.Format.Scales(m.K)
	least, most, zero := shape.Range()
	for r, row := range rows {
		switch {
		case row == nil:
			continue
		case len(row.Codes) != m.K || len(row.Scales) != groups || shape.Zeros && len(row.Zeros) != groups:
			return fmt.Errorf("pipeline: row %d of a tile of %q has %d codes, %d scales and %d zero points, want %d and %d of each", r, m.Name, len(row.Codes), len(row.Scales), len(row.Zeros), m.K, groups)
		}
		for g, scale := range row.Scales {
			factor := shape.Group == i4.Whole || m.Format == FormatNVFP4 && g == groups-1 // any f32
			if !factor && !m.Format.holds(scale) {
				return fmt.Errorf("pipeline: scale %v of row %d of a tile of %q, want one that %s can hold", scale, r, m.Name,
					m.Format)
			} else if shape.Zeros && (int(row.Zeros[g]) < -zero || int(row.Zeros[g]) > zero) {
				return fmt.Errorf("pipeline: zero point %d of row %d of a tile of %q, want −%d to %d", row.Zeros[g], r, m.Name,
					zero, zero)
			}
		}
		for _, code := range row.Codes {
			if code < least || code > most {
				return fmt.Errorf("pipeline: code %d of row %d of a tile of %q, want −%d to %d", code, r, m.Name, zero, most)
			}
		}
	}
	m.packInt4(dst, shape, rows)
	return nil
}

// packInt4 is PackCoded of what is known to fit.
func (m *MatrixPlan) packInt4(dst []byte, shape i4.Shape, rows *[TileRows]*Int4Row) {
	runs := dst[:len(dst)-m.Format.ScaleBytes()]
	clear(dst)
	columns := shape.Run * i4.Columns
	codes := make([]int8, len(runs)/shape.RunBytes()*columns)
	for r, row := range rows {
		if row == nil {
			continue
		}
		clear(codes[copy(codes, row.Codes):])
		for run := 0; run < len(codes)/columns; run++ {
			shape.PutRow(runs[run*shape.RunBytes():], r, codes[run*columns:][:columns])
		}
		scales := row.Scales
		if m.Format.ScaleBytes() > 0 { // the row's is the last, or the only one
			last := len(scales) - 1
			binary.LittleEndian.PutUint32(dst[len(runs)+4*r:], math.Float32bits(scales[last]))
			scales = scales[:last]
		}
		for g, scale := range scales {
			at := runs[g/shape.RowEntries()*shape.RunBytes():][shape.Entry(r, g%shape.RowEntries()):]
			shape.PutScale(at, m.Format.scaleBits(scale))
			if shape.Zeros {
				binary.LittleEndian.PutUint16(at[2:], uint16(int16(-shape.Times()*int(row.Zeros[g]))))
			}
		}
	}
}

// holds reports whether a scale of a group is a number of the format, or NaN. Of mxfp4 2⁻¹²⁷ is one, which is packed as
// 0: checkpoints have it where all codes are 0.
func (f Format) holds(scale float32) bool {
	return f.scaleOf(f.scaleBits(scale)) == scale || scale != scale || f == FormatMXFP4 && scale == 0x1p-127
}

// scaleBits are the 16 bits of a scale of a group, of mxfp4 and nvfp4 the 8, and scaleOf what they mean.
func (f Format) scaleBits(scale float32) uint16 {
	switch {
	case f == FormatMXFP4:
		return uint16(math.Float32bits(scale) >> 23 & 0xff)
	case f == FormatNVFP4:
		return uint16(ToE4M3(scale))
	case f.F16Scales():
		return uint16(half.F16Of(float64(scale)))
	}
	return uint16(half.ExactBF16(scale))
}

func (f Format) scaleOf(bits uint16) float32 {
	switch {
	case f == FormatMXFP4 && bits == 255:
		return float32(math.NaN())
	case f == FormatMXFP4:
		return math.Float32frombits(uint32(bits) << 23)
	case f == FormatNVFP4:
		return FromE4M3(byte(bits))
	case f.F16Scales():
		return half.F16(bits).Float32()
	}
	return half.BF16(bits).Float32()
}

// unpackInt4 is what a row of a tile of integers means.
func (f Format) unpackInt4(row []half.BF16, tile []byte, shape i4.Shape, r int) {
	columns := shape.Run * i4.Columns
	for k := range row {
		run := tile[k/columns*shape.RunBytes():]
		halves := shape.Halves(shape.CodeOf(run, r, k%columns))
		scale := float32(1)
		if f.ScaleBytes() > 0 {
			behind := CeilDiv(len(row), columns) * shape.RunBytes()
			scale = math.Float32frombits(binary.LittleEndian.Uint32(tile[behind+4*r:]))
		}
		if shape.Group != i4.Whole {
			entry := run[shape.Entry(r, k%columns/shape.Group):]
			if scale *= f.scaleOf(shape.ScaleBits(entry)); shape.Zeros {
				halves += 2 * int(int16(binary.LittleEndian.Uint16(entry[2:]))) / shape.Times()
			}
		}
		row[k] = half.ExactBF16(float32(halves) / 2 * scale)
	}
}
