package main

import "github.com/mkgen/mkgen/megakernel/reference"

// format is what the keys or the values of a cache are rounded to.
type format string

// The formats. That of the scaled one is e4m3 of the value over its scale, times
// the scale.
const (
	inFloat64 format = "float64"
	inBF16    format = "bf16"
	inE4M3    format = "e4m3"
	inScaled  format = "e4m3, scaled"
)

var formats = []format{inFloat64, inBF16, inE4M3, inScaled}

// cacheScale is that of inScaled: the greatest of some million keys, about 5
// standard deviations, is then about 448.
const cacheScale = 5 * keySD / reference.E4M3Max

func (f format) round(x float64) float64 {
	switch f {
	case inBF16:
		return reference.RoundBF16(x)
	case inE4M3:
		return reference.RoundE4M3(nearest(x))
	case inScaled:
		return reference.RoundE4M3(nearest(x/cacheScale)) * cacheScale
	}
	return x
}

// keys and values are the formats in which the variant has them.
func (v variant) keys() format   { return v.format(key, v.keysIn) }
func (v variant) values() format { return v.format(value, v.valuesIn) }

func (v variant) format(r rounding, given format) format {
	switch {
	case given != "":
		return given
	case v.on[r] || v.Group == groupHF && v.Name == frameworkAll:
		return inBF16
	}
	return inFloat64
}

// e4m3Variants are the caches that are not bf16: alone, and in the kernel, which
// then has the weights of tokens in f16.
func e4m3Variants() []variant {
	kernel := only(kernelRoundings...)
	delete(kernel, key)
	delete(kernel, value)
	return []variant{
		{Group: groupE4M3, Name: "keys in e4m3", keysIn: inE4M3},
		{Group: groupE4M3, Name: "values in e4m3", valuesIn: inE4M3},
		{Group: groupE4M3, Name: "both in e4m3", keysIn: inE4M3, valuesIn: inE4M3},
		{Group: groupE4M3, Name: "both, scaled to a greatest of 448", keysIn: inScaled, valuesIn: inScaled},
		{Group: groupE4M3, Name: "the kernel, its cache in e4m3", on: kernel, splits: usualSplits, keysIn: inE4M3,
			valuesIn: inE4M3},
	}
}
