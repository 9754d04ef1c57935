package explore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/emit/promela"
	"github.com/mkgen/mkgen/internal/revision"
	"github.com/mkgen/mkgen/internal/table"
)

// Spin is SPIN and the C compiler that makes its verifiers.
type Spin struct{ path, compiler, keep string }

// ErrNoSpin is what FindSpin returns (wrapped) when there is no SPIN or no C compiler.
var ErrNoSpin = errors.New("want SPIN and a C compiler on PATH (Debian: apt install spin gcc)")

// FindSpin looks for SPIN and a C compiler on PATH. Models are kept in a folder, "" for none.
func FindSpin(keep string) (*Spin, error) {
	path, err := exec.LookPath("spin")
	if err != nil {
		return nil, fmt.Errorf("found no spin: %w", ErrNoSpin)
	}
	compiler, err := exec.LookPath("cc")
	if err != nil {
		return nil, fmt.Errorf("found no cc: %w", ErrNoSpin)
	}
	return &Spin{path, compiler, keep}, nil
}

// Version is how SPIN calls itself.
func (s *Spin) Version(ctx context.Context) string {
	out, _ := exec.CommandContext(ctx, s.path, "-V").Output()
	return strings.TrimSpace(string(out))
}

// spinDepth is the longest execution of a model that the verifier follows; a longer one is an error.
const spinDepth = "100000"

// Check looks for a fault in every execution of a model. The model and the verifier lie in a folder that goes away.
func (s *Spin) Check(ctx context.Context, model string) (*promela.Result, error) {
	dir, err := os.MkdirTemp("", "mkgen-spin-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "model.pml"), []byte(model), 0o600); err != nil {
		return nil, err
	}
	var out []byte
	for _, args := range [][]string{
		{s.path, "-a", "model.pml"},
		{s.compiler, "-O0", "-w", "-DSAFETY", "-DVECTORSZ=8192", "-o", "pan", "pan.c"},
		{filepath.Join(dir, "pan"), "-n", "-m" + spinDepth},
	} {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Dir, cmd.WaitDelay = dir, 5*time.Second
		if out, err = cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", filepath.Base(args[0]), err, out)
		}
	}
	return promela.Read(string(out))
}

// Model is a subject as a model for SPIN.
func (s *subject) model(k *ir.Kernel, lanes int) (string, error) {
	initial, m := map[string][]byte{}, memory(k)
	for _, b := range k.Globals() {
		initial[b.Name] = m.Bytes(b.Name)
	}
	return promela.Model(k, promela.Options{Lanes: lanes, Initial: initial, Want: map[string][]uint32{"out": s.want}})
}

// Compared is what the executor's exploration and SPIN say of one subject.
type Compared struct {
	Subject     string  `json:"subject"`
	Fault       string  `json:"fault,omitempty"` // planted
	Executions  int     `json:"executions"`      // of the executor, to their ends and cut
	Stale       int     `json:"stale"`           // older values an execution at most; SPIN has no such bound
	Complete    bool    `json:"complete"`        // or ended by a fault
	Verdict     string  `json:"verdict"`
	Seconds     float64 `json:"seconds"`
	Lanes       int     `json:"spin_lanes"` // threads of a warp in the model
	States      int64   `json:"spin_states"`
	Transitions int64   `json:"spin_transitions"`
	SpinVerdict string  `json:"spin_verdict"`
	SpinSeconds float64 `json:"spin_seconds"` // with making the verifier
	// why the fault is a skipped phase for the executor and a deadlock for SPIN
	Differs string `json:"differs,omitempty"`
}

// Agree reports whether both say the same, or name a lane that misses a phase by the executor's rule and by what
// becomes of the lane in SPIN.
func (c *Compared) Agree() bool {
	if c.Differs != "" {
		return c.Verdict == interp.PhaseSkipped.String() && c.SpinVerdict == interp.Deadlock.String()
	}
	return c.Verdict == c.SpinVerdict
}

// Comparison is a row a subject, sound ones first, then planted faults.
type Comparison struct {
	What    string     `json:"what"`
	Date    string     `json:"date"`
	Commit  string     `json:"commit"`
	Command string     `json:"command"`
	Spin    string     `json:"spin"`
	Rows    []Compared `json:"subjects"`
}

