package checkpoint

import (
	"errors"
	"sync"

	"github.com/edsrzf/mmap-go"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
)

// Checkpoint is an open checkpoint. All methods may be called from
// several goroutines at a time.
type Checkpoint struct {
	config  models.Config
	ends    []int              // the tokens that end a text
	order   []string           // the tensors that the configuration needs
	tensors map[string]*tensor // those, and lm_head.weight as the embedding where it is tied
	scales  []*tensor          // of a float8 KV cache, of each layer K's and V's; empty without
	files   []*file
	f16     *f16Table // nil without a tensor in F16

	mu     sync.RWMutex // held for reading while the mappings are read
	closed bool
}

// file is one safetensors file.
type file struct {
	name   string // without the directory
	path   string // "" where it was read into memory
	data   mmap.MMap
	mapped bool // data is a mapping, else memory
}

// tensor is one tensor of a file.
type tensor struct {
	entry
	file       *file
	from       models.DType // DTypeUnstated where Row cannot convert
	rows, cols int          // rows is 1 for a vector
	start      int64        // offset of the data in the file
}

// row returns the bytes of one row.
func (t *tensor) row(i int) []byte {
	n := int64(t.cols) * int64(t.from.Bytes())
	at := t.start + int64(i)*n
	return t.file.data[at : at+n]
}

// Config returns the configuration that config.json holds.
func (c *Checkpoint) Config() models.Config {
	config := c.config
	config.EOS = append([]int(nil), config.EOS...)
	if s := config.Rope.Scaling; s != nil {
		scaling := *s
		config.Rope.Scaling = &scaling
	}
	return config
}

// Bytes returns the size on disk of the tensors that the configuration needs: what
// Check reads, and what reading every row once reads.
func (c *Checkpoint) Bytes() int64 {
	var n int64
	for _, name := range c.order {
		t := c.tensors[name]
		n += t.end - t.begin
	}
	return n
}

// Row fills dst with one row of a tensor as bf16 bit patterns: the row-th of a
// matrix, or the whole of a vector for row 0. Tensors go by their Hugging Face
// names; lm_head.weight is there also where it is tied. Values of F16 and F32 on
// disk are rounded to nearest, ties to even.
//
// Errors: an unknown tensor, a row outside it, a dst of another length than the
// row, ErrClosed after Close, and a file that has shrunk or cannot be read any
// more. dst may then be partly written.
func (c *Checkpoint) Row(name string, row int, dst []half.BF16) error {
	t, err := c.find(name, row, len(dst))
	if err != nil {
		return err
	}
	return c.read(t, func() error {
		convert(dst, t.row(row), t.from, c.f16)
		return nil
	})
}

// Close unmaps the files, once the calls under way have returned. Calls after that
// return ErrClosed; closing again does nothing.
func (c *Checkpoint) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	var errs []error
	for _, f := range c.files {
		if f.mapped {
			errs = append(errs, f.data.Unmap())
		}
	}
	c.files = nil
	return errors.Join(errs...)
}
