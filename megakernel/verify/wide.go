package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/pipeline"
)

// A wide kernel has what the small one cannot: the real number of SMs, most of which have
// no rows of a matrix or no item of attention, as many LL packets a consumer thread as
// the real kernel, for which a CTA has fewer warps, and items of attention that go round the ring twice.
const (
	wideConsumers = 2 // warps; with one alone nobody meets anybody
	wideLaps      = 2 // of the ring within an item
	wideSteps     = minSteps
)

// widen is the wide kernel of a real one, and how many tokens its cache holds at first.
func widen(real *megakernel.Kernel) (*megakernel.Kernel, int, error) {
	c, o := shrink(real)
	was := o.Consumers
	o.SMs, o.Consumers = real.Options.SMs, min(wideConsumers, was)
	scaled := func(n, unit int) int {
		return min(n, max(unit, pipeline.CeilDiv(pipeline.CeilDiv(n*o.Consumers, was), unit)*unit))
	}
	// Every SM has rows of the LM head, some more than others.
	c.Vocab = min(real.Config.Vocab, (o.SMs+o.SMs/16+1)*pipeline.TileRows)
	c.Hidden = max(c.Hidden, scaled(real.Config.Hidden, real.Options.Weights.For("").Columns()))
	c.KVHeads = max(c.KVHeads, scaled(real.Config.KVHeads, 1))
	c.Heads = c.KVHeads * (real.Config.Heads / real.Config.KVHeads)
	for {
		mk, err := megakernel.Build(c, o)
		var refused *megakernel.OptionError
		if errors.As(err, &refused) && refused.Option == "Held" && o.Held > 1 {
			o.Held-- // fewer warps leave each fewer registers for a chunk
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		context := longContext(mk)
		if o.Unsplit > 0 && o.Unsplit != context {
			o.Unsplit = context // of the first step alone, as in the small kernel
			continue
		}
		if n := context + max(wideSteps, freeSteps); n > c.MaxPositions {
			c.MaxPositions = n
			continue
		}
		return mk, context, nil
	}
}

// longContext is the number of tokens of which each split takes the ring round wideLaps times
// and a chunk more; one short of filling a page, as cachedTokens.
func longContext(mk *megakernel.Kernel) int {
	n := mk.Options.Splits*(wideLaps*mk.Options.Stages+1)*mk.ChunkTokens() + mk.ChunkTokens()/2 + 1
	return (n+mk.KV.Page-1)/mk.KV.Page*mk.KV.Page - 1
}

// checkWide runs the wide kernel under the last schedule, so that a finding is found again by
// its seed. It adds what it found to the report, and to ran what it has executed.
func checkWide(
	ctx context.Context, r *Report, real *megakernel.Kernel, edit func(*ir.Kernel) (*ir.Kernel, error), ran executed,
) error {
	mk, cached, err := widen(real)
	if err != nil {
		return fmt.Errorf("verify: the kernel with the real number of SMs and other sizes shrunk: %w", err)
	}
	t, err := newTrial(mk, wideSteps, cached)
	if err != nil {
		return err
	}
	t.wish = wishes{turns: min(wantTurns, turns(mk)), tokens: 1, tokensWhy: "the small kernel has several"}
	k, err := edit(mk.IR)
	if err != nil {
		return err
	}
	run, err := t.Run(ctx, k, r.Seeds[len(r.Seeds)-1])
	if err != nil {
		return err
	}
	ran.add(k, run.ran.ran)
	w := &Report{Model: r.Model, Steps: wideSteps}
	t.judge(w, []*Run{run}, real)
	_, w.Shrunk = compare(real, mk, cached+wideSteps)
	w.Conditions = append(w.Conditions, t.wideConditions(real)...)
	for i := range w.Findings {
		w.Findings[i].Text += fmt.Sprintf(" (at %d SMs)", mk.Options.SMs)
	}
	r.Wide = w
	return nil
}

// wideConditions says what the wide kernel has that the small one has not.
func (t *Trial) wideConditions(real *megakernel.Kernel) []Condition {
	mk := t.mk
	condition := func(name string, have, want int, unit string) Condition {
		return Condition{name, fmt.Sprintf("%d %s", have, unit), fmt.Sprintf("at least %d", want), have >= want}
	}
	none := idle(mk)
	laps := pipeline.CeilDiv(t.context, mk.ChunkTokens()) / mk.Options.Splits / mk.Options.Stages
	packets := func(mk *megakernel.Kernel) int { // of four elements of a residual vector
		return pipeline.CeilDiv(mk.Config.Hidden/4, mk.Options.Consumers*32)
	}
	return []Condition{
		condition("SMs without rows of a matrix", none, min(1, idleAtMost(mk)), "SMs"),
		condition("laps of the ring in an item", laps, wideLaps, "laps"),
		condition("LL packets polled by a thread", packets(mk), packets(real), "packets"),
	}
}

// idle is how many SMs have no tile of some matrix.
func idle(mk *megakernel.Kernel) (n int) {
	for sm := range mk.Options.SMs {
		none := func(m pipeline.MatrixPlan) bool { return m.Count[sm] == 0 }
		if slices.ContainsFunc(slices.Concat(mk.Plan.Layer, mk.Plan.Final), none) {
			n++
		}
	}
	return n
}

// idleAtMost is how many SMs could have none: all but as many as the smallest matrix has tiles.
func idleAtMost(mk *megakernel.Kernel) int {
	fewer := func(a, b pipeline.MatrixPlan) int { return cmp.Compare(a.Tiles, b.Tiles) }
	fewest := slices.MinFunc(slices.Concat(mk.Plan.Layer, mk.Plan.Final), fewer)
	return max(0, mk.Options.SMs-fewest.Tiles)
}
