package verify

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"math"
	"math/rand/v2"
	"time"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
)

// Sizes of the shrunk prefill kernel beside those of a decode kernel.
const (
	prefillSMs    = 4        // two clusters
	prefillShared = 64 << 10 // bytes at least
)

// prefillTrial is what every schedule of a prefill kernel runs: steps of a prompt, or of several sequences, all but the
// first of which choose; keys, values and logits must be the reference's.
type prefillTrial struct {
	*Trial
	p         *megakernel.Prefill
	sequences []prefillSequence
	steps     []prefillStep
	lead      int // steps of the first sequence alone in front, so that its keys and values can be split
	pages     int
}

// PrefillError is a Request of a prefill kernel that there is not.
type PrefillError struct{ Err error }

func (e *PrefillError) Error() string { return "verify: " + e.Err.Error() }
func (e *PrefillError) Unwrap() error { return e.Err }

// checkPrefill is check of the prefill kernel beside the real kernel.
func checkPrefill(ctx context.Context, r Request, seeds []uint64,
	edit func(*ir.Kernel) (*ir.Kernel, error)) (*Report, error) {
	of, err := megakernel.Build(r.Config, r.Options)
	if err != nil {
		return nil, err
	}
	r.Options.Tokens = 1 // prefill kernels are the same beside kernels of every number of rows, but for the sequences
	mk, err := megakernel.Build(r.Config, r.Options)
	if err != nil {
		return nil, err
	}
	real, err := megakernel.BuildPrefill(mk,
		megakernel.PrefillOptions{Tokens: r.Prefill, Sequences: of.PrefillSequences(), Activations: r.Activations})
	if err != nil {
		return nil, &PrefillError{err}
	}
	t, err := newPrefillTrial(real)
	if err != nil {
		return nil, fmt.Errorf("verify: the kernel with shrunk sizes: %w", err)
	}
	k, err := edit(t.p.IR)
	if err != nil {
		return nil, err
	}
	report := &Report{Model: mk.Config.Name, Steps: len(t.steps), Launches: true}
	report.Equal, report.Shrunk = t.compare(real)
	ran, digests := executed{}, map[[sha256.Size]byte]uint64{}
	var turns = math.MaxInt
	gaveUp := 0
	for i, seed := range seeds {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		run, err := t.run(ctx, k, seed, func(done int) { r.tell(i*len(t.steps)+done, len(seeds)*len(t.steps)) })
		if err != nil {
			return nil, err
		}
		report.Seeds = append(report.Seeds, seed)
		report.Ran += run.ran.launches
		report.Instructions += run.ran.instructions
		for _, f := range run.findings {
			report.add(f)
		}
		if len(run.findings) > 0 {
			continue
		}
		ran.add(k, run.ran.ran)
		turns = min(turns, run.turns)
		if run.gaveUp {
			gaveUp++
		}
		if _, same := digests[run.digest]; !same {
			digests[run.digest] = seed
			report.Values = append(report.Values, run.values...)
		}
	}
	if len(report.Findings) > 0 {
		return report, nil
	}
	report.Conditions = t.conditions(turns, gaveUp, digests)
	report.Coverage = ran.of(real.IR)
	return report, nil
}

// newPrefillTrial shrinks a prefill kernel and computes what must come out of it: steps that have room for several
// tiles of tokens where the real one has, warpgroups and clusters as they are.
func newPrefillTrial(real *megakernel.Prefill) (*prefillTrial, error) {
	c, o := shrink(real.Of)
	o.SMs = min(real.Of.Options.SMs, prefillSMs)
	po := real.Options
	po.Tokens = min(po.Tokens, 2*po.Padded())
	po.DownParts = real.KParts[megakernel.MatrixDown]
	if columns := real.DownColumns() * po.DownParts; po.DownParts > 1 {
		c.Intermediate = pipeline.CeilDiv(c.Intermediate, columns) * columns
	}
	t := &prefillTrial{steps: prefillSteps(po.Tokens, min(po.Sequences, po.Tokens))}
	// of the decode kernel, which is not checked here
	o.Stages, o.InFlight, o.Held, o.Leads = 0, 0, megakernel.HeldNone, ""
	c.MaxPositions = max(c.MaxPositions, t.leadBy(po.Tokens, attention.BlockTokens))
	var err error
	if t.p, err = smallPrefill(c, o, po); err != nil {
		return nil, err
	}
	mk := t.p.Of
	t.Trial = &Trial{mk: mk, weights: synth.NewWeights(weightSeed, c)}
	for i := range mk.KV.ScalesLen() {
		t.scales = append(t.scales, kvScales[i%len(kvScales)])
	}
	t.heads = headScales(mk)
	return t, t.feed()
}

