// Package budget puts what a traced launch took beside what was predicted, phase by phase.
package budget

import (
	"github.com/mkgen/mkgen/lab/trace"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/pipeline/machine"
)

// Budget is one kernel at one context. Predicted times are in µs; measured ones too, or on
// the executor in steps of its scheduler.
type Budget struct {
	Context int
	Machine *machine.Machine // predicted for
	Unit    string           // of measured times: trace.Nanoseconds (then they are in µs) or trace.Steps
	Phases  []Phase
	Step    Compared // the whole step as traced: Parts.Time from the first span of an SM to its last
	Floor   float64  // the bytes of a step, each once, at the ceiling
	Between float64  // of a step as traced, what lies outside of its phases

	Traced, Untraced float64 // of a step by the device's clock: of the kernel with the trace, and of the one without
	Dropped          int     // spans that did not fit
}

// Phase is one phase.
type Phase struct {
	Name  string
	Runs  int   // in a step
	Bytes int64 // that all SMs read from memory in a run
	Compared
}

// Compared are times of a run, means over its SMs and over all runs.
type Compared struct {
	Predicted, Measured Parts
}

// Parts is where an SM's time goes. Time is the sum of the others.
type Parts struct {
	Time   float64
	Work   float64 // arithmetic, and what is read from other SMs
	Chunks float64 // waits for chunks: the ring is empty
	Sync   float64 // from arrival to release
}

// Ratio is measured over predicted time; 0 where either is missing.
func (c *Compared) Ratio() float64 {
	if c.Predicted.Time == 0 {
		return 0
	}
	return c.Measured.Time / c.Predicted.Time
}

// Times are those of steps by the device's clock, in µs.
type Times struct{ Traced, Untraced float64 }

// Of compares the launch that a summary is of: steps of sequences sequences, each with
// context tokens in the cache. Of phases of which nothing was measured only the prediction
// is given, and of those that were not predicted only what was measured.
func Of(mk *megakernel.Kernel, m *machine.Machine, context, sequences int, s *trace.Summary, t Times) *Budget {
	p := mk.Predict(m, context, sequences)
	b := &Budget{Context: context, Machine: m, Unit: s.Unit, Floor: p.Floor * 1e6, Traced: t.Traced, Untraced: t.Untraced,
		Dropped: s.Dropped}
	by := 1.0
	if s.Unit == trace.Nanoseconds {
		by = 1e-3
	}
	measured := map[string]*trace.PhaseSummary{}
	for i := range s.Phases {
		measured[s.Phases[i].Name] = &s.Phases[i]
	}
	sum := 0.0
	for _, f := range p.Phases {
		row := Phase{Name: f.Name, Runs: f.Runs, Bytes: f.Bytes, Compared: Compared{Predicted: predicted(&f)}}
		if of := measured[f.Name]; of != nil {
			row.Measured = parts(of.Parts, by)
		}
		sum += float64(f.Runs) * row.Measured.Time
		b.Step.Predicted.add(row.Predicted, float64(f.Runs))
		b.Phases = append(b.Phases, row)
		delete(measured, f.Name)
	}
	for i := range s.Phases { // a plan had work for them
		if f := &s.Phases[i]; measured[f.Name] != nil {
			row := Phase{Name: f.Name, Runs: f.Runs / max(1, s.Steps), Compared: Compared{Measured: parts(f.Parts, by)}}
			sum += float64(row.Runs) * row.Measured.Time
			b.Phases = append(b.Phases, row)
		}
	}
	if s.Steps > 0 {
		b.Step.Measured = parts(s.Step, by)
		b.Between = b.Step.Measured.Time - sum
	}
	return b
}

func predicted(f *megakernel.PhasePrediction) Parts {
	return Parts{Time: f.Time * 1e6, Work: f.Work * 1e6, Chunks: f.Chunks * 1e6, Sync: f.Sync * 1e6}
}

// parts are those of a trace; waits for other SMs' words are a sync's.
func parts(p trace.Parts, by float64) Parts {
	return Parts{Time: by * p.Time, Work: by * p.Work, Chunks: by * p.Chunks, Sync: by * (p.Syncs + p.Others)}
}

func (p *Parts) add(q Parts, n float64) {
	p.Time, p.Work, p.Chunks, p.Sync = p.Time+n*q.Time, p.Work+n*q.Work, p.Chunks+n*q.Chunks, p.Sync+n*q.Sync
}
