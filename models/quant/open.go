package quant

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/problem"
)

// Checkpoint is an open checkpoint, quantised or not. All methods may be called from several goroutines at a time.
type Checkpoint struct {
	method string
	left   []string
	names  []string
	found  map[string]*Matrix
	files  *checkpoint.Tensors
}

// importer makes matrices of modules as one quantisation method writes them.
type importer interface {
	// quantised reports whether the configuration lets a module be quantised; why not is for a message, such as
	// "ignore lists it".
	quantised(module string) (yes bool, whyNot string)
	// weight returns the module's weight, or nil after it has added problems to the module. The module has a tensor
	// that only quantised ones have.
	weight(m *module) (*Matrix, error)
	// left returns what the configuration asks for beside quantised weights.
	left() []string
}

// Open opens the checkpoint in directory dir: its config.json, and its safetensors files as
// checkpoint.OpenTensors does. The caller must Close it.
//
// Refused with what was found and what is wanted, all problems together: a method, or a field of
// quantization_config, that is not supported or not known; a tensor that is missing, of another type or shape
// than the method needs, or that no method is known to write; a module that is quantised though the
// configuration excludes it. Of the data only what is small and needed to understand the rest is read: zero
// points, the order of columns, shapes and factors of whole matrices.
func Open(dir string) (*Checkpoint, error) {
	files, err := checkpoint.OpenTensors(dir)
	return open(files, err, "checkpoint "+dir)
}

// OpenFS opens the checkpoint at the root of fsys as Open does, but reads it into memory.
func OpenFS(fsys fs.FS) (*Checkpoint, error) {
	files, err := checkpoint.OpenTensorsFS(fsys)
	return open(files, err, "checkpoint")
}

// open reads the configuration and matches the tensors with it. Errors begin with what.
func open(files *checkpoint.Tensors, err error, what string) (*Checkpoint, error) {
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{found: map[string]*Matrix{}, files: files}
	method, imp, err := readConfig(files.Text)
	if err == nil {
		c.method = method
		if imp != nil {
			c.left = imp.left()
		}
		err = c.match(imp)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, errors.Join(err, files.Close()))
	}
	return c, nil
}

// Method returns how config.json calls the quantisation: "gptq", "awq", "compressed-tensors", "fp8", "modelopt",
// or "" where nothing is quantised.
func (c *Checkpoint) Method() string { return c.method }

// LeftOut returns what the configuration asks for beside quantised weights, which whoever reads only those leaves out:
// "inputs of products in 8-bit floats", "a quantised KV cache".
func (c *Checkpoint) LeftOut() []string { return c.left }

// Names returns the names of all matrices, vectors and scalars, in the order of the files. It must not be changed.
func (c *Checkpoint) Names() []string { return c.names }

// Matrix returns the matrix, vector or scalar of this name, nil for an unknown one.
func (c *Checkpoint) Matrix(name string) *Matrix { return c.found[name] }

// Files returns the tensors of the files as they are. Closing the checkpoint closes them.
func (c *Checkpoint) Files() *checkpoint.Tensors { return c.files }

// Close unmaps the files, once the calls under way have returned. Reading a matrix then returns checkpoint.ErrClosed.
func (c *Checkpoint) Close() error { return c.files.Close() }

// modules returns the files' tensors by module, in the order of the files.
func modules(files *checkpoint.Tensors, p *problem.List) []*module {
	var list []*module
	known := map[string]*module{}
	for _, t := range files.List() {
		at := strings.LastIndexByte(t.Name, '.')
		prefix, leaf := t.Name[:at+1], t.Name[at+1:]
		m := known[prefix]
		if m == nil {
			m = &module{name: strings.TrimSuffix(prefix, "."), prefix: prefix, files: files, p: p,
				found: map[string]checkpoint.TensorInfo{}, taken: map[string]bool{}}
			known[prefix] = m
			list = append(list, m)
		}
		m.leaves = append(m.leaves, leaf)
		m.found[leaf] = t
	}
	return list
}

// match makes a matrix of every weight.
func (c *Checkpoint) match(imp importer) error {
	var p problem.List
	all := modules(c.files, &p)
	if imp == nil && (slices.ContainsFunc(all, (*module).foreign) || slices.ContainsFunc(all, (*module).unstated)) {
		return unstatedError{p.Err()} // of the first: the others would say the same
	}
	for _, m := range all {
		if leaf := m.quantisedLeaf(); leaf != "" {
			if err := c.quantised(imp, m, leaf); err != nil {
				return err
			}
			if m.bad {
				continue // what is wrong with it has been said
			}
		}
		for _, leaf := range m.leaves {
			if !m.taken[leaf] {
				c.unquantised(m, leaf)
			}
		}
	}
	return p.Err()
}

// unstatedError is of quantised tensors in a checkpoint whose configuration says nothing of them.
type unstatedError struct{ error }

func (e unstatedError) Unwrap() error { return e.error }

// Unstated returns the error of a checkpoint in directory dir that has quantised tensors, though its configuration says
// nothing of them; nil of others.
func Unstated(dir string) error {
	c, err := Open(dir)
	switch {
	case err == nil:
		return c.Close()
	case errors.As(err, new(unstatedError)):
		return err
	}
	return nil
}

// quantised adds the weight of a module that has a tensor, leaf, which only quantised ones have.
func (c *Checkpoint) quantised(imp importer, m *module, leaf string) error {
	if yes, why := imp.quantised(m.name); !yes {
		m.problem(leaf, m.found[leaf].DType+" of a quantised weight", anyFloat+" in "+m.full("weight"), why)
		return nil
	}
	w, err := imp.weight(m)
	if err != nil || w == nil || m.bad {
		if err == nil && !m.bad {
			panic("BUG: quant: no weight and no problem: " + m.name)
		}
		return err
	}
	w.Name, w.files = m.full("weight"), c.files
	c.add(w)
	return nil
}

// unquantised adds a tensor of numbers.
func (c *Checkpoint) unquantised(m *module, leaf string) {
	t := m.found[leaf]
	switch {
	case reserved(leaf) || c.found[t.Name] != nil:
		m.problem(leaf, t.DType+" of shape "+shape(t.Shape...), "no such tensor beside "+taken(m),
			"nothing is known to read it")
		return
	case !isFloat(t.DType):
		m.problem(leaf, "dtype "+t.DType, anyFloat, "only the weights of linear layers are read quantised")
		return
	case len(t.Shape) > 2:
		m.problem(leaf, "shape "+shape(t.Shape...), "at most two dimensions", "experts and convolutions are not supported")
		return
	}
	rows, cols := int64(1), int64(1)
	if len(t.Shape) > 0 {
		cols = t.Shape[len(t.Shape)-1]
	}
	if len(t.Shape) > 1 {
		rows = t.Shape[0]
	}
	dtype, code := floatOf(t.DType)
	c.add(&Matrix{Name: t.Name, Rows: int(rows), Cols: int(cols), Format: Format{Code: code}, DType: dtype,
		files: c.files, codes: ints{tensor: t.Name}})
}

// taken names the tensors of a module that were understood.
func taken(m *module) string {
	var names []string
	for _, leaf := range m.leaves {
		if m.taken[leaf] {
			names = append(names, leaf)
		}
	}
	if len(names) == 0 {
		return "a weight that is not quantised"
	}
	return strings.Join(names, ", ")
}

func (c *Checkpoint) add(m *Matrix) {
	if c.found[m.Name] != nil {
		panic("BUG: quant: two of " + m.Name)
	}
	c.names = append(c.names, m.Name)
	c.found[m.Name] = m
}
