package pipeline

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline/i4"
)

// Format says how a matrix's elements are stored.
type Format string

// The formats.
const (
	// FormatBF16 is bf16, and what "" stands for.
	FormatBF16 Format = "bf16"
	// FormatE4M3 is float8 e4m3, 8 bits, times a scale for each row.
	FormatE4M3 Format = "e4m3"
	// FormatI4 is codes of 4 bits, −7 to 7, times a scale for each row; the others have a scale for each
	// group of n columns of a row.
	FormatI4     Format = "i4"
	FormatI4G32  Format = "i4g32"
	FormatI4G64  Format = "i4g64"
	FormatI4G128 Format = "i4g128"
	// FormatI8 is codes of 8 bits, −127 to 127, times a scale for each row.
	FormatI8 Format = "i8"
	// FormatMXFP4 is codes of E2M1, 4 bits, times a power of two for each 32 columns of a row.
	FormatMXFP4 Format = "mxfp4"
	// FormatNVFP4 is codes of E2M1 times a scale in e4m3 for each 16 columns of a row, times a factor, an f32, of the
	// row's tensor.
	FormatNVFP4 Format = "nvfp4"
	// FormatE4M3B128 is float8 e4m3 times a scale for each block of 128 rows and 128 columns of a tensor.
	FormatE4M3B128 Format = "e4m3b128"
)

// Formats lists them.
func Formats() []Format {
	return []Format{FormatBF16, FormatE4M3, FormatI4, FormatI4G32, FormatI4G64, FormatI4G128, FormatI8, FormatMXFP4,
		FormatNVFP4, FormatE4M3B128}
}

// Formats of which only checkpoints with codes of their own are made (Own): those of 8 bits with groups, the name of a
// format with groups, and what is added to it.
const (
	formatI8G32  Format = "i8g32"
	formatI8G64  Format = "i8g64"
	formatI8G128 Format = "i8g128"

	withZeros = "-zeros" // each group has a zero point, −8 to 8, or of 8 bits −128 to 127
	withF16   = "-f16"   // scales are binary16, and not bfloat16
)

// OwnFormats lists them. Weights of bf16 that are rounded to one are what they are without zero points; these are 0 and
// −1 in turn, so that a kernel can be tried.
func OwnFormats() (list []Format) {
	for _, of := range []Format{FormatI4G32, FormatI4G64, FormatI4G128} {
		list = append(list, of+withZeros, of+withF16, of+withZeros+withF16)
	}
	for _, of := range []Format{formatI8G32, formatI8G64, formatI8G128} {
		list = append(list, of, of+withZeros, of+withF16, of+withZeros+withF16)
	}
	return list
}

// Own is the format of n bits with groups of n columns, FormatI4's without scales of groups, that has the
// properties; false if there is none.
func Own(bits, group int, zeros, f16 bool) (Format, bool) {
	f := Format("")
	for name, g := range int4Groups {
		if g == group && name.Bits() == bits && !name.E2M1() {
			f = name
		}
	}
	if group == i4.Whole {
		return f, !zeros // whose scales are f32
	}
	if zeros {
		f += withZeros
	}
	if f16 {
		f += withF16
	}
	return f, f != "" && int4Groups[f.Base()] == group
}

// OwnFloats is the format of floats of 4 or 8 bits with a scale for each group of n columns, of 8 bits for each block
// of a tensor; 0 stands for a scale a row.
func OwnFloats(bits, group int) Format {
	switch {
	case bits == 4 && group == nvfp4Group:
		return FormatNVFP4
	case bits == 4:
		return FormatMXFP4
	case group > 0:
		return FormatE4M3B128
	}
	return FormatE4M3
}

// Base is the format without what OwnFormats add, and without those of single matrices.
func (f Format) Base() Format {
	base, _, _ := strings.Cut(string(f), ",")
	base, _, _ = strings.Cut(base, "-")
	return Format(base)
}

// For is the format of a matrix where f has several: a format and behind it, after commas, those of some matrices, as
// in "i4g128,down=i8". Such a text has the properties of the first, but zero points if any has some.
func (f Format) For(matrix string) Format {
	first, rest, _ := strings.Cut(string(f), ",")
	for part := range strings.SplitSeq(rest, ",") {
		if name, of, ok := strings.Cut(part, "="); ok && name == matrix {
			return Format(of)
		}
	}
	return Format(first)
}

// F16Scales is whether scales of groups are binary16.
func (f Format) F16Scales() bool { return strings.HasSuffix(string(f), withF16) }

// Zeros is whether groups have zero points.
func (f Format) Zeros() bool { return strings.Contains(string(f), withZeros) }

// E2M1 is whether codes are floats of 4 bits. They are multiplied as integers.
func (f Format) E2M1() bool { return f.Base() == FormatMXFP4 || f.Base() == FormatNVFP4 }

