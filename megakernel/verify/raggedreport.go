package verify

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
)

// sights is what the launches of a run are seen to have been.
type sights struct {
	steps    int         // in all
	rows     map[int]int // launches by their rows
	lengths  map[int]int // sequences by what they had in the cache when they were first fed
	growth   int         // most steps of a launch
	prefixes int         // units that several sequences read
	merged   int         // partial states
	direct   int         // items that were all of their rows' work
	most     int         // items of an SM
	trees    int
	selected int // sequences that selected pages
}

// launch adds a launch that has run.
func (s *sights) launch(of shape, p *kv.Plan) {
	if s.rows == nil {
		s.rows, s.lengths = map[int]int{}, map[int]int{}
	}
	s.rows[p.RowCount]++
	s.steps += of.steps
	s.growth = max(s.growth, of.steps)
	s.prefixes += p.Prefixes
	for _, part := range of.parts {
		if part.new > 0 && !part.fed {
			s.lengths[part.ref.Len()]++
		}
		if part.parents != nil {
			s.trees++
		}
		if part.new > 0 && part.lists != nil {
			s.selected++
		}
	}
	for i := range p.Classes {
		c := &p.Classes[i]
		s.merged += c.Partials
		for cta := range p.Limits.CTAs {
			s.most = max(s.most, c.Count(cta))
			for j := range c.Count(cta) {
				if kv.DecodeItem(c.Words(cta, j)).Direct {
					s.direct++
				}
			}
		}
	}
}

// counters reads what the kernel counted.
func (x *scene) counters() error {
	for _, b := range []struct {
		name string
		use  func(words []uint32)
	}{{"barrier", func(w []uint32) { x.run.ran.barrier = w[0] }},
		{"plan", func(w []uint32) { x.run.ran.findUneven(w, x.t.mk) }}} {
		raw := make([]byte, x.sim.Size(b.name))
		if err := x.sim.Read(b.name, 0, raw); err != nil {
			return err
		}
		words := make([]uint32, len(raw)/4)
		for i := range words {
			words[i] = binary.LittleEndian.Uint32(raw[4*i:])
		}
		b.use(words)
	}
	return nil
}

// raggedConditions says what the runs exercised, all of them together but for what
// each must.
func (t *raggedTrial) raggedConditions(runs []*raggedRun, real *megakernel.Kernel) []Condition {
	mk, of := t.mk, runs[:len(runs)-1]
	atLeast := func(name string, want int, unit string, count func(*raggedRun) int, join func(a, b int) int) Condition {
		have := count(of[0])
		for _, r := range of[1:] {
			have = join(have, count(r))
		}
		return Condition{name, fmt.Sprintf("%d %s", have, unit), fmt.Sprintf("at least %d", want), have >= want}
	}
	least, most, sum := func(a, b int) int { return min(a, b) }, func(a, b int) int { return max(a, b) },
		func(a, b int) int { return a + b }
	cs := []Condition{
		because(atLeast("the ring went round", t.wish.turns, "times a launch", func(r *raggedRun) int { return r.ran.turns },
			least), t.wish.turnsWhy),
		because(atLeast("matrices shared unevenly", t.wish.uneven, "matrices",
			func(r *raggedRun) int { return len(r.ran.uneven) }, least), t.wish.unevenWhy),
		t.lengths(of),
		atLeast("query rows of a step", mk.Options.Tokens, "at most", func(r *raggedRun) int { return maxKey(r.seen.rows) },
			least),
		atLeast("steps of a launch", 2, "at most", func(r *raggedRun) int { return r.seen.growth }, least),
		atLeast("draft trees", 1, "trees", func(r *raggedRun) int { return r.seen.trees }, least),
		atLeast("partial states", 1, "merged", func(r *raggedRun) int { return r.seen.merged }, most),
	}
	if t.pin == 0 {
		cs = append(cs, atLeast("items with a whole row's work", 1, "items", func(r *raggedRun) int { return r.seen.direct },
			most))
	}
	if slices.ContainsFunc(mk.Classes(), func(c kv.Class) bool { return c.Window == 0 }) && t.pin == 0 &&
		!mk.Options.Selection {
		cs = append(cs, atLeast("prefixes read once for several sequences", 1, "prefixes",
			func(r *raggedRun) int { return r.seen.prefixes }, sum))
	}
	if mk.Options.Selection {
		cs = append(cs, atLeast("sequences that selected pages", 1, "sequences",
			func(r *raggedRun) int { return r.seen.selected }, sum))
	}
	whole := &Trial{mk: mk}
	var all []*Run
	for _, r := range of {
		all = append(all, &Run{ran: r.ran})
	}
	return append(cs, t.stopTokens(all), givenUps(all), t.arrivals(of), whole.covered([]*Run{{ran: allOps(of)}}, real),
		again(runs))
}

func maxKey(m map[int]int) (most int) {
	for k := range m {
		most = max(most, k)
	}
	return most
}

// lengths are those at which pages begin and end.
func (t *raggedTrial) lengths(runs []*raggedRun) Condition {
	page := t.mk.KV.Page
	want := slices.Compact([]int{0, 1, max(page-1, 0), page, page + 1})
	slices.Sort(want)
	want = slices.Compact(want)
	c := Condition{Name: "tokens in the cache", Want: fmt.Sprint(want), Met: true}
	var have []int
	for _, n := range want {
		met := slices.ContainsFunc(runs, func(r *raggedRun) bool { return r.seen.lengths[n] > 0 })
		if met {
			have = append(have, n)
		}
		c.Met = c.Met && met
	}
	c.Have = fmt.Sprint(have)
	return c
}

// arrivals are those at the grid barrier, over which its counter must pass 2³²: as many
// as steps have, or fewer where partial states needed no phase of their own, and more where tokens were drawn.
func (t *raggedTrial) arrivals(runs []*raggedRun) Condition {
	c := Condition{Name: "grid barrier arrivals", Want: "as steps have, past 2^32", Met: true}
	for _, r := range runs {
		n, sms := int64(r.ran.barrier-t.epoch), t.mk.Options.SMs
		want := int64(t.mk.Barriers() * sms * r.seen.steps)
		fewer := want - int64(t.mk.Config.Layers*sms*r.seen.steps)
		c.Have = fmt.Sprintf("%d", n)
		if n > want+int64(t.mk.DrawBarriers()*sms*r.seen.steps) || n < fewer || n%int64(sms) != 0 ||
			r.ran.barrier >= t.epoch {
			c.Have, c.Met = fmt.Sprintf("%d of %d", n, want), false
			return c
		}
	}
	return c
}

// allOps is what some run executed.
func allOps(runs []*raggedRun) measured {
	all := measured{turns: math.MaxInt}
	for _, r := range runs {
		for op := range r.ran.ops {
			if all.ops == nil {
				all.ops = r.ran.ops
			}
			all.ops[op] = true
		}
	}
	return all
}

// again compares the first scenario with itself under another schedule.
func again(runs []*raggedRun) Condition {
	c := Condition{Name: "outputs under two schedules", Have: "bit-identical", Want: "bit-identical", Met: true}
	if where := sameRows(runs[0], runs[len(runs)-1]); where != "" {
		c.Have, c.Met = "they differ in "+where, false
	}
	return c
}
