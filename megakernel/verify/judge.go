package verify

import (
	"fmt"
	"math"
	"slices"

	"github.com/mkgen/mkgen/megakernel"
)

// Tolerances: of logits, relative to how large they are, and of keys and values,
// relative to the root mean square of the token's keys or values in the layer, 1
// at least. Rounding of attention's weights to bf16 and bf16 roundings that fall
// the other way after a float32 sum move the logits of the shrunk models by up to
// 0.05; a dropped token, a wrong page or a wrong rotation moves them by 0.5 and
// more. Of keys and values the same roundings, and the last one, 1/128 of the
// value itself, move two layers' by up to 0.03, eight layers' of the narrowest
// models (hidden 8, drawn at random) by up to 0.106.
const (
	logitTolerance      = 0.1
	cacheLayerTolerance = 0.03 // for each layer, two at least
)

func cacheTolerance(layers int) float64 { return cacheLayerTolerance * float64(max(2, layers)) }

// Judge compares and measures runs of the trial's own kernel.
func (t *Trial) Judge(runs ...*Run) *Report {
	report := &Report{Model: t.mk.Config.Name, Steps: t.steps}
	t.judge(report, runs, t.mk)
	return report
}

// judge turns the runs into the report.
func (t *Trial) judge(report *Report, runs []*Run, real *megakernel.Kernel) {
	var whole []*Run
	for _, r := range runs {
		report.Seeds = append(report.Seeds, r.seed)
		report.Ran += r.ran.launches
		report.Instructions += r.ran.instructions
		for _, f := range r.Findings {
			report.add(f)
		}
		if len(r.Findings) > 0 {
			continue
		}
		whole = append(whole, r)
		for _, f := range t.afterwards(r) {
			report.add(f)
		}
	}
	if len(whole) == 0 {
		return
	}
	report.Conditions = t.conditions(whole, real)
	if len(whole) > 1 && identical(whole).Met {
		report.Values = append(report.Values, t.compareLogits(whole[0], "every seed"), t.compareCache(whole[0], "every seed"))
		return
	}
	for _, r := range whole {
		seed := fmt.Sprintf("seed %d", r.seed)
		report.Values = append(report.Values, t.compareLogits(r, seed), t.compareCache(r, seed))
	}
}

// add keeps a finding unless one of the same kind at the same places is there.
func (r *Report) add(f Finding) {
	same := func(g Finding) bool {
		return g.Kind == f.Kind && slices.EqualFunc(g.Sides, f.Sides, func(a, b Side) bool { return a.Pos == b.Pos })
	}
	if !slices.ContainsFunc(r.Findings, same) {
		r.Findings = append(r.Findings, f)
	}
}

// afterwards checks what no single instruction gives away.
func (t *Trial) afterwards(r *Run) (found []Finding) {
	for i, logits := range r.logits {
		if wrong := drawn(r.next[i], logits, t.rule(i), t.context+i+1); wrong != "" {
			found = append(found, Finding{Kind: "wrong token", Seed: r.seed, Step: i, Text: wrong})
		}
	}
	if r.ran.stray > 0 {
		found = append(found, Finding{Kind: "stray write", Seed: r.seed, Step: t.steps - 1,
			Text: fmt.Sprintf("%d KV pages changed that are not in the page table", r.ran.stray)})
	}
	return found
}

func (t *Trial) compareLogits(r *Run, which string) Comparison {
	c := Comparison{What: "logits, " + which, Tolerance: logitTolerance * t.scale}
	for i, want := range t.want {
		for j, w := range want {
			c.see(float64(r.logits[i][j]), w, func() string { return fmt.Sprintf("token %d at position %d", j, t.context+i) })
		}
	}
	return c
}

// compareCache compares the keys and values that the steps appended. In an e4m3
// cache only what is beyond a neighbour of the right code counts: what was about to
// be rounded differs as in a bf16 cache, and then some roundings.
func (t *Trial) compareCache(r *Run, which string) Comparison {
	c := Comparison{What: "keys and values ÷ rms, " + which, Tolerance: cacheTolerance(t.mk.Config.Layers)}
	for l := range t.fresh {
		for i, want := range t.fresh[l] {
			t.compareToken(&c, l, r.fresh[l][i], want,
				func() string { return fmt.Sprintf("layer %d, position %d", l, t.context+i) })
		}
	}
	return c
}

// compareToken compares the keys and values of a token.
func (t *Trial) compareToken(c *Comparison, layer int, got, want kvToken, where func() string) {
	for v, p := range []struct {
		name      string
		got, want []float64
	}{{"key", got.k, want.k}, {"value", got.v, want.v}} {
		unit := max(1, rms(p.want))
		for j, w := range p.want {
			step := t.step(layer, j, v, w)
			w += min(max(p.got[j]-w, -step), step)
			c.see(p.got[j]/unit, w/unit, func() string { return fmt.Sprintf("%s, %s element %d", where(), p.name, j) })
		}
	}
}

// see compares one value; a NaN counts as worse than any number.
func (c *Comparison) see(got, want float64, where func() string) {
	c.Compared++
	diff := math.Abs(got - want)
	if math.IsNaN(c.MaxError) || !(diff > c.MaxError || math.IsNaN(diff)) {
		return
	}
	c.MaxError, c.Where = diff, where()
}