// Compare explores every subject and every planted fault, and has SPIN search the model of the same kernel.
func (s *Spin) Compare(ctx context.Context, b interp.Bounds) (*Comparison, error) {
	return s.compareAll(ctx, b, append(subjects(), planted()...))
}

func (s *Spin) compareAll(ctx context.Context, b interp.Bounds, list []subject) (*Comparison, error) {
	c := &Comparison{What: "small subjects and planted faults: the executor's exploration, and SPIN on models written from the same IR",
		Date: time.Now().Format(time.DateOnly), Commit: revision.String(), Spin: s.Version(ctx)}
	for _, subject := range list {
		if subject.states != "" {
			continue
		}
		row, err := s.compare(ctx, &subject, b)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", subject.name, subject.fault, err)
		}
		c.Rows = append(c.Rows, *row)
	}
	return c, nil
}

func (s *Spin) compare(ctx context.Context, of *subject, b interp.Bounds) (*Compared, error) {
	ours, err := of.explore(b)
	if err != nil {
		return nil, err
	}
	k, err := of.kernel()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	model, err := of.model(k, of.lanes)
	if err != nil {
		return nil, err
	}
	if err := s.save(of, model); err != nil {
		return nil, err
	}
	result, err := s.Check(ctx, model)
	if err != nil {
		return nil, err
	}
	return &Compared{Subject: of.name, Fault: of.fault, Executions: ours.Executions + ours.Cut, Stale: ours.Stale,
		Complete: ours.Complete || ours.err != nil,
		Verdict:  kindOf(ours.err), Seconds: ours.Seconds, Lanes: of.lanes, States: result.States,
		Transitions: result.Transitions, SpinVerdict: result.Verdict,
		SpinSeconds: time.Since(start).Seconds(), Differs: of.differs}, nil
}

// save keeps a subject's model where models are kept.
func (s *Spin) save(of *subject, model string) error {
	if s.keep == "" {
		return nil
	}
	name := strings.NewReplacer(" ", "-", ",", "").Replace(strings.TrimSpace(of.name + " " + of.fault))
	if err := os.MkdirAll(s.keep, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.keep, name+".pml"), []byte(model), 0o644)
}

// kindOf names a fault by its kind, as SPIN's verdicts are named.
func kindOf(err error) string {
	var f *interp.Fault
	switch {
	case err == nil:
		return "no fault"
	case errors.As(err, &f):
		return f.Kind.String()
	}
	return "wrong value"
}

// Err is nil where both agree on every subject, and on sound ones that there is no fault.
func (c *Comparison) Err() error {
	var all []error
	for i := range c.Rows {
		r := &c.Rows[i]
		switch {
		case !r.Agree():
			all = append(all, fmt.Errorf("%s %s: the executor says %q and SPIN %q", r.Subject, r.Fault, r.Verdict,
				r.SpinVerdict))
		case !r.Complete:
			all = append(all, fmt.Errorf("%s: not all executions were explored", r.Subject))
		case (r.Fault == "") != (r.SpinVerdict == "no fault"):
			all = append(all, fmt.Errorf("%s %s: both say %q", r.Subject, r.Fault, r.Verdict))
		}
	}
	return errors.Join(all...)
}

// Write prints a line a subject.
func (c *Comparison) Write(w io.Writer) error {
	t := table.New("SUBJECT", "PLANTED FAULT", ">EXECUTIONS", "EXECUTOR SAYS", ">LANES", ">STATES", "SPIN SAYS",
		">SECONDS")
	for _, r := range c.Rows {
		fault := r.Fault
		if fault == "" {
			fault = "none"
		}
		t.Row(r.Subject, fault, r.Executions, r.Verdict, r.Lanes, r.States, r.SpinVerdict, fmt.Sprintf("%.1f", r.SpinSeconds))
	}
	if err := t.Write(w, ""); err != nil {
		return err
	}
	for _, r := range c.Rows {
		if r.Differs == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "%s, %s: %s\n", r.Subject, r.Fault, r.Differs); err != nil {
			return err
		}
	}
	return nil
}
