// Package i4 is how weights of 4 or 8 bits that are integers lie in a chunk, and what their input is as fixed
// point. It knows sizes and bytes only; package tasks/product multiplies them.
//
// A weight is a code from −8 to 7 times the scale of its row and scale group, or that code less
// a zero point times the scale. A checkpoint's codes from 0 to 15 and its zero points are taken
// less 8 each: the difference stays. Of 8 bits they are −128 to 127, and a checkpoint's less 128.
//
// # Layout
//
// A block is 8 rows × 128 columns in 512 bytes. Row r has the four 16-byte units 4r … 4r+3. Unit t
// of a row has in the low nibble of byte b of word j (words are little endian)
//
//	column 16j + 4t + b
//
// and in the high nibble the column 64 further on. So lane 4r + t of a warp reads 16 bytes that
// follow its neighbour's, and the nibbles of words 2m and 2m + 1 are, the low ones and the high
// ones for themselves, fragments of 32 columns of one row as mma.m16n8k32 wants them, as its A or
// as its B. A nibble is a two's complement: at the top of a byte it is 16 times the code, and one
// shift and two masks make eight codes operands.
//
// A block of 8 bits has 1024 bytes: the first 512 are what the low nibbles would be, as bytes, and the others what the
// high ones would. They are operands as they are.
//
// Codes of E2M1 are operands by a table of 16-byte values, which the nibbles of half a word select: those of the
// first half of a block's columns are in the low half of a word, nibble b for column 16j + 4t + b, and those of the
// other half in its high half.
//
// A run is n blocks of one row tile, along the columns, and then their scales. The scales are
// entries, in order of row, half of a block where a scale group is smaller than a block, block,
// and scale group in the half where that is 32. An entry is a scale's 16 bits (binary16 or
// bfloat16) or, with zero points, a word: the scale in the low half, −16 times the zero point, or of 8 bits −1
// times, in the high one. So a lane reads the scales of its row for several blocks at once. Of E2M1 an entry is a byte,
// of scale groups of 16 columns an e4m3, of 32 an E8M0: 2 to the byte − 127, and of byte 255 no number. Byte 0 is a
// scale of 0, where E8M0 has 2⁻¹²⁷.
//
// Where a whole row is one scale group, runs have no scales: they lie elsewhere.
package i4

import (
	"encoding/binary"
	"fmt"
)

// Sizes of a block.
const (
	Rows    = 8
	Columns = 128
)

// Whole is the Group of rows that are one scale group each.
const Whole = 0

// Shape says how the weights of a matrix lie.
type Shape struct {
	Group int  // columns of a scale group: 32, 64, 128 or Whole; of E2M1 32, whose scales are powers of two, or 16, e4m3
	Run   int  // blocks in a run
	Zeros bool // whether there are zero points
	Wide  bool // whether codes have 8 bits, and not 4
	E2M1  bool // whether codes of 4 bits are floats, a sign, two bits of exponent and one of fraction: see Halves
}

// BlockBytes is the size of a block.
func (s Shape) BlockBytes() int { return Rows * Columns * s.Bits() / 8 }

// Bits is the size of a code.
func (s Shape) Bits() int {
	if s.Wide {
		return 8
	}
	return 4
}

// Times is what a code is multiplied by as an operand: a nibble lies at the top of a byte.
func (s Shape) Times() int { return 1 << (8 - s.Bits()) }

// halves are twice the magnitudes that three bits of E2M1 stand for.
var halves = [8]int8{0, 1, 2, 3, 4, 6, 8, 12}

// Halves is twice what a code stands for: of E2M1, whose numbers are 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their opposites,
// else the code.
func (s Shape) Halves(code int8) int {
	switch {
	case !s.E2M1:
		return 2 * int(code)
	case code&8 != 0:
		return -int(halves[code&7])
	}
	return int(halves[code&7])
}

// Range are the least and the largest code, and how far a zero point may be from 0.
func (s Shape) Range() (least, most int8, zero int) {
	half := 1 << (s.Bits() - 1)
	return int8(-half), int8(half - 1), half
}

// Problem says what is wrong with a shape, or nothing.
func (s Shape) Problem() string {
	switch {
	case s.Group == 16 && (!s.E2M1 || s.Zeros || s.Wide):
		return "scale groups of 16 columns, want codes of E2M1 without zero points beside them"
	case s.Group != 16 && s.Group != 32 && s.Group != 64 && s.Group != 128 && s.Group != Whole:
		return fmt.Sprintf("scale groups of %d columns, want 32, 64, 128, or 0 for a whole row", s.Group)
	case s.Group == Whole && s.Zeros:
		return "zero points of whole rows, want scale groups"
	case s.Run < 1:
		return fmt.Sprintf("runs of %d blocks, want 1 at least", s.Run)
	case s.RunBytes()%16 != 0:
		return fmt.Sprintf("runs of %d bytes, want a multiple of 16: more blocks a run", s.RunBytes())
	}
	return ""
}

// PerBlock is how many scale groups a row of a block has; 0 where a whole row is one.
func (s Shape) PerBlock() int {
	if s.Group == Whole {
		return 0
	}
	return Columns / s.Group
}

// EntryBytes is the size of an entry.
func (s Shape) EntryBytes() int {
	switch {
	case s.Group == 16 || s.Exponents():
		return 1
	case s.Zeros:
		return 4
	}
	return 2
}

