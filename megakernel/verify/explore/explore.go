package explore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/internal/revision"
	"github.com/mkgen/mkgen/internal/table"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/verify"
	"github.com/mkgen/mkgen/models"
)

// Row is what was explored of a subject.
type Row struct {
	Subject     string  `json:"subject"`
	What        string  `json:"what"`
	Executions  int     `json:"executions"`  // run to their ends
	Cut         int     `json:"cut"`         // left where everything behind was explored already
	Transitions int64   `json:"transitions"` // in both
	Longest     int     `json:"longest"`     // transitions of the longest execution
	Stale       int     `json:"stale"`       // older values read, or stores put before others, an execution at most
	Bound       int     `json:"bound"`       // executions at most; 0: none
	Complete    bool    `json:"complete"`    // nothing is left within Stale
	Seconds     float64 `json:"seconds"`
	Verdict     string  `json:"verdict"` // "no fault", or the fault
	err         error
}

// Report is what was explored, a row a subject.
type Report struct {
	What    string `json:"what"`
	Date    string `json:"date"`
	Commit  string `json:"commit"`
	Command string `json:"command"`
	Rows    []Row  `json:"subjects"`
}

// Subjects explores every subject with at most n executions (0: no bound) and older values an execution.
func Subjects(b interp.Bounds) (*Report, error) {
	r := &Report{What: "executions of small subjects, every order of their synchronising operations up to the bounds",
		Date: time.Now().Format(time.DateOnly), Commit: revision.String()}
	for _, s := range subjects() {
		row, err := s.explore(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		r.Rows = append(r.Rows, *row)
	}
	return r, nil
}

func (s *subject) explore(b interp.Bounds) (*Row, error) {
	k, err := s.kernel()
	if err != nil {
		return nil, err
	}
	return s.exploreOf(k, b)
}

// exploreOf explores the subject's kernel, or a mutant of it.
func (s *subject) exploreOf(k *ir.Kernel, b interp.Bounds) (*Row, error) {
	p, err := interp.Load(k)
	if err != nil {
		return nil, err
	}
	var last *interp.Memory
	var wrong error
	note := func() {
		if last != nil && wrong == nil {
			wrong = s.check(last)
		}
	}
	return explored(s.name, s.what, b, func() (*interp.Exploration, error) {
		x, err := p.Explore(func() *interp.Memory { last = memory(k); return last }, interp.Options{Ended: note}, b)
		if err == nil {
			err = wrong
		}
		return x, err
	})
}

// explored runs an exploration and makes a row of it. Faults are verdicts, other errors are not.
func explored(name, what string, b interp.Bounds, run func() (*interp.Exploration, error)) (*Row, error) {
	start := time.Now()
	x, err := run()
	if x == nil {
		return nil, err
	}
	row := &Row{Subject: name, What: what, Executions: x.Executions, Cut: x.Cut, Transitions: x.Transitions,
		Longest: x.Longest, Stale: b.Stale, Bound: b.Executions, Complete: x.Complete, Seconds: time.Since(start).Seconds(),
		Verdict: "no fault", err: err}
	if err != nil {
		row.Verdict = err.Error()
	}
	return row, nil
}

// Layer adds a row for a step of one layer of a model's kernel.
func (r *Report) Layer(ctx context.Context, config models.Config, options megakernel.Options, b interp.Bounds) error {
	what := ""
	row, err := explored("one layer of "+config.Name, "", b, func() (*interp.Exploration, error) {
		x, err := verify.Explore(ctx, config, options, b)
		if x == nil {
			return nil, err
		}
		what = x.What
		return x.Exploration, err
	})
	if err != nil {
		return err
	}
	row.What = what
	r.Rows = append(r.Rows, *row)
	return nil
}

// Err is nil where no execution had a fault.
func (r *Report) Err() error {
	var all []error
	for i := range r.Rows {
		if err := r.Rows[i].err; err != nil {
			all = append(all, fmt.Errorf("%s: %w", r.Rows[i].Subject, err))
		}
	}
	return errors.Join(all...)
}

// Write prints a line a subject.
func (r *Report) Write(w io.Writer) error {
	t := table.New("SUBJECT", ">EXECUTIONS", ">CUT", ">TRANSITIONS", ">LONGEST", ">OLDER VALUES", "COMPLETE", ">SECONDS",
		"VERDICT")
	for _, row := range r.Rows {
		complete := "yes"
		if !row.Complete {
			complete = fmt.Sprintf("bound of %d", row.Bound)
		}
		verdict := row.Verdict
		if row.err != nil {
			verdict = "fault"
			complete = "ended by the fault"
		}
		t.Row(row.Subject, row.Executions, row.Cut, row.Transitions, row.Longest, row.Stale, complete,
			fmt.Sprintf("%.2f", row.Seconds), verdict)
	}
	return t.Write(w, "")
}
