package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/mkgen/mkgen/models/half"
)

// Tensors is the safetensors files of a checkpoint without a model's configuration: all tensors as they are, of
// any type and shape. All methods may be called from several goroutines at a time.
type Tensors struct {
	c     *Checkpoint
	place place
	list  []TensorInfo
}

// TensorInfo describes one tensor of a file.
type TensorInfo struct {
	Name  string
	File  string  // name of the file in the directory
	DType string  // as safetensors writes it: "BF16", "I32", "F8_E4M3" …
	Shape []int64 // empty for a scalar
}

// OpenTensors opens the safetensors files in directory dir as Open does, but compares them with the index only.
// What is in config.json does not matter. The caller must Close it.
func OpenTensors(dir string) (*Tensors, error) {
	return openTensors(place{dir: dir}, "checkpoint "+dir)
}

// OpenTensorsFS opens the files at the root of fsys as OpenTensors does, but reads them into memory.
func OpenTensorsFS(fsys fs.FS) (*Tensors, error) { return openTensors(place{fsys: fsys}, "checkpoint") }

// openTensors opens the files at a place; errors begin with what.
func openTensors(p place, what string) (*Tensors, error) {
	t := &Tensors{c: &Checkpoint{}, place: p}
	if err := t.load(); err != nil {
		return nil, fmt.Errorf("%s: %w", what, errors.Join(err, t.c.Close()))
	}
	return t, nil
}

func (t *Tensors) load() error {
	lines, names, err := t.place.files()
	if err != nil {
		return err
	}
	if err := t.c.openFiles(t.place, names); err != nil {
		return err
	}
	if t.c.tensors, t.c.order, err = t.c.parseFiles(); err != nil {
		return err
	}
	where := map[string]string{}
	for _, name := range t.c.order {
		found := t.c.tensors[name]
		where[name] = found.file.name
		t.list = append(t.list, TensorInfo{Name: name, File: found.file.name, DType: found.dtype, Shape: found.shape})
	}
	var p problems
	if lines != nil {
		checkIndex(lines, where, t.c.order, nil, &p)
	}
	return p.Err()
}

// List returns all tensors in the order of the files. It must not be changed.
func (t *Tensors) List() []TensorInfo { return t.list }

// Text returns a whole file of JSON beside the tensors, such as config.json. It is at most MaxHeaderBytes long.
// The error of a file that does not exist is fs.ErrNotExist.
func (t *Tensors) Text(name string) ([]byte, error) { return t.place.text(name) }

// Reading calls f with a function that returns the bytes of a tensor: little-endian elements in row-major order,
// where they are mapped. They are valid until f returns and must only be read. The function returns nil for an
// unknown name.
//
// Errors: f's own, ErrClosed after Close, and a file that has shrunk or cannot be read any more.
func (t *Tensors) Reading(f func(data func(name string) []byte) error) error {
	return t.c.Reading(func(func(string, int, []half.BF16) ([]byte, error)) error { return f(t.data) })
}

// data is the bytes of a tensor.
func (t *Tensors) data(name string) []byte {
	found := t.c.tensors[name]
	if found == nil {
		return nil
	}
	return slices.Clip(found.file.data[found.start : found.start+found.end-found.begin])
}

// Close unmaps the files, once the calls under way have returned. Calls of Reading after that return ErrClosed.
func (t *Tensors) Close() error { return t.c.Close() }
