package checkpoint

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// MaxHeaderBytes bounds the JSON header of a safetensors file, as the format's
// reference implementation does, and the text of an index.
const MaxHeaderBytes = 100_000_000

// prefixBytes is the length of the header's length.
const prefixBytes = 8

// maxRank bounds the dimensions of a tensor.
const maxRank = 16

// entry is one tensor of a file's header.
type entry struct {
	name  string
	dtype string // as written: "BF16", "F32" …
	shape []int64
	begin int64 // byte offsets from the start of the data
	end   int64 // after the last byte
}

// parseHeader reads the header of a safetensors file: 8 bytes of length (little
// endian), that many bytes of JSON, then the data. file names it in messages. It
// returns the tensors in the order of their data, which they fill without holes or
// overlaps, and the offset of the data in the file.
func parseHeader(file string, content []byte) ([]entry, int64, error) {
	text, err := headerText(file, content)
	if err != nil {
		return nil, 0, err
	}
	t, err := newJSONText(file, text)
	if err != nil {
		return nil, 0, err
	}
	var entries []entry
	err = t.object("", func(name string) error {
		if name == "__metadata__" {
			return t.metadata(name)
		}
		e, err := t.entry(name)
		entries = append(entries, e)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	data := int64(prefixBytes + len(text))
	if err := layOut(file, entries, data, int64(len(content))); err != nil {
		return nil, 0, err
	}
	return entries, data, nil
}

// headerText returns the JSON of the header.
func headerText(file string, content []byte) ([]byte, error) {
	if len(content) < prefixBytes {
		return nil, &Problem{File: file, Found: bytesOf(len(content)), Want: "a safetensors file of 8 bytes or more"}
	}
	n := binary.LittleEndian.Uint64(content)
	if n > MaxHeaderBytes {
		p := &Problem{File: file, Found: "a header of " + bytesOf(n),
			Want: fmt.Sprintf("at most %d", MaxHeaderBytes)}
		if strings.HasPrefix(string(content[:min(len(content), 64)]), "version https://git-lfs") {
			p.Found, p.Want = "a Git LFS pointer", "the file itself"
			p.Why = "fetch it with git lfs pull"
		}
		return nil, p
	}
	rest := content[prefixBytes:]
	if n > uint64(len(rest)) {
		return nil, &Problem{File: file, Found: "a file of " + bytesOf(len(content)),
			Want: fmt.Sprintf("the %d of its header or more", prefixBytes+n), Why: "it is truncated"}
	}
	if n == 0 || rest[0] != '{' {
		return nil, &Problem{File: file, Found: "a header that does not begin with {", Want: "a JSON object"}
	}
	return rest[:n], nil
}

// metadata checks that __metadata__ maps strings to strings; it is not used.
func (t *jsonText) metadata(name string) error {
	return t.object(name, func(key string) error {
		_, err := t.text(name, shorten(key))
		return err
	})
}

// entry reads the description of one tensor.
func (t *jsonText) entry(name string) (entry, error) {
	e := entry{name: name}
	var offsets []int64
	err := t.object(name, func(field string) (err error) {
		switch field {
		case "dtype":
			e.dtype, err = t.text(name, field)
		case "shape":
			e.shape, err = t.integers(name, field, maxRank)
		case "data_offsets":
			offsets, err = t.integers(name, field, 2)
		default:
			err = &Problem{File: t.file, Tensor: name, Found: fmt.Sprintf("a field %q", shorten(field)),
				Want: "dtype, shape and data_offsets only"}
		}
		return err
	})
	if err != nil {
		return e, err
	}
	if e.dtype == "" || e.shape == nil || len(offsets) != 2 {
		return e, &Problem{File: t.file, Tensor: name, Found: e.lacks(offsets), Want: "dtype, shape and two data_offsets"}
	}
	e.begin, e.end = offsets[0], offsets[1]
	return e, nil
}

// lacks says what an incomplete entry has.
func (e entry) lacks(offsets []int64) string {
	switch {
	case e.dtype == "":
		return "no dtype"
	case e.shape == nil:
		return "no shape"
	case offsets == nil:
		return "no data_offsets"
	}
	return fmt.Sprintf("%d data_offsets", len(offsets))
}
