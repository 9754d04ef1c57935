package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/megakernel"
)

// judge runs the gate: the reference's sequences in chunks of all sizes up to a prefill step's, mixed with steps of the
// decode kernels, over one cache, whose rows are compared, too. Faults are planted in the prefill kernels alone.
func (r *prefillRun) judge(ctx context.Context) (*gate.Report, error) {
	owner := r.devices[0]
	runner, before := newPrefillGateRunner(r), r.bundle.PrefillSplits()
	subject := gate.RaggedSubject{Kernel: r.s.Decode[0], Weights: r.s.Tensors, Runner: runner,
		Rows: r.bundle.PrefillRows(), Pages: len(r.pages) + 1, Prefill: true, Write: owner.Write, Read: owner.Read,
		Merges:   func() bool { return r.bundle.PrefillSplits() > before },
		Launches: func() gate.PrefillLaunches { return runner.launches },
		Plant:    r.plant, Progress: func(what string) { r.s.say("gate: " + what) }}
	r.s.say("gate: compiling kernels with faults")
	if r.s.coded() {
		subject.Inputs = gate.TokenE4M3
	}
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	defer r.bundle.SplitMost(false)
	report, err := subject.Judge(ctx, r.s.Reference, r.s.Rules)
	if l := &runner.launches; err == nil && l.One+l.Several == 0 {
		err = fmt.Errorf("no step of the reference's sequences has more than the %d tokens that go through the decode kernels: want longer sequences", r.bundle.Rows())
	}
	return report, err
}

// broken is the i-th prefill kernel with a fault.
func (r *prefillRun) broken(i int, fault megakernel.Fault) (*megakernel.Prefill, error) {
	p := r.s.Prefill[i]
	options := p.Of.Options
	options.Fault = fault
	of, err := megakernel.Build(p.Of.Config, options)
	if err != nil {
		return nil, err
	}
	return megakernel.BuildPrefill(of, p.Options)
}

// device is what the i-th prefill kernel is loaded on.
func (r *prefillRun) device(i int) Loaded { return r.devices[len(r.s.Decode)+i] }

// prepare compiles the kernels with faults, where compiling takes time.
func (r *prefillRun) prepare(ctx context.Context) error {
	faults := []megakernel.Fault{megakernel.FaultDropToken, megakernel.FaultRope, megakernel.FaultMergeShare}
	if r.s.coded() {
		faults = append(faults, megakernel.FaultTokenScale)
	}
	return sideBySide(len(r.s.Prefill)*len(faults), func(i int) error {
		p, ok := r.device(i / len(faults)).(Preparer)
		if !ok {
			return nil
		}
		broken, err := r.broken(i/len(faults), faults[i%len(faults)])
		if err == nil {
			err = p.Prepare(ctx, broken.IR)
		}
		return err
	})
}

// plant runs every prefill kernel with a fault.
func (r *prefillRun) plant(ctx context.Context, fault megakernel.Fault) (func(), error) {
	var undo []func()
	restore := func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	}
	for i := range r.s.Prefill {
		broken, err := r.broken(i, fault)
		var one func()
		if err == nil {
			one, err = r.device(i).Plant(ctx, broken.IR)
		}
		if err != nil {
			restore()
			return nil, err
		}
		undo = append(undo, one)
	}
	return restore, nil
}

// prefillGateRunner is the gate.RaggedRunner of a bundle with prefill kernels. A prefill step makes the logits of the
// last token of each sequence alone, so that a part of n tokens takes steps of 1 to n of them, each from the part's
// first token on. In the end all parts run in one launch, where the kernels take several sequences.
type prefillGateRunner struct {
	run      *prefillRun
	logits   [][]float32          // what Run returned, to be used again
	launches gate.PrefillLaunches // so far
	// most says of a sequence, by its first page, whether its keys and values are in as many parts as there can be.
	most map[uint32]bool
}

func newPrefillGateRunner(r *prefillRun) *prefillGateRunner {
	return &prefillGateRunner{run: r, most: map[uint32]bool{},
		launches: gate.PrefillLaunches{Sequences: r.bundle.PrefillSequences()}}
}

