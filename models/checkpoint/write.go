package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
)

// Tensor is one tensor for WriteSafetensors.
type Tensor struct {
	Name  string
	DType models.DType // BF16, F16 or F32
	Shape []int        // rows and columns, or the length of a vector; not negative
	Data  []byte       // row-major, little-endian: the product of Shape elements of DType
}

// BF16Bytes returns bf16 bit patterns as Tensor.Data.
func BF16Bytes(bits []half.BF16) []byte {
	out := make([]byte, 0, 2*len(bits))
	for _, v := range bits {
		out = v.Append(out)
	}
	return out
}

// WriteSafetensors writes one safetensors file that holds tensors in the order
// given, marked as PyTorch's ("format": "pt"), as transformers wants it. The same
// tensors give the same bytes. Names must be different, not empty, and other than
// "__metadata__"; data must have the length that shape and type say.
func WriteSafetensors(w io.Writer, tensors []Tensor) error {
	var list []TensorInfo
	for _, t := range tensors {
		if err := t.check(); err != nil {
			return err
		}
		list = append(list, TensorInfo{Name: t.Name, DType: t.dtype(), Shape: wideShape(t.Shape)})
	}
	return WriteTensors(w, list, func(i int, w io.Writer) error {
		_, err := w.Write(tensors[i].Data)
		return err
	})
}

// WriteTensors writes one safetensors file as WriteSafetensors does, of tensors of any type that the format has:
// data writes the i-th one's bytes, and is called for each in turn.
func WriteTensors(w io.Writer, list []TensorInfo, data func(i int, w io.Writer) error) error {
	header, err := headerOf(list)
	if err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	for i, t := range list {
		need, _ := t.Bytes()
		limited := &exactly{w: w, left: need}
		if err := data(i, limited); err != nil {
			return err
		}
		if limited.left != 0 {
			return fmt.Errorf("checkpoint: writing %s: found %d bytes of data, want %d", shorten(t.Name), need-limited.left,
				need)
		}
	}
	return nil
}

// exactly counts down what is written.
type exactly struct {
	w    io.Writer
	left int64
}

func (e *exactly) Write(data []byte) (int, error) {
	e.left -= int64(len(data))
	return e.w.Write(data)
}

// Bytes returns the size of the tensor's data; ok is false where its type is none of the format's, or its shape says
// no size.
func (t TensorInfo) Bytes() (n int64, ok bool) {
	perElement := elementBits(t.DType)
	for _, d := range t.Shape {
		if d < 0 {
			return 0, false
		}
	}
	n, ok = entry{shape: t.Shape}.bytes(perElement)
	return n, ok && perElement > 0
}

func wideShape(shape []int) []int64 {
	out := []int64{}
	for _, d := range shape {
		out = append(out, int64(d))
	}
	return out
}

// headerOf returns the length and the JSON of the header, padded with spaces so
// that the data starts at a multiple of 8.
func headerOf(tensors []TensorInfo) ([]byte, error) {
	type fields struct {
		DType   string   `json:"dtype"`
		Shape   []int64  `json:"shape"`
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
		need, ok := t.Bytes()
		if !ok {
			return nil, fmt.Errorf("checkpoint: writing %s: found %s of shape %s, want a type of the format and a shape of a size below 2^63",
				shorten(t.Name), t.DType, showShape(t.Shape))
		}
		end := at + need
		name, err := json.Marshal(t.Name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(fields{t.DType, append([]int64{}, t.Shape...), [2]int64{at, end}})
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
			return fmt.Errorf("checkpoint: writing %s: found shape %s, want no negative dimension", shorten(t.Name),
				showShape(t.Shape))
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
