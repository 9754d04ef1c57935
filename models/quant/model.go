package quant

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/problem"
)

// Model is a checkpoint of a model whose quantised weights are widened to bf16 as they are read: each is
// what the format's package dequantises it to, rounded once to bf16 where that is not one. It delivers
// rows as an unquantised checkpoint does. All methods may be called from several goroutines at a time.
type Model struct {
	*Checkpoint
	config models.Config
}

// OpenModel opens the checkpoint in directory dir as Open does, reads its config.json as how says, and refuses, too,
// what a model of it has no use for or lacks. The caller must Close it.
func OpenModel(dir string, how models.Reading) (*Model, error) {
	c, err := Open(dir)
	return openModel(c, err, how, "checkpoint "+dir)
}

// OpenModelFS opens the checkpoint at the root of fsys as OpenModel does, but reads it into memory.
func OpenModelFS(fsys fs.FS) (*Model, error) {
	c, err := OpenFS(fsys)
	return openModel(c, err, models.Reading{}, "checkpoint")
}

// openModel compares an open checkpoint with its configuration. Errors begin with what.
func openModel(c *Checkpoint, err error, how models.Reading, what string) (*Model, error) {
	if err != nil {
		return nil, err
	}
	m := &Model{Checkpoint: c}
	if err := m.match(how); err != nil {
		return nil, fmt.Errorf("%s: %w", what, errors.Join(err, c.Close()))
	}
	return m, nil
}

// Quantised reports whether the checkpoint in directory dir says that it is quantised: in its
// config.json, or in a file of its own, as old ones of GPTQ and ModelOpt do. What is wrong with these
// files, who opens the checkpoint says.
func Quantised(dir string) bool {
	for _, name := range []string{"quantize_config.json", "hf_quant_config.json"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	_, quantised, _ := models.Reading{}.ParseQuantisedFile(filepath.Join(dir, checkpoint.ConfigFile))
	return quantised
}

// match compares what there is with what a model of the configuration needs.
func (m *Model) match(how models.Reading) error {
	text, err := m.files.Text(checkpoint.ConfigFile)
	if err != nil {
		return err
	}
	if m.config, _, err = how.ParseQuantised(bytes.NewReader(text)); err != nil {
		return fmt.Errorf("%s: %w", checkpoint.ConfigFile, err)
	}
	var p problem.List
	wanted := checkpoint.ShapesOf(m.config)
	m.lacks(wanted, &p)
	for _, name := range m.names {
		if wanted[name] == nil && !(m.config.TieEmbeddings && name == m.config.TensorName(models.RoleHead)) && !unread(name) {
			p.Add(&checkpoint.Problem{Tensor: name, Found: m.found[name].Format.String(), Want: "no such tensor",
				Why: "nothing of a model of this config.json reads it"})
		}
	}
	return p.Err()
}

// Lacks returns what a model of a configuration needs and the checkpoint does not have, or has in another shape.
func (c *Checkpoint) Lacks(config models.Config) error {
	var p problem.List
	c.lacks(checkpoint.ShapesOf(config), &p)
	return p.Err()
}

func (c *Checkpoint) lacks(wanted map[string][]int, p *problem.List) {
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		shape := wanted[name]
		rows, columns := 1, shape[len(shape)-1]
		if len(shape) > 1 {
			rows = shape[0]
		}
		switch w := c.found[name]; {
		case w == nil:
			p.Add(&checkpoint.Problem{Tensor: name, Found: "nothing", Want: fmt.Sprintf("it, of shape %v", shape)})
		case w.Rows != rows || w.Cols != columns:
			p.Add(&checkpoint.Problem{Tensor: name, Found: fmt.Sprintf("%d rows of %d", w.Rows, w.Cols),
				Want: fmt.Sprintf("%d of %d", rows, columns)})
		}
	}
}

// unread is whether a tensor says what only kernels with quantised activations or caches need, or
// follows from the configuration.
func unread(name string) bool {
	return strings.HasSuffix(name, "_scale") || strings.HasSuffix(name, "rotary_emb.inv_freq")
}

// Config is the model's.
func (m *Model) Config() models.Config { return m.config }

// Summary says what is quantised, such as "gptq: 7 matrices of i4g32 with f16 scales".
func (m *Model) Summary() string {
	counts := map[string]int{}
	for _, w := range m.found {
		if w.Format.Quantised() {
			counts[w.Format.String()]++
		}
	}
	var all []string
	for format, n := range counts {
		what := "matrices"
		if n == 1 {
			what = "matrix"
		}
		all = append(all, fmt.Sprintf("%d %s of %s", n, what, format))
	}
	if len(all) == 0 {
		all = []string{"no quantised matrices"} // but a KV cache
	}
	slices.Sort(all)
	return m.method + ": " + strings.Join(all, ", ")
}

// Row fills dst, of the matrix's columns, with bf16 bit patterns of a row, rounded to the nearest even.
func (m *Model) Row(tensor string, row int, dst []half.BF16) error {
	r := readers.Get().(*reader)
	defer readers.Put(r)
	return m.files.Reading(func(data func(string) []byte) error { return m.row(r, data, tensor, row, dst) })
}

// row is Row.
func (m *Model) row(r *reader, data func(string) []byte, tensor string, row int, dst []half.BF16) error {
	w := m.found[tensor]
	if w == nil {
		return fmt.Errorf("quant: found no tensor %s", tensor)
	}
	if err := w.fits(row, len(dst), w.Cols, false); err != nil {
		return err
	}
	r.bf16(w, data, row, dst)
	return nil
}

// Reading calls f with a function that fills scratch with a row as Row does, and returns it as little-endian bytes in
// the same memory. It is Row for whole blocks of rows, as checkpoint.Checkpoint has it: f is called once, and must not
// call Row, Reading or Close. It returns f's error.
func (m *Model) Reading(f func(row func(tensor string, row int, scratch []half.BF16) ([]byte, error)) error) error {
	r := readers.Get().(*reader)
	defer readers.Put(r)
	return m.files.Reading(func(data func(string) []byte) error {
		return f(func(tensor string, row int, scratch []half.BF16) ([]byte, error) {
			if err := m.row(r, data, tensor, row, scratch); err != nil {
				return nil, err
			}
			return checkpoint.LittleEndian(scratch), nil
		})
	})
}
