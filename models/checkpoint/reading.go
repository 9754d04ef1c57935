package checkpoint

import (
	"encoding/binary"
	"fmt"
	"runtime/debug"
	"unsafe"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
)

// Reading calls f with a function that delivers rows as bytes, little-endian bf16:
// the row-th of a matrix, or the whole of a vector for row 0. What is BF16 on disk
// is handed out where it is mapped, at any address, and must only be read; other
// types are converted, as in Row, into scratch, which must be as long as the row.
// Rows are valid until f returns, or until their scratch is used again.
//
// It is Row for whole blocks: one lock, and one guard against pages that cannot be
// delivered, for all that f does. f must not call Row, Check, Reading or Close. Its error is
// returned; beside it the errors are those of Row.
func (c *Checkpoint) Reading(f func(row func(tensor string, row int,
	scratch []half.BF16) ([]byte, error)) error) (err error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return ErrClosed
	}
	defer c.caught(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	return f(c.bytes)
}

// bytes is one row as Reading delivers it.
func (c *Checkpoint) bytes(name string, row int, scratch []half.BF16) ([]byte, error) {
	t, err := c.find(name, row, len(scratch))
	if err != nil {
		return nil, err
	}
	if t.from == models.BF16 {
		return t.row(row), nil
	}
	convert(scratch, t.row(row), t.from, c.f16)
	return LittleEndian(scratch), nil
}

// LittleEndian returns v as little-endian bytes in v's own memory, which on other machines is rewritten.
func LittleEndian(v []half.BF16) []byte {
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 2*len(v))
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		for i, x := range v {
			x.Put(b[2*i:])
		}
	}
	return b
}

// find is the tensor called name, which must have this row, of n elements.
func (c *Checkpoint) find(name string, row, n int) (*tensor, error) {
	t := c.tensors[name]
	if t == nil {
		return nil, fmt.Errorf("checkpoint: tensor %q: found no such tensor, want one of the %d of %s",
			shorten(name), len(c.tensors), ConfigFile)
	}
	if row < 0 || row >= t.rows {
		return nil, fmt.Errorf("checkpoint: %s: found row %d asked for, want 0 to %d", t.name, row, t.rows-1)
	}
	if n != t.cols {
		return nil, fmt.Errorf("checkpoint: %s: found a destination of %d elements, want %d", t.name, n, t.cols)
	}
	return t, nil
}

// caught is deferred by Reading: it turns a fault inside a mapping into an error
// that names the tensor there, and recovers from nothing else.
func (c *Checkpoint) caught(err *error) {
	r := recover()
	if r == nil {
		return
	}
	fault, ok := r.(interface{ Addr() uintptr })
	if !ok {
		panic(r)
	}
	for _, f := range c.files {
		if offset := f.offset(fault.Addr()); offset >= 0 {
			*err = f.lost(c.at(f, offset), offset)
			return
		}
	}
	panic(r)
}

// at is the name of the tensor at this offset of a file.
func (c *Checkpoint) at(f *file, offset int64) string {
	for _, name := range c.order {
		if t := c.tensors[name]; t.file == f && offset >= t.start && offset < t.start+t.end-t.begin {
			return name
		}
	}
	return ""
}
