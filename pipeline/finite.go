package pipeline

import (
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline/i4"
)

// NotFinite returns the first column of a row of codes whose weight no finite bf16 holds, and that weight as a bf16:
// ±Inf or NaN. The column is -1 where all weights are finite. The row fits the format, as PackCoded wants it.
//
// Integers and E2M1 cost a product for each scale: codes are looked at only where the largest possible one would
// overflow. In e4m3 each code may be NaN.
func (f Format) NotFinite(r *Int4Row) (column int, weight float32) {
	scales, factor := r.Scales, float32(1)
	if f == FormatNVFP4 {
		last := len(scales) - 1
		scales, factor = scales[:last], scales[last]
	}
	columns := int4Groups[f.Base()]
	switch {
	case f.Blocks():
		columns = BlockSize
	case columns == i4.Whole:
		columns = len(r.Codes)
	}
	most, floats, zeros := f.mostValue(), !f.Integers(), f.Zeros()
	for g, scale := range scales {
		first := g * columns
		codes := r.Codes[first:min(first+columns, len(r.Codes))]
		if scale *= factor; half.BF16Of(most*scale).IsFinite() && !(floats && hasNaN(codes)) {
			continue
		}
		zero := int8(0)
		if zeros {
			zero = r.Zeros[g]
		}
		for i, code := range codes {
			if w := half.BF16Of(f.value(code, zero) * scale); !w.IsFinite() {
				return first + i, w.Float32()
			}
		}
	}
	return -1, 0
}

// mostValue is a bound of the magnitudes of value.
func (f Format) mostValue() float32 {
	switch {
	case f.E2M1():
		return 6
	case f.Integers():
		return float32(int(1) << f.Bits())
	}
	return 448
}

// value is what a code stands for before it is scaled.
func (f Format) value(code, zero int8) float32 {
	if !f.Integers() {
		return FromE4M3(byte(code))
	}
	return float32(i4.Shape{E2M1: f.E2M1()}.Halves(code))/2 - float32(zero)
}

// hasNaN reports whether there is a NaN of e4m3.
func hasNaN(codes []int8) bool {
	for _, code := range codes {
		if code&0x7f == 0x7f {
			return true
		}
	}
	return false
}
