package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/internal/table"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/sweep"
)

// report prints what was found, draws it, and writes the record of a finished sweep that
// was judged. ended is whether it came to its end.
func (s *sweepFlags) report(w io.Writer, of *sweep.Sweep, r *sweep.Record, ended bool) error {
	if r.Executor() {
		fmt.Fprintf(w, "%s on the executor with %d SMs: no speed of any GPU\n\n", r.Model, one(of).Options.SMs)
	} else {
		table.Text(w, "", "%s on %s (driver %s, CUDA %s), %s, %s", r.Model, r.GPU, r.Driver, r.CUDA, r.Compiler, r.Weights)
		table.Text(w, "", "%s of %s of each sequence; µs of a step of all of them; p50, p99 and max: of single steps",
			plural.Of(r.Rounds, "round"), plural.Of(r.Tokens, "token"))
		fmt.Fprintln(w)
	}
	if err := sweep.WriteTable(w, r); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, k := range of.Kernels {
		if g := of.Reports[k.Rows]; g != nil {
			table.Text(w, "", "Gate, kernel of %s: mean KL %.3g, the reference's own bf16 %.3g, %d flips of %d sure tokens, faults caught: %s",
				plural.Of(k.Rows, "row"), float64(g.Gate.KLOurs), float64(g.Gate.KLReference), g.Gate.Flips, g.Gate.Sure,
				strings.Join(g.Gate.FaultsCaught, ", "))
		}
	}
	if of.Taken > 0 {
		fmt.Fprintf(w, "%d of %s of an earlier run, begun on %s; remove %s to measure them again.\n", of.Taken,
			plural.Are(r.Count(sweep.Measured), "case"), r.Date, s.output)
	}
	if s.kept {
		fmt.Fprintf(w, "%s keeps what was measured.\n", s.output)
	}
	if open := r.Count(sweep.Open); open > 0 {
		fmt.Fprintf(w, "%s open: the same command goes on.\n", plural.Are(open, "case"))
	}
	if r.Executor() {
		return failures(r)
	}
	if err := sweep.WriteSVG(s.plot, r); err != nil {
		return err
	}
	fmt.Fprintf(w, "Heat map written to %s\n", s.plot)
	if r.Gate == bench.Ungated {
		fmt.Fprintf(w, "\n%s: no reference was given (--reference), so no record is written.\n", bench.Ungated)
		return failures(r)
	}
	if !ended || !r.Finished {
		return failures(r)
	}
	if err := r.Committable(); err != nil {
		return fmt.Errorf("no record is written: %w", err)
	}
	path := s.record
	if path == "" {
		path = bench.Path(results, r.GPU, "sweep-"+r.Model, time.Now())
	}
	if err := r.WriteFile(path); err != nil {
		return err
	}
	fmt.Fprintf(w, "Record written to %s\n", path)
	return nil
}

// failures is an error where cases failed.
func failures(r *sweep.Record) error {
	for _, c := range r.Cells {
		if c.Status == sweep.Failed {
			why, _, _ := strings.Cut(c.Why, "\n")
			return fmt.Errorf("%s failed, the first with batch %d and context %d: %s", plural.Of(r.Count(sweep.Failed), "case"),
				c.Batch, c.Context, why)
		}
	}
	return nil
}
