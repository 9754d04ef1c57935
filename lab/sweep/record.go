package sweep

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/internal/jsonfile"
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/lab/bench"
)

// What and Format say which files are a sweep's.
const (
	What   = "sweep"
	Format = 1
)

// Gated is a record's Gate where every measured case is of a kernel that passed the gate
// in the process that measured it. Otherwise it is bench.Ungated.
const Gated = "gated"

// Record is the file of a sweep, finished or not.
type Record struct {
	What   string `json:"what"`
	Format int    `json:"format"`
	Date   string `json:"date"` // the day on which it began, UTC: 2026-11-25
	Setup
	Finished bool     `json:"finished"` // no cell is open or failed
	Kernels  []Kernel `json:"kernels"`  // by rows
	Cells    []Cell   `json:"cells"`    // batch by batch, context by context, all of the grid
}

// Setup is what all cells of a record have in common.
type Setup struct {
	Model    string `json:"model"`
	Shape    string `json:"shape"` // tune.ShapeOf the model
	DType    string `json:"dtype"` // of the weights
	GPU      string `json:"gpu"`
	Driver   string `json:"driver"`
	CUDA     string `json:"cuda"`
	Compiler string `json:"compiler"` // "nvcc 13.0.88"; "none" on the executor
	Commit   string `json:"commit"`   // of the program, as in records
	Arch     string `json:"arch"`
	Weights  string `json:"weights"` // "random, seed 1"
	Gate     string `json:"gate"`    // Gated or bench.Ungated
	Contexts []int  `json:"contexts"`
	Batches  []int  `json:"batches"`
	Rounds   int    `json:"rounds"` // of a cell
	Tokens   int    `json:"tokens"` // of a round, for each sequence
}

// Kernel is one of the kernels that were measured.
type Kernel struct {
	Rows    int           `json:"rows"` // query rows of a step at most
	Options bench.Options `json:"options"`
}

// Status is what became of a cell.
type Status string

// The states of a cell.
const (
	Measured Status = "measured"
	Unfit    Status = "does not fit"     // the model's positions, the GPU's memory, or there is no such kernel
	Failed   Status = "failed"           // tried again by the next run
	Open     Status = "not measured yet" // the sweep was interrupted before
)

// Cell is one batch at one context.
type Cell struct {
	Batch   int         `json:"batch"`   // sequences
	Context int         `json:"context"` // tokens of each in the cache when a round begins
	Rows    int         `json:"rows"`    // of the kernel
	Status  Status      `json:"status"`
	Why     string      `json:"why,omitempty"`  // it does not fit, or failed
	Case    *bench.Case `json:"case,omitempty"` // where it was measured
}

// Executor says that nothing in the record is a GPU's.
func (r *Record) Executor() bool { return r.GPU == executor }

const executor = "executor"

// Count is how many cells have a status.
func (r *Record) Count(s Status) (n int) {
	for i := range r.Cells {
		if r.Cells[i].Status == s {
			n++
		}
	}
	return n
}

// Cell is the grid's at a place; nil outside.
func (r *Record) Cell(batch, context int) *Cell {
	for i := range r.Cells {
		if c := &r.Cells[i]; c.Batch == batch && c.Context == context {
			return c
		}
	}
	return nil
}