// Exponents reports whether an entry is an E8M0.
func (s Shape) Exponents() bool { return s.E2M1 && s.Group == 32 }

// RowEntries is how many entries a row of a run has.
func (s Shape) RowEntries() int { return s.Run * s.PerBlock() }

// RunBytes is the size of a run.
func (s Shape) RunBytes() int {
	return s.Run*s.BlockBytes() + Rows*s.RowEntries()*s.EntryBytes()
}

// Code is where the code of a row and column of a run lies: a byte, and whether in its high nibble.
func (s Shape) Code(row, column int) (at int, high bool) {
	block, in := column/Columns, column%Columns
	half, j, t, b := in/64, in%64/16, in%16/4, in%4
	at = block*s.BlockBytes() + (4*row+t)*16 + 4*j + b
	switch {
	case s.Wide:
		return at + half*s.BlockBytes()/2, false
	case s.E2M1:
		return at - b + 2*half + b/2, b%2 == 1
	}
	return at, half == 1
}

// CodeOf is the code of a row and column of a run.
func (s Shape) CodeOf(run []byte, row, column int) int8 {
	switch at, high := s.Code(row, column); {
	case s.Wide || high:
		return int8(run[at]) >> (8 - s.Bits())
	default:
		return int8(run[at]<<4) >> 4
	}
}

// Entry is where the entry of a row and scale group of a run lies, in bytes.
func (s Shape) Entry(row, group int) int {
	block, in := group/s.PerBlock(), group%s.PerBlock()
	at := row*s.RowEntries() + block
	if half := s.PerBlock() / 2; half > 0 {
		at = row*s.RowEntries() + (in/half*s.Run+block)*half + in%half
	}
	return s.Run*s.BlockBytes() + at*s.EntryBytes()
}

// Run is what the bytes of a run mean.
type Run struct {
	Codes  [Rows][]int8   // of each column, in Shape.Range
	Scales [Rows][]uint16 // of each scale group, the bits of a binary16 or bfloat16, or where an entry is a byte the byte
	Zeros  [Rows][]int8   // of each scale group, in Shape.Range; only if the shape has zero points
}

// Pack writes a run to dst, RunBytes long. Codes and zero points beyond their ranges are refused.
func (s Shape) Pack(dst []byte, run *Run) error {
	clear(dst)
	least, most, zero := s.Range()
	for row := range Rows {
		for c, v := range run.Codes[row][:s.Run*Columns] {
			if v < least || v > most {
				return fmt.Errorf("code %d in row %d, column %d, want −%d to %d", v, row, c, zero, most)
			}
		}
		s.PutRow(dst, row, run.Codes[row][:s.Run*Columns])
		for g := range s.RowEntries() {
			at := s.Entry(row, g)
			s.PutScale(dst[at:], run.Scales[row][g])
			if !s.Zeros {
				continue
			}
			z := int(run.Zeros[row][g])
			if z < -zero || z > zero {
				return fmt.Errorf("zero point %d in row %d, group %d, want −%d to %d", z, row, g, zero, zero)
			}
			binary.LittleEndian.PutUint16(dst[at+2:], uint16(int16(-s.Times()*z)))
		}
	}
	return nil
}

// PutRow writes the codes of a row of a run, of each column, to dst, whose codes of that row are 0.
func (s Shape) PutRow(dst []byte, row int, codes []int8) {
	for at := 0; at < len(codes); at += Columns {
		block, to := codes[at:][:Columns], dst[at/Columns*s.BlockBytes()+64*row:]
		for i := range 64 { // byte i%4 of word i/4%4 of unit i/16
			c := i/4%4*16 + i/16*4 + i%4
			switch {
			case s.Wide:
				to[i], to[i+s.BlockBytes()/2] = byte(block[c]), byte(block[c+64])
			case s.E2M1: // bytes 0 and 1 of a word have the first half's nibbles
				first := i/4%4*16 + i/16*4 + i%2*2 + i%4/2*64
				to[i] = byte(block[first])&15 | byte(block[first+1])<<4
			default:
				to[i] = byte(block[c])&15 | byte(block[c+64])<<4
			}
		}
	}
}

// PutScale writes a scale's bits to the entry that dst begins with.
func (s Shape) PutScale(dst []byte, bits uint16) {
	if s.EntryBytes() == 1 {
		dst[0] = byte(bits)
		return
	}
	binary.LittleEndian.PutUint16(dst, bits)
}

// ScaleBits are the bits of the scale of the entry that src begins with.
func (s Shape) ScaleBits(src []byte) uint16 {
	if s.EntryBytes() == 1 {
		return uint16(src[0])
	}
	return binary.LittleEndian.Uint16(src)
}

// Unpack is what Pack made src of.
func (s Shape) Unpack(src []byte) *Run {
	run := &Run{}
	for row := range Rows {
		for c := range s.Run * Columns {
			run.Codes[row] = append(run.Codes[row], s.CodeOf(src, row, c))
		}
		for g := range s.RowEntries() {
			at := s.Entry(row, g)
			run.Scales[row] = append(run.Scales[row], s.ScaleBits(src[at:]))
			if s.Zeros {
				run.Zeros[row] = append(run.Zeros[row], int8(-int16(binary.LittleEndian.Uint16(src[at+2:]))/int16(s.Times())))
			}
		}
	}
	return run
}
