package kv

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// h200 is a kernel of Llama-3.1-8B's shape.
func h200() Limits {
	return Limits{CTAs: 132, KVHeads: 8, Group: 4, Rows: 16, PageSize: 16, ChunkTokens: 32, ItemsPerCTA: 32,
		Partials: 4096, Pages: 1 << 18}
}

// decoding is sequences of n tokens, the last of which is new.
func decoding(page int, lengths ...int) (r Request) {
	next := uint32(0)
	for _, n := range lengths {
		s := Sequence{Cached: n - 1, New: 1, Grow: true}
		for range ceilDiv(n, page) {
			s.Pages = append(s.Pages, next)
			next++
		}
		r.Sequences = append(r.Sequences, s)
	}
	return r
}

// zipf is 16 lengths that fall as 1/i, 1024 on average.
func zipf() (lengths []int) {
	sum := 0.0
	for i := 1; i <= 16; i++ {
		sum += 1 / float64(i)
	}
	for i := 1; i <= 16; i++ {
		lengths = append(lengths, int(math.Round(16*1024/sum/float64(i))))
	}
	return lengths
}

func uniform(seed uint64) (lengths []int) {
	r := rand.New(rand.NewPCG(seed, 6))
	for range 16 {
		lengths = append(lengths, 512+r.IntN(513))
	}
	return lengths
}

func constant(n, length int) (lengths []int) {
	for range n {
		lengths = append(lengths, length)
	}
	return lengths
}

func TestCTAsHaveAboutTheSameLoad(t *testing.T) {
	cases := []struct {
		name    string
		lengths []int
		within  float64 // of the mean load
	}{
		{"constant 1024", constant(16, 1024), 1.04},
		{"Zipf, mean 1024", zipf(), 1.07},
		{"one of 32768", []int{32768}, 1.03},
		{"one of 131072", []int{131072}, 1.02},
		{"one of 1024", []int{1024}, 1.06},
	}
	for seed := range uint64(20) {
		cases = append(cases, cases[0])
		cases[len(cases)-1].name, cases[len(cases)-1].lengths, cases[len(cases)-1].within = "uniform 512 to 1024",
			uniform(seed), 1.4
	}
	p, err := NewPlanner(h200())
	require.NoError(t, err)
	for _, c := range cases {
		r := decoding(16, c.lengths...)
		plan, err := p.Plan(r)
		require.NoError(t, err)
		require.NoError(t, plan.Check(r))
		class := &plan.Classes[0]
		t.Logf("%-20s %4d items %4d states, busiest CTA %.3f of the mean", c.name, class.Items, class.Partials,
			class.Balance())
		require.LessOrEqual(t, class.Balance(), c.within, c.name)
	}
}

// tokens is how many cached tokens the busiest and the average CTA read in a step.
func tokens(plan *Plan, step int) (most int, mean float64) {
	sum := 0
	for cta := range plan.Limits.CTAs {
		n := 0
		for i := range plan.Classes[0].Count(cta) {
			it := DecodeItem(plan.Classes[0].Words(cta, i))
			cached := it.Cached + it.Grow*step
			from, to := it.Chunks(ceilDiv(cached, plan.Limits.ChunkTokens))
			n += min(to*plan.Limits.ChunkTokens, cached) - min(from*plan.Limits.ChunkTokens, cached)
		}
		most, sum = max(most, n), sum+n
	}
	return most, float64(sum) / float64(plan.Limits.CTAs)
}

// Pieces of random costs, dealt out by groups of equal CTAs, give the busiest CTA what
// one after another to the least loaded CTA gives it; and where that is no less than
// what is enough, that is all that is said.
func TestTheSpreadIsThatOfTheLongestFirst(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		l := h200()
		l.CTAs = 1 + rng.IntN(140)
		p, err := NewPlanner(l)
		require.NoError(t, err)
		p.order, p.pieces, p.tiles, p.units = nil, nil, nil, nil
		loads := make([]int, l.CTAs)
		for i := range rng.IntN(60) {
			p.units = append(p.units, unit{heads: 1 + rng.IntN(12)})
			p.tiles = append(p.tiles, tile{unit: i})
			p.pieces = append(p.pieces, piece{tile: i, cost: 1 + rng.IntN(1+rng.IntN(300))})
			p.order = append(p.order, uint64(i))
		}
		slices.SortFunc(p.order, func(a, b uint64) int { return p.pieces[b].cost - p.pieces[a].cost })
		for i := range p.order {
			for range p.units[p.longest(i).tile].heads {
				least := slices.Index(loads, slices.Min(loads))
				loads[least] += p.longest(i).cost
			}
		}
		want := slices.Max(loads)
		require.Equal(t, want, p.spread(math.MaxInt))
		require.Equal(t, want, p.spread(want+1))
		require.Equal(t, want, p.spread(want))
		require.Equal(t, want/2, p.spread(want/2))
	}
}

