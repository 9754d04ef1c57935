package tests

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/stretchr/testify/require"
)

var ragged = flag.Int("ragged", someRagged,
	"random ragged launches to compare with float64; with more than the default and -record, write the record")

const someRagged = 12

// raggedRecord is bench/results/executor/…-ragged.json.
type raggedRecord struct {
	What      string         `json:"what"`
	Host      host           `json:"host"`
	Seconds   float64        `json:"seconds"`
	Launches  int            `json:"launches"`  // compared, each under two schedules
	Rows      map[int]int    `json:"rows"`      // launches by the kernel's rows,
	Pages     map[int]int    `json:"pages"`     // page size,
	Groups    map[int]int    `json:"groups"`    // query heads a KV head,
	Steps     map[int]int    `json:"steps"`     // steps,
	Kinds     map[string]int `json:"kinds"`     // and what their plans have
	Tolerance float64        `json:"tolerance"` // of logits, of their root mean square
	Worst     float64        `json:"worst"`     // difference of a logit
}

// randomCase is any launch.
func randomCase(rng *rand.Rand) raggedCase {
	pick := func(of ...int) int { return of[rng.IntN(len(of))] }
	c := raggedCase{sms: 1 + rng.IntN(5), consumers: pick(1, 2, 3, 4, 7, 8), stage: pick(1024, 2048),
		page: 1 << rng.IntN(8), group: pick(1, 2, 3, 4, 5, 8, 17), kvHeads: 1 + rng.IntN(2), rows: 2 + rng.IntN(15)}
	if rng.IntN(3) == 0 {
		c.steps = 2 + rng.IntN(6)
	}
	if rng.IntN(4) == 0 {
		c.pin = 32 << rng.IntN(2)
	}
	for left := c.rows; left > 0; {
		s := raggedSequence{cached: rng.IntN(pick(2, 40, 120, 200)), new: 1}
		if c.steps == 0 && rng.IntN(3) == 0 {
			s.new = 1 + rng.IntN(left)
		}
		if n := len(c.seqs); n > 0 && rng.IntN(2) == 0 {
			s.shared = min(s.cached, c.seqs[n-1].cached) / c.page * c.page
		}
		c.seqs, left = append(c.seqs, s), left-s.new
		if rng.IntN(6) == 0 {
			break
		}
	}
	return c.complete()
}

// Launches of all kinds, drawn at random, against float64.
func TestRandomRaggedLaunches(t *testing.T) {
	start := time.Now()
	rng := rand.New(rand.NewPCG(11, 5))
	r := raggedRecord{What: "random ragged launches on the executor against float64", Host: thisHost(),
		Rows: map[int]int{}, Pages: map[int]int{}, Groups: map[int]int{}, Steps: map[int]int{}, Kinds: map[string]int{},
		Tolerance: raggedTolerance}
	for i := range deep.Count(*ragged, someRagged/2) {
		c := randomCase(rng)
		w := newRaggedWorld(t, c)
		first := w.run(t, uint64(2*i))
		r.Worst = max(r.Worst, w.check(t, first))
		require.Equal(t, first, w.run(t, uint64(2*i+1)), "%s: two schedules", c)
		r.Launches++
		r.Rows[c.rows]++
		r.Pages[c.page]++
		r.Groups[c.group]++
		r.Steps[c.steps]++
		plan := w.plan(t)
		for kind, is := range map[string]bool{"prefixes": plan.Prefixes > 0, "several prefixes": plan.Prefixes > 1,
			"partial states": plan.Classes[0].Partials > 0, "a phase merges": plan.Classes[0].Phase,
			"more items than SMs": plan.Classes[0].Items > c.sms, "pinned": c.pin > 0} {
			if is {
				r.Kinds[kind]++
			}
		}
	}
	r.Seconds = time.Since(start).Round(time.Second / 10).Seconds()
	t.Logf("%+v", r)
	if *record != "" && *ragged > someRagged {
		writeRecord(t, "", r)
	}
}