// smallPrefill is the prefill kernel in the least shared memory that it can be in: with few stages the ring goes round.
func smallPrefill(c models.Config, o megakernel.Options, po megakernel.PrefillOptions) (*megakernel.Prefill, error) {
	most := o.SharedLimit
	for o.SharedLimit = prefillShared; ; o.SharedLimit += prefillShared / 4 {
		mk, err := megakernel.Build(c, o)
		if err == nil {
			var p *megakernel.Prefill
			if p, err = megakernel.BuildPrefill(mk, po); err == nil {
				return p, nil
			}
		}
		if o.SharedLimit >= most {
			return nil, err
		}
	}
}

// prefillRun is one schedule's outcome. A finding ends it.
type prefillRun struct {
	findings []Finding
	values   []Comparison
	ran      measured
	turns    int // of the ring in the first step, by the CTA with the fewest
	gaveUp   bool
	first    int64             // instructions of the first step
	hash     hash.Hash         // of the logits so far
	digest   [sha256.Size]byte // of the logits and the cache
}

// run runs k under one schedule, and tells stepped how many of its steps are done.
func (t *prefillTrial) run(ctx context.Context, k *ir.Kernel, seed uint64,
	stepped func(done int)) (*prefillRun, error) {
	decode, err := runtime.NewSim(t.mk.IR, seed)
	if err != nil {
		return nil, err
	}
	sim, err := runtime.NewSim(k, seed)
	if err != nil {
		return nil, err
	}
	_, err = runtime.OpenSequence(ctx, t.mk, decode, runtime.FromTensors(t.weights, runtime.LoadOptions{}),
		runtime.Options{Pages: t.pages, Table: t.sequences[0].table, KVScales: t.scales, HeadScales: t.heads})
	if err != nil {
		return nil, err
	}
	r, err := runtime.OpenPrefill(t.p, sim, decode, t.pages, 0)
	if err != nil {
		return nil, err
	}
	past := []byte{0x0f, 0xff, 0xff, 0xff} // the barrier's counter passes 2³² on the way
	if err := errors.Join(sim.Write("barrier", 0, past), sim.Write("epoch", 0, past)); err != nil {
		return nil, err
	}
	run := &prefillRun{turns: math.MaxInt, hash: sha256.New()}
	before := make([]byte, decode.Size("kv"))
	if err := decode.Read("kv", 0, before); err != nil {
		return nil, err
	}
	for i := range t.steps {
		stepped(i)
		if err := t.step(ctx, r, sim, run, seed, i); err != nil || len(run.findings) > 0 {
			return run, err
		}
	}
	stepped(len(t.steps))
	if err := t.judge(decode, run, seed, before); err != nil || len(run.findings) > 0 {
		return run, err
	}
	return run, t.givenUp(ctx, r, sim, decode, run, seed)
}

// step runs step i.
func (t *prefillTrial) step(ctx context.Context, r *runtime.Prefill, sim *runtime.Sim, run *prefillRun, seed uint64,
	i int) error {
	of, numbers := t.parts(i)
	quiet := i <= t.lead
	r.SplitMost = (i-t.lead)%2 == 1 // of keys and values
	chosen, err := r.RunAll(ctx, of, quiet)
	var fault *interp.Fault
	if errors.As(err, &fault) {
		run.findings = append(run.findings, finding(fault, seed, i))
		return nil
	} else if err != nil {
		return err
	}
	if i == 0 {
		run.first = sim.Last.Steps
	}
	run.ran.instructions += sim.Last.Steps
	run.ran.count(sim.Last)
	for _, c := range sim.Last.CTAs {
		for _, b := range c.MBarrier {
			if i == 0 && b.Buf == pipeline.RegionTilesFull && b.Index == t.p.Stages-1 {
				run.turns = min(run.turns, b.Phases)
			}
		}
	}
	if quiet {
		return nil
	}
	return t.judgeStep(r, run, chosen, numbers, seed, i)
}