// int4Groups are the columns of a scale group of each format that is multiplied in integers.
var int4Groups = map[Format]int{FormatI4: i4.Whole, FormatI4G32: 32, FormatI4G64: 64, FormatI4G128: 128,
	FormatMXFP4: 32, FormatNVFP4: nvfp4Group, FormatI8: i4.Whole, formatI8G32: 32, formatI8G64: 64, formatI8G128: 128}

// Bits is the size of a code.
func (f Format) Bits() int {
	switch {
	case f == FormatE4M3, f.Blocks(), strings.HasPrefix(string(f), string(FormatI8)):
		return 8
	case f.E2M1(), strings.HasPrefix(string(f), string(FormatI4)):
		return 4
	}
	return 16
}

// Int4 is how a row of k columns lies in a format of integers, of 4 bits or of 8; false of another format.
func (f Format) Int4(k int) (i4.Shape, bool) {
	group, ok := int4Groups[f.Base()]
	if !ok {
		return i4.Shape{}, false
	}
	run := 4 // blocks, whose scales a lane reads at once
	for CeilDiv(k, i4.Columns)%run != 0 {
		run /= 2
	}
	return i4.Shape{Group: group, Run: run, Zeros: f.Zeros(), Wide: f.Bits() == 8, E2M1: f.E2M1()}, true
}

// Integers reports whether a format's codes are multiplied as integers.
func (f Format) Integers() bool {
	_, integers := int4Groups[f.Base()]
	return integers
}

// Parts is how many k groups of GroupK columns lie together in 8 rows: 512 bytes of bf16 are one, of e4m3 two, a
// block of integers, of 512 bytes or 1024, is four, and two blocks of e4m3 with their scales are eight.
func (f Format) Parts() int {
	switch {
	case f.Blocks():
		return 2 * BlockSize / GroupK
	case f.Integers():
		return 4
	case f == FormatE4M3:
		return 2
	}
	return 1
}

// Columns is how many columns lie together.
func (f Format) Columns() int { return f.Parts() * GroupK }

// ScaleBytes is what lies behind the tile groups of a tile: the scales of its rows as f32, and
// zeros up to a whole tile group. It is not streamed with them.
func (f Format) ScaleBytes() int {
	if f == FormatE4M3 || f == FormatI4 || f == FormatI8 || f == FormatNVFP4 {
		return GroupBytes
	}
	return 0
}

// Scales is how many scales a row of k columns has, in Int4Row: of groups or blocks, and of nvfp4 the factor behind
// them.
func (f Format) Scales(k int) int {
	switch group := int4Groups[f.Base()]; {
	case f.Blocks():
		return CeilDiv(k, BlockSize)
	case group == i4.Whole: // e4m3, too
		return 1
	case f == FormatNVFP4:
		return CeilDiv(k, group) + 1
	default:
		return CeilDiv(k, group)
	}
}

// Of is how many bytes n columns of a tile have, in whole runs, with the scales of groups
// among them, which are streamed with the codes.
func (f Format) Of(columns int) int {
	groups := columns / f.Columns()
	if shape, ok := f.Int4(columns); ok {
		shape.Run = groups
		return shape.RunBytes()
	}
	return groups * f.GroupSize()
}

// StageOf is the size of a stage with room for n bytes of elements, in whole tile groups, and the scales among
// them.
func (f Format) StageOf(size int) int {
	each := TileRows * f.Columns() * f.Bits() / 8
	return size + roundUp(f.Of(size/each*f.Columns())-size/each*each, StageAlign)
}

// Run is how many columns of a row of k cannot be parted: a tile group, or of integers a run.
func (f Format) Run(k int) int {
	if shape, ok := f.Int4(k); ok {
		return shape.Run * i4.Columns
	}
	return f.Columns()
}

// E4M3Scale is the scale of a row whose largest magnitude is most, finite and not negative: the
// least power of two times which 448, the largest e4m3, is most at least. Being a power of two it
// moves no bit: what a row rounds to is a bf16. A row of zeros has 1.
func E4M3Scale(most float32) float32 {
	u := math.Float32bits(most)
	if u == 0 {
		return 1
	}
	e := int(u>>23) - 8
	if u&(1<<23-1) > 0x600000 { // above 1.75
		e++
	}
	return math.Float32frombits(uint32(max(e, 1)) << 23)
}

// ToE4M3 rounds x to the nearest e4m3, ties to even; what is beyond becomes ±448, but infinities and
// NaN become NaN, 0x7f or 0xff: so they show in what is computed with them.
func ToE4M3(x float32) byte {
	u := math.Float32bits(x)
	sign := byte(u >> 24 & 0x80)
	switch u &= 1<<31 - 1; {
	case u >= infinity:
		return sign | 0x7f
	case u >= 0x43e80000: // 464 and above would round to 480, which is NaN's code
		return sign | 0x7e
	case u < 0x3c800000: // below 2⁻⁶: subnormal; adding 2¹⁴ aligns the last bit to 2⁻⁹
		y := math.Float32frombits(u) + 1<<14
		return sign | byte(math.Float32bits(y)-math.Float32bits(1<<14))
	}
	u += 0x7ffff + u>>20&1
	return sign | byte(u>>20-(127-7)<<3)
}

