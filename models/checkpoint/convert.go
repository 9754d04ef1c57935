package checkpoint

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/mkgen/mkgen/models"
)

// convert writes len(dst) little-endian elements of src, which may start at any
// address, as bf16. Rounding is to nearest, ties to even; what lies beyond bf16's
// largest number becomes an infinity; a NaN stays one, of the same sign, quiet
// when it was converted.
func convert(dst []uint16, src []byte, from models.DType) {
	switch from {
	case models.BF16:
		copyBF16(dst, src)
	case models.F16:
		for i := range dst {
			dst[i] = fromF16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case models.F32:
		for i := range dst {
			dst[i] = fromF32(binary.LittleEndian.Uint32(src[4*i:]))
		}
	default:
		panic("BUG: checkpoint: conversion from " + from.String())
	}
}

// copyBF16 is a plain copy where the machine is little-endian.
func copyBF16(dst []uint16, src []byte) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(dst))), 2*len(dst)), src)
		return
	}
	for i := range dst {
		dst[i] = binary.LittleEndian.Uint16(src[2*i:])
	}
}

// fromF32 rounds a float32, given by its bits, to bf16.
func fromF32(x uint32) uint16 {
	if x&0x7fffffff > 0x7f800000 {
		return uint16(x>>16) | 0x40
	}
	return uint16((x + 0x7fff + x>>16&1) >> 16)
}

// fromF16 rounds a binary16, given by its bits, to bf16.
func fromF16(x uint16) uint16 {
	if exponent := x & 0x7c00; exponent == 0 || exponent == 0x7c00 {
		return fromRareF16(x)
	}
	// Drop three bits of the fraction, carrying into the exponent, whose bias
	// grows from 15 to 127.
	magnitude := x & 0x7fff
	rounded := (magnitude + 3 + magnitude>>3&1) >> 3
	return x&0x8000 | (rounded + (127-15)<<7)
}

// fromRareF16 converts zeros, subnormals, infinities and NaNs.
func fromRareF16(x uint16) uint16 {
	sign, fraction := x&0x8000, uint32(x&0x3ff)
	if x&0x7c00 == 0 {
		return sign | fromF32(math.Float32bits(float32(fraction)*0x1p-24))
	}
	return sign | fromF32(0x7f800000|fraction<<13)
}
