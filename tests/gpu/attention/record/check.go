package record

import (
	"math"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/lab/bench"
)

// LeastRounds are demanded of a timed case.
const LeastRounds = 5

// Complete derives the figures of a case from its rounds (µs a layer), bytes and
// ceiling.
func (c *Case) Complete() {
	c.Micros = median(c.Rounds)
	c.GBps = float64(c.Bytes) / c.Micros / 1e3
	c.CeilingGB = c.Ceiling.GBps
	c.Share = c.GBps / c.CeilingGB
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// Check returns nil when the record says everything it must and every case is
// right; else all that is wrong, joined.
func (r *Record) Check() error {
	var p problems
	p.rule(r.GPU != "" && r.Driver != "" && r.CUDA != "" && r.Commit != "" && r.Options.Compiler != "",
		"gpu, driver, cuda, commit or compiler is empty")
	p.rule(r.Commit != "unknown" && !strings.HasSuffix(r.Commit, "+modified"),
		"commit %s: a record names the commit it is of", r.Commit)
	p.rule(r.Options.SMs > 0 && r.Options.Heads > 0 && r.Options.KVHeads > 0 && r.Options.HeadDim > 0, "options: %+v",
		r.Options)
	p.rule(r.PyTorch.Version != "", "there is no PyTorch beside it")
	p.rule(len(r.Cases) > 0, "there are no cases")
	for i := range r.Cases {
		r.Cases[i].check(&p)
		if r.Cases[i].Ceiling.GBps > 0 {
			if err := bench.Void(r.GPU, r.Cases[i].Ceiling.GBps); err != nil {
				p = append(p, err)
			}
		}
	}
	return p.err()
}

func (c *Case) check(p *problems) {
	rule := func(ok bool, format string, args ...any) { p.rule(ok, "case "+c.Name+": "+format, args...) }
	g := c.Gate
	rule(g.Passed && g.WorstElement <= 1 && g.WorstRMS <= 1,
		"it does not agree with the reference: errors of %.3g and %.3g of what is allowed (%s)", g.WorstElement, g.WorstRMS,
		g.Where)
	rule(g.Identical, "the same step twice gave different bits")
	rule(c.Batch > 0 && c.Batch == len(c.Lengths) && c.Tokens > 0 && c.Page > 0 && c.Layers > 0 && len(c.Variants) > 0,
		"batch, tokens, page, layers or variants are missing")
	if !c.Timed() {
		return
	}
	rule(len(c.Rounds) >= LeastRounds, "%d rounds, want at least %d", len(c.Rounds), LeastRounds)
	want := *c
	want.Complete()
	for _, f := range []struct {
		name      string
		got, want float64
	}{{"us", c.Micros, want.Micros}, {"gb_s", c.GBps, want.GBps}, {"ceiling_gb_s", c.CeilingGB, want.CeilingGB},
		{"share", c.Share, want.Share}} {
		rule(f.got > 0 && math.Abs(f.got-f.want) <= 1e-6*f.want, "%s is %v, the others make it %v", f.name, f.got, f.want)
	}
	rule(c.Share <= 1, "share is %.3f, want at most 1: not all bytes came from memory, or they are counted wrongly",
		c.Share)
}

// Timed says whether the case has times; a check of a variant has none.
func (c *Case) Timed() bool { return c.Steps > 0 }