// Check returns nil when the record says everything it must, its cells are the grid's,
// and its figures agree with each other; where its Gate is Gated, every case is held to
// the rules of bench.Record. Else all that is wrong, joined.
func (r *Record) Check() error {
	if r.What != What || r.Format != Format {
		return fmt.Errorf("what is %q and format %d, want %q and %d", r.What, r.Format, What, Format)
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, f := range []struct{ name, v string }{{"date", r.Date}, {"model", r.Model}, {"shape", r.Shape},
		{"dtype", r.DType}, {"gpu", r.GPU}, {"compiler", r.Compiler}, {"commit", r.Commit}, {"arch", r.Arch},
		{"weights", r.Weights}} {
		if f.v == "" {
			bad("%s is missing", f.name)
		}
	}
	if r.Gate != Gated && r.Gate != bench.Ungated {
		bad("gate is %q, want %q or %q", r.Gate, Gated, bench.Ungated)
	}
	if len(r.Contexts) == 0 || len(r.Batches) == 0 || len(r.Cells) != len(r.Contexts)*len(r.Batches) {
		bad("%d cells for %d contexts and %d batches, want one for each pair, and at least one", len(r.Cells),
			len(r.Contexts), len(r.Batches))
		return errors.Join(errs...)
	}
	for i := range r.Cells {
		c := &r.Cells[i]
		batch, context := r.Batches[i/len(r.Contexts)], r.Contexts[i%len(r.Contexts)]
		if c.Batch != batch || c.Context != context {
			bad("cell %d is of batch %d and context %d, want %d and %d", i, c.Batch, c.Context, batch, context)
		} else if err := r.check(c); err != nil {
			bad("batch %d, context %d: %w", batch, context, err)
		}
	}
	if done := r.Count(Open)+r.Count(Failed) == 0; r.Finished != done {
		bad("finished is %t with %d cells open and %d failed", r.Finished, r.Count(Open), r.Count(Failed))
	}
	return errors.Join(errs...)
}

// check is of one cell.
func (r *Record) check(c *Cell) error {
	all := []Status{Measured, Unfit, Failed, Open}
	switch {
	case !slices.Contains(all, c.Status):
		return fmt.Errorf("status is %q, want %s", string(c.Status), plural.Or(all))
	case (c.Why != "") != (c.Status == Unfit || c.Status == Failed):
		return fmt.Errorf("it is %q, and why is %q", string(c.Status), c.Why)
	case (c.Case != nil) != (c.Status == Measured):
		return fmt.Errorf("it is %q, with figures: %t", string(c.Status), c.Case != nil)
	case c.Case == nil:
		return nil
	}
	k := slices.IndexFunc(r.Kernels, func(k Kernel) bool { return k.Rows == c.Rows })
	if k < 0 {
		return fmt.Errorf("there is no kernel of %s", plural.Of(c.Rows, "row"))
	}
	m := c.Case
	for _, f := range []struct {
		name        string
		found, want any
	}{{"model", m.Model, r.Model}, {"dtype", m.DType, r.DType}, {"weights", m.Weights, r.Weights},
		{"batch", m.Batch, c.Batch}, {"context", m.Context, c.Context}, {"tokens", max(1, m.Tokens), c.Batch},
		{"rounds", len(m.Rounds), r.Rounds}, {"tokens_per_round", m.TokensPerRound, r.Tokens * c.Batch}} {
		if f.found != f.want {
			return fmt.Errorf("its figures are of something else: %s is %v, want %v", f.name, f.found, f.want)
		}
	}
	if r.Gate == bench.Ungated {
		if c.Case.Gate.Passed {
			return fmt.Errorf("it passed a gate, the record is %s", bench.Ungated)
		}
		return c.Case.Consistent()
	}
	if r.Executor() { // a few tokens, whose times say nothing
		if !c.Case.Gate.Passed {
			return errors.New("the gate is not passed")
		}
		return c.Case.Consistent()
	}
	one := bench.Record{GPU: r.GPU, Driver: r.Driver, CUDA: r.CUDA, Commit: r.Commit, Options: r.Kernels[k].Options,
		Cases: []bench.Case{*c.Case}}
	return one.Check()
}

// ErrUngated says that a record may not stand among those of bench/results.
var ErrUngated = errors.New("it is " + bench.Ungated)

// Committable returns nil for a finished, gated record of a GPU.
func (r *Record) Committable() error {
	switch err := r.Check(); {
	case err != nil:
		return err
	case r.Gate != Gated:
		return ErrUngated
	case r.Executor():
		return errors.New("it is of the executor")
	case !r.Finished:
		return errors.New("it is not finished")
	case r.Count(Measured) == 0:
		return errors.New("nothing in it is measured")
	}
	return nil
}

// kind is what a record is.
var kind = jsonfile.Kind{Name: "a sweep of mkgen sweep", What: What, Format: Format}

// CheckFile refuses data that are no sweep, of this format or another; what is in it is not
// looked at.
func CheckFile(data []byte) error {
	k := kind
	k.Format = 0
	return k.Check(data)
}

// ReadFile reads a record strictly: an unknown field, something behind it, and what Check finds, is an error. Errors
// name the file. One that is not there is fs.ErrNotExist.
func ReadFile(path string) (*Record, error) { return jsonfile.ReadChecked[Record](path, kind) }

// WriteFile checks the record and writes it whole or not at all; its directory is made.
func (r *Record) WriteFile(path string) error {
	if err := r.Check(); err != nil {
		return fmt.Errorf("no record is written: %w", err)
	}
	return jsonfile.Write(path, r)
}
