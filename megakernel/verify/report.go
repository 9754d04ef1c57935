// Package verify checks a kernel on the CPU before it ever meets a GPU: the
// same templates, roles, syncs and options with shrunk sizes, run on the
// executor under several schedules and compared with a reference.
//
// This file is what such a check is asked for and what it answers.
package verify

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
)

// Request is what a check is asked for.
type Request struct {
	Config  models.Config      // the real model; the check shrinks it
	Options megakernel.Options // as for megakernel.Build
	Seeds   int                // schedules to try, at least 1
	Seed    uint64             // of the first schedule; 0: 1
	Policy  string             // of all schedules, one of interp.Policies; "": each seed's own, in turn
	// decode steps under each, at least 2; of several rows, random launches after those that must be
	Steps int
	// of one row: run the kernel with the real number of SMs, too, unless something has been found
	Wide bool
	// check the prefill kernel of steps of this many tokens beside the model's decode kernels, instead; 0: none
	Prefill int
	// of the prefill kernel: see megakernel.PrefillOptions
	Activations pipeline.Format
	// of several rows: parts end at multiples of this many tokens, themselves a multiple of the real kernel's ChunkTokens;
	// 0: anywhere
	Pin int
	// of a prefill kernel: told how many launches of all schedules are done, and how many there are; nil: nobody is
	Progress func(done, of int)
}

// tell tells Progress, if somebody is to be told.
func (r *Request) tell(done, of int) {
	if r.Progress != nil {
		r.Progress(done, of)
	}
}

// Checker runs a check. What is wrong with the kernel is in the report; the
// error is for what kept the check from running, a refused Request or ctx's end.
type Checker func(ctx context.Context, r Request) (*Report, error)

// Report is what a check found. Lists are in the order in which they are read.
type Report struct {
	Model string
	// that asked, without flags of schedules: each finding says how it finds that again; "": none does
	Command      string
	Equal        []Fact      // what the shrunk kernel has in common with the real one
	Conditions   []Condition // what the shrunk kernel must still exercise
	Shrunk       []Size
	Seeds        []uint64 // schedules tried
	Steps        int      // decode steps under each, or launches
	Launches     bool     // Steps are launches, of a kernel of several rows a step
	Ran          int      // launches in all, without Wide's
	Instructions int64    // warp instructions executed in all, without Wide's; 0 when not counted
	Values       []Comparison
	Findings     []Finding
	Coverage     *Coverage // of the real kernel's program; nil where something was found
	Wide         *Report   // of the kernel with the real number of SMs, of one row
}

// Fact is something the shrunk and the real kernel share.
type Fact struct{ Name, Value string }

// Condition is something the run must exercise to mean anything, such as a ring
// that wraps. One that is not met is a failure of the check.
type Condition struct {
	Name string
	Have string // "7.5 times"
	Want string // "at least 3", with the reason where it is less than usual
	Met  bool
}

// Size is a size in the real and in the shrunk kernel.
type Size struct {
	Name       string
	Real, Here int
}

// Comparison is one output against its reference.
type Comparison struct {
	What      string  // "logits, seed 3"
	Compared  int     // values
	MaxError  float64 // largest difference, in the unit that What says if any; NaN counts as wrong
	Tolerance float64 // largest accepted
	Where     string  // where the largest is
}

// OK reports whether every value was close enough. Nothing compared is not.
func (c *Comparison) OK() bool { return c.Compared > 0 && c.MaxError <= c.Tolerance }

// Finding is something wrong with the kernel.
type Finding struct {
	Kind  string // "data race", "deadlock", …
	Text  string
	Seed  uint64
	Under uint64 // of several rows: the seed of the schedule where that is another; 0: Seed
	Step  int
	Sides []Side // who was involved, the later one first
}

// Side is one thread involved in a finding.
type Side struct {
	What   string // "write", "waits at barrier 1: …"
	Op     string // the instruction
	Thread string // "cta 0 warp 3 lane 5"
	Pos    ir.Pos
}

// OK reports whether the kernel passed: conditions met, values compared and
// close, nothing found.
func (r *Report) OK() bool { return r.failures() == "" }

// Err is nil for a report that is OK, else what failed, in one line.
func (r *Report) Err() error {
	if f := r.failures(); f != "" {
		return fmt.Errorf("%s fails verification: %s", r.Model, f)
	}
	return nil
}

func (r *Report) failures() string {
	var parts []string
	kinds, counts := []string{}, map[string]int{}
	for _, f := range r.Findings {
		if counts[f.Kind]++; counts[f.Kind] == 1 {
			kinds = append(kinds, f.Kind)
		}
	}
	for _, k := range kinds {
		parts = append(parts, fmt.Sprintf("%d × %s", counts[k], k))
	}
	for _, c := range r.Conditions {
		if !c.Met {
			parts = append(parts, fmt.Sprintf("%s %s, want %s", c.Name, c.Have, c.Want))
		}
	}
	for i := range r.Values {
		if c := &r.Values[i]; !c.OK() {
			parts = append(parts, fmt.Sprintf("%s off by %s, want at most %s", c.What, number(c.MaxError), number(c.Tolerance)))
		}
	}
	if len(r.Findings) == 0 && (len(r.Seeds) == 0 || len(r.Values) == 0) {
		parts = append(parts, "nothing was run or compared")
	}
	if r.Wide != nil {
		if f := r.Wide.failures(); f != "" {
			parts = append(parts, "with the real number of SMs: "+f)
		}
	}
	return strings.Join(parts, "; ")
}

func number(x float64) string {
	if math.IsNaN(x) {
		return "NaN"
	}
	return fmt.Sprintf("%.3g", x)
}
