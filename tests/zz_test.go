package tests

import (
	"testing"
	"time"

	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/runtime"
)

func TestZZ(t *testing.T) {
	for _, o := range []megakernel.Options{{SMs: 2, Tokens: 8, Consumers: 3, StageBytes: 1024}, {SMs: 4, Tokens: 6, Consumers: 4, StageBytes: 2048}, {SMs: 44, Tokens: 5, Consumers: 1, StageBytes: 1024}} {
		o.Page, o.Stages, o.InFlight = 4, 3, 2
		start := time.Now()
		mk := raggedShape(t, o.SMs/4%2+1, 96, o)
		p := mixedPlay(t, mk)
		t.Log("build", time.Since(start), len(mutantsOf(mk.IR)), time.Since(start), mk.ChunkTokens(), mk.Plan.Layer)
		start = time.Now()
		sim, _ := runtime.NewSim(mk.IR, 1)
		_, err := p.open(t.Context(), sim)
		t.Log("open", time.Since(start), err)
		start = time.Now()
		all := p.launches
		limits := mk.Limits(p.pages)
		for i := range all {
			p.launches = all[:i+1]
			start = time.Now()
			d, err := p.run(t.Context(), mk.IR, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			pl, err := kv.NewPlanner(limits)
			if err != nil {
				t.Fatal(err)
			}
			var q kv.Request
			q.Steps = all[i].steps
			for _, s := range all[i].seqs {
				q.Sequences = append(q.Sequences, kv.Sequence{Pages: s.Pages, Cached: s.Cached, New: len(s.New), Grow: q.Steps > 1})
			}
			plan, err := pl.Plan(q)
			if err != nil {
				t.Fatal(err)
			}
			c := plan.Classes[0]
			t.Log(i, time.Since(start), d.took, "prefixes", plan.Prefixes, "items", c.Items, "partials", c.Partials)
			for cta := range min(4, o.SMs) {
				for n := range c.Count(cta) {
					t.Logf("  %d %+v", cta, kv.DecodeItem(c.Words(cta, n)))
				}
			}
		}
	}
}