func TestALaunchStaysBalancedWhileSequencesGrow(t *testing.T) {
	p, err := NewPlanner(h200())
	require.NoError(t, err)
	for _, length := range []int{1024, 4096, 32768} {
		r := decoding(16, length+255)
		r.Sequences[0].Cached, r.Steps = length-1, 256
		plan, err := p.Plan(r)
		require.NoError(t, err)
		require.NoError(t, plan.Check(r))
		for step := range r.Steps {
			most, mean := tokens(plan, step)
			require.LessOrEqual(t, float64(most), 1.04*mean+2*32, "length %d, step %d", length, step)
		}
	}
}

// planCase is a request whose planning is timed, and how long it may take.
type planCase struct {
	name string
	l    Limits
	r    Request
	most time.Duration
}

// planCases are batches of 16, for which 50 µs are claimed, and what costs more: a page
// table is copied and its pages compared with the cache's, so pages of one token and large
// selections take time by the entry.
func planCases() []planCase {
	token, selects := h200(), h200()
	token.PageSize, selects.Selection = 1, true
	const claimed = 50 * time.Microsecond
	return []planCase{
		{"constant", h200(), decoding(16, constant(16, 1024)...), claimed},
		{"uniform", h200(), decoding(16, uniform(1)...), claimed},
		{"zipf", h200(), decoding(16, zipf()...), claimed},
		{"shared-8192", h200(), sharing(16, 16, 512, 8), claimed},
		{"one-131072", h200(), decoding(16, 131072), claimed},
		{"page-1-16x1024", token, decoding(1, constant(16, 1024)...), claimed},
		{"page-1-32768", token, decoding(1, 32768), 2 * claimed},
		{"select-512", selects, selecting(1), 2 * claimed},
		{"select-16x512", selects, selecting(16), 10 * claimed},
	}
}

// selecting is n sequences of 32768 tokens each of whose 8 heads selects every fourth page.
func selecting(n int) (r Request) {
	r.Classes = []Class{{Select: true}}
	for i := range n {
		s := decoding(16, 32768).Sequences[0]
		for h := range 8 {
			var list []int
			for page := (h + i) % 4; page < s.Cached/16; page += 4 {
				list = append(list, page)
			}
			s.Select = append(s.Select, list)
		}
		r.Sequences = append(r.Sequences, s)
	}
	return r
}

// The best of many, since the machine has other work, and of more where that is too slow.
func TestPlanningIsFast(t *testing.T) {
	if testing.Short() {
		t.Skip("times, with -short: that is for builds that look for races")
	}
	for _, c := range planCases() {
		p, err := NewPlanner(c.l)
		require.NoError(t, err)
		best := time.Hour
		for begin, n := time.Now(), 0; n < 100 || best > c.most && time.Since(begin) < 5*time.Second; n++ {
			start := time.Now()
			_, err = p.Plan(c.r)
			require.NoError(t, err)
			best = min(best, time.Since(start))
		}
		t.Logf("%-16s %v", c.name, best)
		require.LessOrEqual(t, best, c.most, c.name)
	}
}

func TestPlanningDoesNotAllocate(t *testing.T) {
	l := h200()
	l.Selection = true
	p, err := NewPlanner(l)
	require.NoError(t, err)
	r := sharing(16, 16, 64, 5)
	r.Classes = []Class{{}, {Window: 256, Sinks: 4}, {Select: true}}
	r.Sequences[3].Select = make([][]int, 8)
	require.Zero(t, testing.AllocsPerRun(20, func() {
		_, err = p.Plan(r)
		require.NoError(t, err)
	}))
}

func BenchmarkPlan(b *testing.B) {
	token := h200()
	token.PageSize = 1
	for _, c := range append(planCases(), planCase{name: "shared-8192-by-token", l: token, r: sharing(1, 16, 8192, 128)}) {
		b.Run(c.name, func(b *testing.B) {
			p, err := NewPlanner(c.l)
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Plan(c.r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	p, err := NewPlanner(h200())
	require.NoError(b, err)
	plan, err := p.Plan(decoding(16, zipf()...))
	require.NoError(b, err)
	dst := make([]uint32, plan.Limits.WorkWords(1))
	for b.Loop() {
		plan.EncodeWork(dst)
	}
}
