package checkpoint

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
)

// f16Table holds the bf16 of every binary16. A lookup takes the same time for
// zeros and subnormals, which half-precision weights are full of.
type f16Table [1 << 16]half.BF16

func newF16Table() *f16Table {
	var t f16Table
	for i := range t {
		t[i] = fromF16(half.F16(i))
	}
	return &t
}

// convert writes len(dst) little-endian elements of src, which may start at any
// address, as bf16. Rounding is to nearest, ties to even; what lies beyond bf16's
// largest number becomes an infinity; a NaN stays one, of the same sign, quiet
// when it was converted. Only F16 uses table.
func convert(dst []half.BF16, src []byte, from models.DType, table *f16Table) {
	switch from {
	case models.BF16:
		copyBF16(dst, src)
	case models.F16:
		table.convert(dst, src)
	case models.F32:
		convertF32(dst, src)
	default:
		panic("BUG: checkpoint: conversion from " + from.String())
	}
}

// convert takes four elements at a time: twice as fast as one.
func (t *f16Table) convert(dst []half.BF16, src []byte) {
	for len(dst) >= 4 && len(src) >= 8 {
		x := binary.LittleEndian.Uint64(src)
		dst[0], dst[1] = t[uint16(x)], t[uint16(x>>16)]
		dst[2], dst[3] = t[uint16(x>>32)], t[uint16(x>>48)]
		dst, src = dst[4:], src[8:]
	}
	for i := range dst {
		dst[i] = t[binary.LittleEndian.Uint16(src[2*i:])]
	}
}

// convertF32 takes four elements at a time.
func convertF32(dst []half.BF16, src []byte) {
	for len(dst) >= 4 && len(src) >= 16 {
		x, y := binary.LittleEndian.Uint64(src), binary.LittleEndian.Uint64(src[8:])
		dst[0], dst[1] = ofBits(uint32(x)), ofBits(uint32(x>>32))
		dst[2], dst[3] = ofBits(uint32(y)), ofBits(uint32(y>>32))
		dst, src = dst[4:], src[16:]
	}
	for i := range dst {
		dst[i] = ofBits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

// copyBF16 is a plain copy where the machine is little-endian.
func copyBF16(dst []half.BF16, src []byte) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(dst))), 2*len(dst)), src)
		return
	}
	for i := range dst {
		dst[i] = half.BF16At(src[2*i:])
	}
}

// ofBits rounds a float32, given by its bits.
func ofBits(x uint32) half.BF16 { return half.BF16Of(math.Float32frombits(x)) }

// fromF16 rounds a binary16, given by its bits, to bf16.
func fromF16(x half.F16) half.BF16 {
	if exponent := x & 0x7c00; exponent == 0 || exponent == 0x7c00 {
		return fromRareF16(x)
	}
	// Drop three bits of the fraction, carrying into the exponent, whose bias
	// grows from 15 to 127.
	magnitude := x & 0x7fff
	rounded := (magnitude + 3 + magnitude>>3&1) >> 3
	return half.BF16(x&0x8000 | (rounded + (127-15)<<7))
}

// fromRareF16 converts zeros, subnormals, infinities and NaNs.
func fromRareF16(x half.F16) half.BF16 {
	sign, fraction := half.BF16(x&0x8000), uint32(x&0x3ff)
	if x&0x7c00 == 0 {
		return sign | half.BF16Of(float32(fraction)*0x1p-24)
	}
	return sign | ofBits(0x7f800000|fraction<<13)
}
