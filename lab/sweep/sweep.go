package sweep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mkgen/mkgen/internal/jsonfile"
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/bench/ceiling"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/lab/tune"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
)

// Measurer is where kernels are measured. Only Compile may be called by several
// goroutines at once.
type Measurer interface {
	// Compile leaves everything that Open will want compiled in the cache, without the
	// GPU, and says what compiled it.
	Compile(ctx context.Context, mk *megakernel.Kernel) (compiler string, err error)
	// Ceiling measures the streaming ceiling. An error ends the sweep.
	Ceiling(ctx context.Context) (ceiling.Measured, error)
	// Free is how many bytes a kernel may take on the device.
	Free(ctx context.Context) (int64, error)
	// Open loads a kernel with n pages of KV cache, for these contexts, and judges
	// it where there is a reference; a report that is not passed is no error.
	Open(ctx context.Context, mk *megakernel.Kernel, pages int, contexts []int) (Opened, *gate.Report, error)
}

// Opened is a loaded kernel, as bench.Decoder is.
type Opened interface {
	Measure(ctx context.Context, top ceiling.Measured, sequences, cached int) (bench.Case, error)
	Close() error
}

// Candidate is a kernel of n query rows, or why there is none.
type Candidate struct {
	Rows    int
	Kernel  *megakernel.Kernel
	Problem error
}

// ErrOther is what a sweep returns (wrapped, with what differs) when the record of an
// earlier run is of another one.
var ErrOther = errors.New("the record is of another sweep")

// Sweep measures a model over a grid.
type Sweep struct {
	Config models.Config
	// Setup has GPU, Driver, CUDA, Commit, Arch, Weights, Gate, Contexts and Batches, each
	// of the two ascending and not empty; the rest is filled in.
	Setup    Setup
	Method   bench.Method // Rounds, Tokens and WarmUp
	Rows     int          // as for RowsFor
	Kernels  []Candidate  // one for each number of rows that RowsFor names, ascending
	Measurer Measurer
	Before   *Record             // of an earlier run, whose cells are not measured again; nil: none
	Save     func(*Record) error // hears of the record as it begins, and after every cell
	Progress func(what string)   // hears what is done next; nil is allowed
	Now      func() time.Time    // nil: time.Now

	// After Run: how many cells the earlier run had measured, and what the gate found of
	// the kernels that were judged, by their rows.
	Taken   int
	Reports map[int]*gate.Report

	record *Record
	broken []error // what kept a kernel from being compiled
	done   int     // cells that were tried in this run
}

// RowsFor is the number of query rows of the kernel that measures a batch (at least 1): 1
// for one sequence, else as many as the batch, or rows where that is more.
func RowsFor(batch, rows int) int {
	if batch == 1 {
		return 1
	}
	return max(batch, rows)
}

// Run measures what the earlier run left. A kernel that cannot be built, compiled or
// loaded or that fails the gate, and a case that fails, become cells that say so. What
// ends a sweep is an error of the ceiling, of Save, of a kernel that does not let go of
// its memory, or a context that ended; the record is returned beside it, and was saved.
func (s *Sweep) Run(ctx context.Context) (*Record, error) {
	s.Reports = map[int]*gate.Report{}
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	if err := s.save(); err != nil {
		return s.record, err
	}
	for i := range s.Kernels {
		if err := s.kernel(ctx, i); err != nil {
			return s.record, err
		}
	}
	return s.record, s.save()
}

func (s *Sweep) say(format string, args ...any) {
	if s.Progress != nil {
		s.Progress(fmt.Sprintf(format, args...))
	}
}

func (s *Sweep) save() error {
	s.record.Finished = s.record.Count(Open)+s.record.Count(Failed) == 0
	return s.Save(s.record)
}

// open compiles the kernels, lays out the grid, and takes over what was measured before.
func (s *Sweep) open(ctx context.Context) error {
	compiler, err := s.compile(ctx)
	if err != nil {
		return err
	}
	setup := s.Setup
	setup.Model, setup.Shape, setup.DType, setup.Compiler = s.Config.Name, tune.ShapeOf(s.Config),
		bench.DTypeName(s.Config.DType), compiler
	setup.Rounds, setup.Tokens = s.Method.Rounds, s.Method.Tokens
	now := time.Now
	if s.Now != nil {
		now = s.Now
	}
	s.record = &Record{What: What, Format: Format, Date: now().UTC().Format(time.DateOnly), Setup: setup,
		Kernels: []Kernel{}}
	for _, k := range s.Kernels {
		if k.Problem == nil {
			s.record.Kernels = append(s.record.Kernels, Kernel{k.Rows, bench.OptionsOf(k.Kernel.Options, compiler)})
		}
	}
	for _, batch := range setup.Batches {
		for _, n := range setup.Contexts {
			c := Cell{Batch: batch, Context: n, Rows: RowsFor(batch, s.Rows), Status: Open}
			if need := s.tokens(n); need > s.Config.MaxPositions {
				c.Status, c.Why = Unfit, fmt.Sprintf("takes %d positions, the model has %d", need, s.Config.MaxPositions)
			}
			s.record.Cells = append(s.record.Cells, c)
		}
	}
	return s.take()
}

// tokens is how long a sequence gets.
func (s *Sweep) tokens(context int) int { return context + max(s.Method.Tokens, s.Method.WarmUp) }

// take takes over the cells that an earlier run measured.
func (s *Sweep) take() error {
	if s.Before == nil {
		return nil
	}
	if err := jsonfile.Differs(s.Before.Setup, s.record.Setup); err != nil {
		return fmt.Errorf("%w: %w", ErrOther, err)
	}
	for _, k := range s.record.Kernels {
		for _, old := range s.Before.Kernels {
			if old.Rows != k.Rows {
				continue
			}
			if err := jsonfile.Differs(old.Options, k.Options); err != nil {
				return fmt.Errorf("%w: the kernel of %s: %w", ErrOther, plural.Of(k.Rows, "row"), err)
			}
		}
	}
	s.record.Date = s.Before.Date
	for i, old := range s.Before.Cells { // the same grid
		c := &s.record.Cells[i]
		if old.Rows != c.Rows {
			return fmt.Errorf("%w: batch %d has a kernel of %s, want %d", ErrOther, old.Batch, plural.Of(old.Rows, "row"),
				c.Rows)
		}
		if old.Status == Measured {
			*c = old
			s.Taken++
		}
	}
	return nil
}