// givenUp has the host give the first step up somewhere in its middle. Every warp must leave it, and the step after it
// must write what it would have.
func (t *prefillTrial) givenUp(ctx context.Context, r *runtime.Prefill, sim, decode *runtime.Sim, run *prefillRun,
	seed uint64) error {
	cache := func() []byte {
		got := make([]byte, decode.Size("kv"))
		if err := decode.Read("kv", 0, got); err != nil {
			panic("BUG: " + err.Error())
		}
		return got
	}
	want := cache()
	r.HangTimeout = time.Minute // the executor says when
	sim.ClaimStuck(rand.New(rand.NewPCG(seed, 0x67697665)).Int64N(max(run.first/2, 1)))
	first, _ := t.parts(0)
	_, err := r.RunAll(ctx, first, true)
	var hang *runtime.HangError
	var fault *interp.Fault
	switch {
	case errors.As(err, &fault):
		f := finding(fault, seed, 0)
		f.Text += " (in a launch that the host gave up)"
		run.findings = append(run.findings, f)
		return nil
	case errors.As(err, &hang):
		run.gaveUp = true
		run.ran.count(sim.Last)
	case err != nil:
		return err
	}
	r.HangTimeout = 0
	if _, err := r.RunAll(ctx, first, true); errors.As(err, &fault) {
		run.findings = append(run.findings, finding(fault, seed, 0))
		return nil
	} else if err != nil {
		return err
	}
	if !bytes.Equal(want, cache()) {
		run.findings = append(run.findings,
			Finding{Kind: "wrong value", Seed: seed, Text: "the launch after one that was given up wrote other keys or values"})
	}
	return nil
}

// conditions say what the runs must have exercised to mean something.
func (t *prefillTrial) conditions(turns, gaveUp int, digests map[[sha256.Size]byte]uint64) []Condition {
	condition := func(name string, have, want int, unit string) Condition {
		return Condition{name, fmt.Sprintf("%d %s", have, unit), fmt.Sprintf("at least %d", want), have >= want}
	}
	first, all := t.steps[0][0], t.before(0, len(t.steps))
	second := (all - 1) / t.mk.KV.Page
	met := []Condition{
		condition("the ring went round", turns, wantTurns, "times"),
		condition("cached tokens before a step", first, 1, "tokens"),
		condition("parts of keys and values", t.mostParts(), 2, "parts"),
		condition("KV pages that got new tokens", second+1, min(2, second+1), "pages"),
		condition("clusters", t.mk.Options.SMs/t.p.Options.Cluster, min(2, t.mk.Options.SMs/t.p.Options.Cluster), "clusters"),
	}
	if len(t.p.Sites) > 0 {
		met = append(met, condition("launches given up midway", gaveUp, 1, "launches"))
	}
	if n := len(t.sequences); t.p.Options.Sequences > 1 {
		met = append(met, condition("sequences of a step", n, min(2, t.p.Options.Tokens), "sequences"))
	}
	same := Condition{"outputs under all schedules", "bit-identical", "bit-identical", len(digests) == 1}
	if !same.Met {
		same.Have = fmt.Sprintf("%d different ones", len(digests))
	}
	return append(met, same)
}

// compare lists what the shrunk kernel shares with the real one, and the sizes that differ.
func (t *prefillTrial) compare(real *megakernel.Prefill) (equal []Fact, shrunk []Size) {
	size := func(name string, of func(*megakernel.Prefill) int) {
		if a, b := of(real), of(t.p); a == b {
			equal = append(equal, Fact{name, fmt.Sprint(a)})
		} else {
			shrunk = append(shrunk, Size{name, a, b})
		}
	}
	equal = append(equal, sharedLines(sources(real.IR), sources(t.p.IR)))
	if a, b := rolesOf(real.IR), rolesOf(t.p.IR); a == b {
		equal = append(equal, Fact{"roles", a})
	}
	size("consumer warpgroups", func(p *megakernel.Prefill) int { return p.Options.Groups })
	size("CTAs of a cluster", func(p *megakernel.Prefill) int { return p.Options.Cluster })
	size("page size", func(p *megakernel.Prefill) int { return p.Of.Options.Page })
	size("head dimension", func(p *megakernel.Prefill) int { return p.Of.Config.HeadDim })
	size("query heads a KV head", func(p *megakernel.Prefill) int { return p.Of.Config.Heads / p.Of.Config.KVHeads })
	size("sequences of a step", func(p *megakernel.Prefill) int { return p.Options.Sequences })
	size("tokens of a step", func(p *megakernel.Prefill) int { return p.Options.Tokens })
	size("stages", func(p *megakernel.Prefill) int { return p.Stages })
	for i, m := range real.Of.Plan.Layer {
		size("rows of a tile of "+m.Name, func(p *megakernel.Prefill) int { return p.Columns[i] })
	}
	size("SMs", func(p *megakernel.Prefill) int { return p.Of.Options.SMs })
	size("layers", func(p *megakernel.Prefill) int { return p.Of.Config.Layers })
	size("hidden size", func(p *megakernel.Prefill) int { return p.Of.Config.Hidden })
	size("intermediate size", func(p *megakernel.Prefill) int { return p.Of.Config.Intermediate })
	size("KV heads", func(p *megakernel.Prefill) int { return p.Of.Config.KVHeads })
	return equal, shrunk
}