// FromE4M3 is the value of a code, exactly; 0x7f and 0xff are NaN.
func FromE4M3(code byte) float32 {
	exp, man := uint32(code>>3&15), uint32(code&7)
	sign := uint32(code&0x80) << 24
	switch {
	case exp == 15 && man == 7:
		return float32(math.NaN())
	case exp == 0:
		return math.Float32frombits(sign | math.Float32bits(float32(man)/(1<<9)))
	}
	return math.Float32frombits(sign | (exp+127-7)<<23 | man<<20)
}

// infinity is the bits of a float32.
const infinity = 0x7f800000

// mostOf is the largest magnitude of bf16 patterns, infinities and NaN aside.
func mostOf(row []half.BF16) float32 {
	most := half.BF16(0)
	for _, v := range row {
		if v &= 0x7fff; v < infinity>>16 {
			most = max(most, v)
		}
	}
	return most.Float32()
}

// RoundRow rounds a row of bf16 patterns to what it is in a format, which bf16 can hold: in one with blocks, as the
// only row of its tensor.
func (f Format) RoundRow(row []half.BF16) {
	if group, ok := int4Groups[f.Base()]; ok {
		f.roundInt4(row, group)
	}
	if f.Blocks() {
		f.RoundRows(row, len(row))
	}
	if f != FormatE4M3 {
		return
	}
	scale := E4M3Scale(mostOf(row))
	for i, v := range row {
		x := FromE4M3(ToE4M3(v.Float32() / scale))
		row[i] = half.ExactBF16(x * scale)
	}
}

// PackRows writes one row tile of a matrix's format from rows as the function PackRows takes them;
// dst is TileBytes long.
func (m *MatrixPlan) PackRows(dst []byte, rows *[TileRows][]byte) {
	if shape, ok := m.Format.Int4(m.K); ok {
		var coded [TileRows]*Int4Row
		for r, v := range rows {
			coded[r] = m.Format.int4Row(patterns(v), shape)
		}
		m.packInt4(dst, shape, &coded)
	} else if m.Format.Blocks() {
		packBlocks(dst, rows)
	} else if m.Format == FormatE4M3 {
		PackE4M3(dst, rows)
	} else {
		PackRows(dst, rows)
	}
}

// PackE4M3 writes one row tile of codes and scales from rows as PackRows takes them; dst is a
// whole tile, Format.Of(KPadded) bytes and Format.ScaleBytes.
func PackE4M3(dst []byte, rows *[TileRows][]byte) {
	groups, scales := dst[:len(dst)-GroupBytes], dst[len(dst)-GroupBytes:]
	clear(scales)
	for r, v := range rows {
		row := patterns(v)
		scale := E4M3Scale(mostOf(row))
		binary.LittleEndian.PutUint32(scales[4*r:], math.Float32bits(scale))
		for k := range len(groups) / TileRows {
			code := byte(0)
			if k < len(row) {
				code = ToE4M3(row[k].Float32() / scale)
			}
			groups[E4M3Offset(r, k)] = code
		}
	}
}

// packE4M3 is PackCoded of e4m3. A NaN stays one.
func (m *MatrixPlan) packE4M3(dst []byte, rows *[TileRows]*Int4Row) error {
	clear(dst)
	scales := dst[len(dst)-GroupBytes:]
	for r, row := range rows {
		if row == nil {
			continue
		}
		if len(row.Codes) != m.K || len(row.Scales) != 1 {
			return fmt.Errorf("pipeline: row %d of a tile of %q has %d codes and %d scales, want %d and 1", r, m.Name,
				len(row.Codes), len(row.Scales), m.K)
		}
		binary.LittleEndian.PutUint32(scales[4*r:], math.Float32bits(row.Scales[0]))
		for k, code := range row.Codes {
			dst[E4M3Offset(r, k)] = byte(code)
		}
	}
	return nil
}

// patterns are a row's bf16 patterns.
func patterns(v []byte) []half.BF16 {
	row := make([]half.BF16, len(v)/2)
	for i := range row {
		row[i] = half.BF16At(v[2*i:])
	}
	return row
}

// E4M3Offset is where element (r, k) of a tile of e4m3 lies, from its start, in bytes.
//
// A unit of 16 bytes has what a lane multiplies: 8 columns of the first 32 of a group, and the
// same 8 of the second.
func E4M3Offset(r, k int) int {
	group, in := k/64, k%64
	return group*GroupBytes + unitOffset(r, in%GroupK/8) + in/GroupK*8 + in%8
}