// prompt runs a launch, and counts it where it has more tokens than the decode kernels have rows.
func (g *prefillGateRunner) prompt(ctx context.Context, quiet bool, parts ...batch.Sequence) error {
	var step []gate.Part
	n := 0
	for _, s := range parts {
		step, n = append(step, gate.Part{From: s.Cached, To: s.Cached + len(s.New)}), n+len(s.New)
	}
	if n > g.run.bundle.Rows() {
		g.launches.Count(step)
	}
	_, err := g.run.bundle.Run(ctx, batch.StepRequest{Sequences: parts, Steps: 1, Quiet: quiet})
	return err
}

// Run runs one step. Up to as many tokens as the decode kernels have rows go through these.
func (g *prefillGateRunner) Run(ctx context.Context, step []kv.Sequence, silent []int) ([][]float32, error) {
	var parts []batch.Sequence
	var rows [][][]float32 // of each part
	all := 0
	for _, s := range step {
		q := batch.Sequence{Cached: s.Cached, Pages: s.Pages}
		for _, token := range s.Tokens {
			q.New = append(q.New, int(token))
		}
		parts, all = append(parts, q), all+s.New
	}
	for len(g.logits) < all {
		g.logits = append(g.logits, make([]float32, g.run.vocab))
	}
	out := g.logits[:all]
	for i, rest := 0, out; i < len(parts); i++ {
		n := len(parts[i].New)
		rows, rest = append(rows, rest[:n]), rest[n:]
	}
	if all <= g.run.bundle.Rows() {
		return out, g.together(ctx, parts, rows)
	}
	for i := range parts {
		g.split(parts[i])
		if err := g.part(ctx, parts[i], silent[i], rows[i]); err != nil {
			return nil, err
		}
	}
	if all > g.run.bundle.PrefillRows() || len(parts) == 1 || len(parts) > g.run.bundle.PrefillSequences() {
		return out, nil
	}
	return out, g.mixed(ctx, parts, rows)
}

// split has keys and values of every other sequence split also where a launch would not split them: only where few
// tokens are attended to does a wrong weight of a part show.
func (g *prefillGateRunner) split(s batch.Sequence) {
	first := s.Pages[0]
	if _, known := g.most[first]; !known {
		g.most[first] = len(g.most)%2 == 1
	}
	g.run.bundle.SplitMost(g.most[first])
}

// mixed runs all parts in one launch of a prefill kernel, prompts beside sequences that decode. The logits behind each
// are its own then.
func (g *prefillGateRunner) mixed(ctx context.Context, parts []batch.Sequence, rows [][][]float32) error {
	g.split(parts[0])
	if err := g.prompt(ctx, false, parts...); err != nil {
		return err
	}
	for i := range parts {
		if err := g.run.bundle.Logits(i, rows[i][len(rows[i])-1]); err != nil {
			return err
		}
	}
	return nil
}

// together runs parts in one step of a decode kernel.
func (g *prefillGateRunner) together(ctx context.Context, parts []batch.Sequence, rows [][][]float32) error {
	if _, err := g.run.bundle.Run(ctx, batch.StepRequest{Sequences: parts, Steps: 1}); err != nil {
		return err
	}
	for i := range parts {
		for k, row := range rows[i] {
			if err := g.run.bundle.TokenLogits(i, k, row); err != nil {
				return err
			}
		}
	}
	return nil
}

// part runs steps of a part's first tokens. What fits the decode kernels is one step of theirs.
func (g *prefillGateRunner) part(ctx context.Context, s batch.Sequence, silent int, rows [][]float32) error {
	b, n := g.run.bundle, len(s.New)
	first := func(n int) batch.Sequence {
		of := s
		of.New = s.New[:n]
		return of
	}
	small := min(n, b.Rows())
	if silent < small {
		if err := g.together(ctx, []batch.Sequence{first(small)}, [][][]float32{rows[:small]}); err != nil {
			return err
		}
	}
	if silent == n {
		return g.prompt(ctx, true, s)
	}
	for end := max(silent, small) + 1; end <= n; end++ {
		err := g.prompt(ctx, false, first(end))
		if err := errors.Join(err, b.Logits(0, rows[end-1])); err != nil {
			return err
		}
	}
	return nil
}

// Mask refuses: prefill kernels have none.
func (g *prefillGateRunner) Mask([]uint32) error {
	return errors.New("a mask of prefill kernels, which have none")
}
