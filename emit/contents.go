package emit

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
)

// Table is the content of a buffer before the first launch that depends on
// nothing but the kernel: the host writes it once, little-endian.
type Table struct {
	Name  string `json:"name"`  // the buffer
	Type  string `json:"type"`  // of an element: u32 or f32
	Words Words  `json:"words"` // bit patterns, as many as the buffer has elements
}

// Words are 32-bit patterns. As text, and so in layout.json, each is 8
// hexadecimal digits, the most significant first, with one space between two.
type Words []uint32

// MarshalText is the words as text; it never fails.
func (w Words) MarshalText() ([]byte, error) {
	out := make([]byte, 0, 9*len(w))
	for i, v := range w {
		if i > 0 {
			out = append(out, ' ')
		}
		out = fmt.Appendf(out, "%08x", v)
	}
	return out, nil
}

// UnmarshalText reads what MarshalText writes. Any white space separates
// words; one that is not 8 hexadecimal digits is an error.
func (w *Words) UnmarshalText(text []byte) error {
	*w = Words{}
	for i, digits := range strings.Fields(string(text)) {
		v, err := strconv.ParseUint(digits, 16, 32)
		if err != nil || len(digits) != 8 {
			return fmt.Errorf("word %d is %q, want 8 hexadecimal digits", i, digits)
		}
		*w = append(*w, uint32(v))
	}
	return nil
}

// Need is what a host must know of a buffer beyond its type and length.
type Need struct {
	Buffer string
	Size   string // where the length is left to the host: how many bytes, in words
	Fill   string // what the host writes into it before the first launch; empty: nothing

	// The same for programs. A buffer whose length is left to the host takes
	// PageBytes for each page of context, and MoreBytes.
	PageBytes, MoreBytes int64
	// of the checkpoint, which fill it one after another, row by row; none: Fill is of another kind
	Tensors []string
}

// describe copies what needs say to the fields of the params block.
func describe(fields []Field, needs []Need) {
	for _, n := range needs {
		for i := range fields {
			if f := &fields[i]; f.Pointer && f.Name == n.Buffer {
				f.Size, f.Fill = n.Size, n.Fill
				f.PageBytes, f.MoreBytes, f.Tensors = n.PageBytes, n.MoreBytes, n.Tensors
			}
		}
	}
}

// checkExtras refuses tables and needs that do not fit kernel k's buffers.
func checkExtras(k *ir.Kernel, x Extras) error {
	buffers := map[string]*ir.Buf{}
	for _, b := range k.Globals() {
		buffers[b.Name] = b
	}
	seen := map[string]bool{}
	for _, t := range x.Tables {
		b := buffers[t.Name]
		switch {
		case b == nil:
			return fmt.Errorf("table %q: kernel %s has no such buffer", t.Name, k.Name)
		case seen[t.Name]:
			return fmt.Errorf("table %q is there twice", t.Name)
		case t.Type != "u32" && t.Type != "f32", t.Type != b.Elem.String():
			return fmt.Errorf("table %q of %s, want u32 or f32 and what its buffer has, %s", t.Name, t.Type, b.Elem)
		case int64(len(t.Words)) != b.Len || b.Len == 0:
			return fmt.Errorf("table %q has %d words, its buffer %d elements, want as many and at least 1", t.Name, len(t.Words),
				b.Len)
		}
		seen[t.Name] = true
	}
	for _, n := range x.Needs {
		switch b := buffers[n.Buffer]; {
		case b == nil:
			return fmt.Errorf("need of buffer %q: kernel %s has no such buffer", n.Buffer, k.Name)
		case b.Len > 0 && n.PageBytes+n.MoreBytes != 0:
			return fmt.Errorf("need of buffer %q: %d bytes a page and %d more, but its length is fixed, %d", n.Buffer,
				n.PageBytes, n.MoreBytes, b.Len)
		}
	}
	return nil
}
