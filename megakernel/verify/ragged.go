package verify

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/synth"
)

// raggedTrial is what every schedule runs of a kernel whose steps have several rows:
// a scenario of its own of sequences that share pages, decode, are fed in pieces and as
// draft trees, drawn by the seed. Of Trial it has what does not depend on sequences.
// It is read-only once made.
type raggedTrial struct {
	*Trial
	weightsOf reference.Weights
	random    int // launches drawn at random behind those that must be
	pin       int
}

// longest is how many tokens the longest sequence has in the cache at first: several
// chunks, and a prefix that others share, long enough for the planner to make a unit of it.
func longest(mk *megakernel.Kernel) int {
	costs := kv.DefaultCosts(mk.Config.Heads / mk.Config.KVHeads)
	prefix := 3*costs.Item/2 + 4*costs.State
	return max(4*mk.ChunkTokens(), 2*mk.KV.Page, prefix) + mk.KV.Page + 3
}

func newRaggedTrial(mk *megakernel.Kernel, random, pin int) *raggedTrial {
	shape := mk.Config
	t := &raggedTrial{Trial: &Trial{mk: mk, weights: synth.NewWeights(weightSeed, shape), heads: headScales(mk),
		wish: within(mk)},
		weightsOf: syntheticOf(mk, shape), random: random, pin: pin}
	for i := range mk.KV.ScalesLen() {
		t.scales = append(t.scales, kvScales[i%len(kvScales)])
	}
	arrivals := uint32(mk.Barriers() * mk.Options.SMs)
	t.epoch = -(2*arrivals + arrivals/2) // passes 2³² amid the third step
	return t
}

// checkRagged is check of a kernel of several rows a step.
func checkRagged(ctx context.Context, q Request, seeds []uint64, real, small *megakernel.Kernel,
	edit func(*ir.Kernel) (*ir.Kernel, error)) (*Report, error) {
	if chunk := real.ChunkTokens(); q.Pin < 0 || q.Pin%chunk != 0 {
		return nil, &PinError{q.Pin, chunk}
	}
	t := newRaggedTrial(small, q.Steps, q.Pin)
	if q.Pin > 0 {
		t.pin = max(q.Pin, t.pinnable())
	}
	k, err := edit(small.IR)
	if err != nil {
		return nil, err
	}
	report := &Report{Model: real.Config.Name, Launches: true}
	report.Equal, report.Shrunk = compare(real, small, t.most())
	if t.pin > q.Pin {
		report.Shrunk = append(report.Shrunk, Size{"tokens of a pinned part", q.Pin, t.pin})
	}
	schedules := withOneMore(seeds)
	runs := make([]*raggedRun, len(schedules))
	errs := make([]error, len(runs))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(len(runs), workers()) {
		wg.Go(func() {
			for i := range next {
				runs[i], errs[i] = t.run(ctx, k, seeds[i%len(seeds)], schedules[i])
			}
		})
	}
	for i := range runs {
		next <- i
	}
	close(next)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	t.judgeRagged(report, runs, real)
	if len(report.Findings) == 0 {
		ran := executed{}
		for _, run := range runs {
			ran.add(k, run.ran.ran)
		}
		report.Coverage = ran.of(real.IR)
	}
	return report, nil
}

// withOneMore are the schedules under which the scenarios of seeds run: each seed's own, and
// one more, of another policy, for the first scenario again. It follows from the first seed
// alone, so that a request of that seed only runs it, too.
func withOneMore(seeds []uint64) []uint64 { return append(slices.Clone(seeds), seeds[0]+1) }

// PinError is a Request whose Pin is no multiple of the kernel's chunks, or of a kernel
// of one row a step, whose Chunk is 0.
type PinError struct{ Pin, Chunk int }

func (e *PinError) Error() string {
	if e.Chunk == 0 {
		return "verify: parts pinned of a kernel of one row a step, which has the same parts anyway"
	}
	return fmt.Sprintf("verify: parts pinned at multiples of %d tokens, want a multiple of the %d of a stage", e.Pin,
		e.Chunk)
}

// judgeRagged turns the runs into the report.
func (t *raggedTrial) judgeRagged(report *Report, runs []*raggedRun, real *megakernel.Kernel) {
	var whole []*raggedRun
	for i, r := range runs {
		if i < len(runs)-1 {
			report.Seeds = append(report.Seeds, r.seed)
		}
		report.Steps = max(report.Steps, r.launches)
		report.Ran += r.ran.launches
		report.Instructions += r.ran.instructions
		for _, f := range r.Findings {
			if r.schedule != r.seed {
				f.Under = r.schedule
			}
			report.add(f)
		}
		if len(r.Findings) == 0 {
			whole = append(whole, r)
		}
	}
	if len(whole) < len(runs) {
		return
	}
	report.Conditions = t.raggedConditions(whole, real)
	for _, r := range whole[:len(whole)-1] {
		report.Values = append(report.Values, t.raggedLogits(r), r.fresh)
	}
}

// raggedLogits compares every row's.
func (t *raggedTrial) raggedLogits(r *raggedRun) Comparison {
	all := make([][]float64, len(r.rows))
	for i := range r.rows {
		all[i] = r.rows[i].want
	}
	scale := max(rms(all...), synth.LogitSD(t.mk.Config.Vocab))
	c := Comparison{What: fmt.Sprintf("logits, seed %d", r.seed), Tolerance: logitTolerance * scale}
	for _, row := range r.rows {
		for j, w := range row.want {
			c.see(float64(row.got[j]), w, func() string { return fmt.Sprintf("token %d of %s", j, row.where) })
		}
	}
	for _, g := range r.guesses {
		c.see(g.short, 0, func() string { return "the token chosen at " + g.where })
	}
	return c
}

// sameRows names the first difference between two runs' logits, bit by bit, before those of stops;
// "" for none.
func sameRows(a, b *raggedRun) string {
	if a.common != b.common {
		return "how many rows ran"
	}
	for i, row := range a.rows[:a.common] {
		for j, x := range row.got {
			if math.Float32bits(x) != math.Float32bits(b.rows[i].got[j]) {
				return fmt.Sprintf("logit %d of %s", j, row.where)
			}
		}
	}
	return ""
}
