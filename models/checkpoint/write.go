package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/mkgen/mkgen/models"
)

// Tensor is one tensor for WriteSafetensors.
type Tensor struct {
	Name  string
	DType models.DType // BF16, F16 or F32
	Shape []int        // rows and columns, or the length of a vector; not negative
	Data  []byte       // row-major, little-endian: the product of Shape elements of DType
}

// BF16Bytes returns bf16 bit patterns as Tensor.Data.
func BF16Bytes(bits []uint16) []byte {
	out := make([]byte, 0, 2*len(bits))
	for _, v := range bits {
		out = binary.LittleEndian.AppendUint16(out, v)
	}
	return out
}

// WriteSafetensors writes one safetensors file that holds tensors in the order
// given, marked as PyTorch's ("format": "pt"), as transformers wants it. The same
// tensors give the same bytes. Names must be different, not empty, and other than
// "__metadata__"; data must have the length that shape and type say.
func WriteSafetensors(w io.Writer, tensors []Tensor) error {
	header, err := headerOf(tensors)
	if err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	for _, t := range tensors {
		if _, err := w.Write(t.Data); err != nil {
			return err
		}
	}
	return nil
}

// headerOf returns the length and the JSON of the header, padded with spaces so
// that the data starts at a multiple of 8.
func headerOf(tensors []Tensor) ([]byte, error) {
	type fields struct {
		DType   string   `json:"dtype"`
		Shape   []int    `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	text := []byte(`{"__metadata__":{"format":"pt"}`)
	seen := map[string]bool{"": true, "__metadata__": true}
	at := int64(0)
	for _, t := range tensors {
		if seen[t.Name] || !utf8.ValidString(t.Name) {
			return nil, fmt.Errorf("checkpoint: writing: found tensor name %q, want UTF-8 that is new, not empty and not __metadata__", shorten(t.Name))
		}
		seen[t.Name] = true
		if err := t.check(); err != nil {
			return nil, err
		}
		end := at + int64(len(t.Data))
		name, err := json.Marshal(t.Name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(fields{t.dtype(), append([]int{}, t.Shape...), [2]int64{at, end}})
		if err != nil {
			return nil, err
		}
		text = fmt.Appendf(text, ",%s:%s", name, value)
		at = end
	}
	text = append(text, '}')
	for len(text)%prefixBytes != 0 {
		text = append(text, ' ')
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), nil
}

// dtype is the format's name of t's type, empty where it cannot be written.
func (t Tensor) dtype() string {
	switch t.DType {
	case models.BF16:
		return "BF16"
	case models.F16:
		return "F16"
	case models.F32:
		return "F32"
	}
	return ""
}

// check compares the data's length with what shape and type say.
func (t Tensor) check() error {
	e := entry{name: t.Name, dtype: t.dtype()}
	for _, d := range t.Shape {
		if d < 0 {
			return fmt.Errorf("checkpoint: writing %s: found shape %s, want no negative dimension", shorten(t.Name), showShape(t.Shape))
		}
		e.shape = append(e.shape, int64(d))
	}
	need, ok := e.bytes(elementBits(e.dtype))
	if e.dtype != "" && ok && need == int64(len(t.Data)) {
		return nil
	}
	want := fmt.Sprint(need)
	if e.dtype == "" {
		want = wantDType
	} else if !ok {
		want = "less than 2^63"
	}
	return fmt.Errorf("checkpoint: writing %s: found %d bytes of data for %s of shape %s, want %s",
		shorten(t.Name), len(t.Data), t.DType, showShape(t.Shape), want)
}
