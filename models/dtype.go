package models

import "fmt"

// DType is the element type of a model's weights. The zero value means "not
// stated" and is valid only for Config.CheckpointDType.
type DType uint8

// The element types a configuration can name.
const (
	DTypeUnstated DType = iota
	BF16                // bfloat16, 2 bytes
	F16                 // IEEE binary16, 2 bytes
	F32                 // IEEE binary32, 4 bytes
)

// String returns the name used in Hugging Face's config.json ("bfloat16",
// "float16", "float32"), or "unstated" for the zero value.
func (d DType) String() string {
	switch d {
	case DTypeUnstated:
		return "unstated"
	case BF16:
		return "bfloat16"
	case F16:
		return "float16"
	case F32:
		return "float32"
	}
	return fmt.Sprintf("DType(%d)", uint8(d))
}

// Bytes returns the size of one element in bytes. It panics for the zero value
// and for values outside the enumeration: a validated Config.DType is neither.
func (d DType) Bytes() int {
	switch d {
	case BF16, F16:
		return 2
	case F32:
		return 4
	}
	panic("BUG: models: size of " + d.String())
}

// dtypeByName is the inverse of String over the types a file can name.
func dtypeByName(name string) (DType, bool) {
	for _, d := range []DType{BF16, F16, F32} {
		if d.String() == name {
			return d, true
		}
	}
	return DTypeUnstated, false
}
