package verify

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
)

// measured is what one schedule's run is seen to have exercised.
type measured struct {
	launches     int
	instructions int64
	ops          map[ir.Op]bool
	ran          []int64 // how often each instruction
	turns        int     // of the ring in one launch, by the CTA with the fewest
	copied       int64   // bytes through the ring, all launches
	splits       int     // parts of the cache that held something, in the last launch
	layers       int     // of whose cache something changed
	pages        int     // of one layer in which a new token was stored, the fewest of all layers
	stray        int     // pages that changed and are not the sequence's
	barrier      uint32
	free         int      // different tokens that steps of one launch chose, each fed to the next
	mayGiveUp    bool     // the kernel's waits can be given up
	stopped      bool     // a stop token ended a launch early, and the one after it was right
	gaveUp       bool     // a launch was, and the one after it was right
	uneven       []string // matrices of which some SMs have more tiles, by the plan table in device memory
}

// launch adds one launch.
func (m *measured) launch(t *Trial, r *interp.Result) {
	if m.instructions == 0 {
		m.turns = math.MaxInt
	}
	m.instructions += r.Steps
	m.count(r)
	for _, c := range r.CTAs {
		m.copied += c.Bytes
		for _, b := range c.MBarrier {
			if b.Buf == pipeline.RegionFull && b.Index == t.mk.Plan.Stages-1 {
				m.turns = min(m.turns, b.Phases)
			}
		}
	}
}

// count adds what a launch has executed; nil is of one that did not end.
func (m *measured) count(r *interp.Result) {
	m.launches++
	if r == nil {
		return
	}
	if m.ran == nil {
		m.ran, m.ops = make([]int64, len(r.Ran)), map[ir.Op]bool{}
	}
	for op := range r.Ops {
		m.ops[op] = true
	}
	for i, n := range r.Ran {
		m.ran[i] += n
	}
}

// memory adds what the device's memory shows at the end.
func (m *measured) memory(x *session, before []byte) error {
	words := func(name string) ([]uint32, error) {
		raw, err := x.all(name)
		out := make([]uint32, len(raw)/4)
		for i := range out {
			out[i] = binary.LittleEndian.Uint32(raw[4*i:])
		}
		return out, err
	}
	states, err := x.all(megakernel.BufferStates)
	if err != nil {
		return err
	}
	c := &x.t.mk.Config
	if _, unsplit := x.t.mk.UnsplitIn(x.t.context + x.t.steps - 1); unsplit {
		m.splits = 1 // the last step wrote no states
	} else {
		m.countSplits(attention.StateLSE(states, c.HeadDim), c.Heads)
	}
	counter, err := words("barrier")
	if err != nil {
		return err
	}
	m.barrier = counter[0]
	plan, err := words("plan")
	if err != nil {
		return err
	}
	m.findUneven(plan, x.t.mk)
	after, err := x.all("kv")
	if err != nil {
		return err
	}
	m.countPages(x, before, after)
	return nil
}

// countSplits counts the splits with a finite log-sum-exp for every head.
func (m *measured) countSplits(lse []float32, heads int) {
	for s := range len(lse) / heads {
		full := true
		for _, x := range lse[s*heads : (s+1)*heads] {
			full = full && !math.IsInf(float64(x), 0)
		}
		if full {
			m.splits++
		}
	}
}

// findUneven compares the SMs' tile counts of each matrix.
func (m *measured) findUneven(plan []uint32, mk *megakernel.Kernel) {
	row := len(plan) / mk.Options.SMs
	names := make([]string, 0, len(mk.Plan.Layer)+1)
	for _, p := range append(append([]pipeline.MatrixPlan{}, mk.Plan.Layer...), mk.Plan.Final...) {
		names = append(names, p.Name)
	}
	for i, name := range names {
		for sm := range mk.Options.SMs {
			if plan[sm*row+2*i+1] != plan[2*i+1] {
				m.uneven = append(m.uneven, name)
				break
			}
		}
	}
}

// countPages looks for pages that the run changed.
func (m *measured) countPages(x *session, before, after []byte) {
	n := x.t.mk.KV.PageBytes()
	mine := map[int]bool{}
	for _, p := range x.table {
		mine[int(p)] = true
	}
	for l := range x.t.mk.Config.Layers {
		pages := 0
		for p := range x.pages {
			at := (l*x.pages + p) * n
			switch changed := !bytes.Equal(before[at:at+n], after[at:at+n]); {
			case changed && mine[p]:
				pages++
			case changed:
				m.stray++
			}
		}
		if pages > 0 {
			m.layers++
		}
		if l == 0 || pages < m.pages {
			m.pages = pages
		}
	}
}

// conditions says what the runs exercised, the least of all runs that ended.
func (t *Trial) conditions(runs []*Run, real *megakernel.Kernel) []Condition {
	least := func(of func(*measured) int) int {
		n := math.MaxInt
		for _, r := range runs {
			n = min(n, of(&r.ran))
		}
		return n
	}
	atLeast := func(name string, have, want int, unit string) Condition {
		return Condition{name, fmt.Sprintf("%d %s", have, unit), fmt.Sprintf("at least %d", want), have >= want}
	}
	exactly := func(name string, of func(*measured) int64, want int64, unit string) Condition {
		have := want
		for _, r := range runs {
			if n := of(&r.ran); n != want {
				have = n
			}
		}
		return Condition{name, fmt.Sprintf("%d %s", have, unit), fmt.Sprint(want), have == want}
	}
	counter := runs[0].ran.barrier
	cs := []Condition{
		atLeast("layers that stored KV", least(func(m *measured) int { return m.layers }), min(2, real.Config.Layers),
			"layers"),
		because(atLeast("the ring went round", least(func(m *measured) int { return m.turns }), t.wish.turns,
			"times a launch"), t.wish.turnsWhy),
		because(atLeast("matrices shared unevenly", least(func(m *measured) int { return len(m.uneven) }), t.wish.uneven,
			"matrices"), t.wish.unevenWhy),
		atLeast("KV splits with tokens", least(func(m *measured) int { return m.splits }),
			min(2, real.Options.Splits, t.splits()), "splits"),
		shuffled(runs),
		atLeast("KV pages that got new tokens", least(func(m *measured) int { return m.pages }), 2, "pages a layer"),
		exactly("bytes through the ring", func(m *measured) int64 { return m.copied }, t.Bytes(), "bytes"),
		t.arrived(runs),
		{"barrier counter passed 2^32", fmt.Sprintf("from %d to %d", t.epoch, counter), "a smaller one at the end",
			counter < t.epoch},
		t.freeRuns(runs),
		givenUps(runs),
		t.covered(runs, real),
		t.stopTokens(runs),
		t.repeatable(runs),
	}
	return cs
}

// arrived are the arrivals at the grid barrier: as many as steps have, and for each draw at most as many more as it
// takes.
func (t *Trial) arrived(runs []*Run) Condition {
	mk, c := t.mk, Condition{Name: "grid barrier arrivals", Met: true}
	least := int64(mk.Barriers() * mk.Options.SMs * t.steps)
	most := least + int64(mk.DrawBarriers()*mk.Options.SMs*(t.steps-1)) // the first does not draw
	for _, r := range runs {
		n := int64(r.ran.barrier - t.epoch)
		if c.Met {
			c.Have = fmt.Sprintf("%d arrivals", n)
		}
		c.Met = c.Met && n >= least && n <= most && n%int64(mk.Options.SMs) == 0
	}
	if c.Want = fmt.Sprint(least); most > least {
		c.Want = fmt.Sprintf("%d to %d", least, most)
	}
	return c
}

// freeRuns says how many different tokens steps of one launch have chosen and read back, the most of
// all runs: with one token alone a step that read back a stale one would go unseen.
func (t *Trial) freeRuns(runs []*Run) Condition {
	n := 0
	for _, r := range runs {
		n = max(n, r.ran.free)
	}
	return because(Condition{"tokens read back in one launch", fmt.Sprintf("%d different of %d", n, freeSteps),
		fmt.Sprintf("at least %d", t.wish.tokens), n >= t.wish.tokens}, t.wish.tokensWhy)
}

// stopTokens counts the launches that a stop token ended early. Of a kernel whose sums differ from
// run to run there are none: another sum may choose another token.
func (t *Trial) stopTokens(runs []*Run) Condition {
	if !t.mk.Options.Repeatable() {
		return Condition{"launches ended by a stop token", "none", "none where runs differ", true}
	}
	n := 0
	for _, r := range runs {
		if r.ran.stopped {
			n++
		}
	}
	return Condition{"launches ended by a stop token", fmt.Sprintf("%d ended early, and the next was right", n),
		fmt.Sprintf("at least %d", len(runs)), n == len(runs)}
}

// givenUps counts the launches that were given up and left.
func givenUps(runs []*Run) Condition {
	n, of := 0, 0
	for _, r := range runs {
		if r.ran.mayGiveUp {
			of++
		}
		if r.ran.gaveUp {
			n++
		}
	}
	c := Condition{Name: "launches given up midway", Have: fmt.Sprintf("%d left, and the next was right", n),
		Want: "at least 1", Met: n > 0}
	if of == 0 {
		c.Have, c.Want, c.Met = "none", "none without a watchdog", true
	}
	return c
}

// because adds to what is wanted why it is not more, if that is said.
func because(c Condition, why string) Condition {
	if why != "" {
		c.Want += ", " + why
	}
	return c
}

// covered compares the kinds of instructions of the real kernel with those the
// runs executed.
func (t *Trial) covered(runs []*Run, real *megakernel.Kernel) Condition {
	kinds, missed := map[ir.Op]bool{}, ""
	real.IR.Instrs(func(in *ir.Instr) {
		if !kinds[in.Op] && !runs[0].ran.ops[in.Op] {
			missed += " " + in.Op.String()
		}
		kinds[in.Op] = true
	})
	have, want := "all", fmt.Sprintf("all %d of the real kernel", len(kinds))
	if missed != "" {
		have = "all but" + missed
	}
	if tags := " " + ir.OpWaitTag.String(); missed == tags && real.Options.SMs == 1 {
		missed, want = "", want+" but"+tags+": one SM finds its own words at once"
	}
	return Condition{"kinds of instructions executed", have, want, missed == ""}
}

// shuffled says in how many orders the runs used the pages of the cache.
func shuffled(runs []*Run) Condition {
	c := Condition{Name: "order of the KV pages", Want: "never ascending", Met: true}
	var orders [][]uint32
	for _, r := range runs {
		c.Met = c.Met && (len(r.table) < 2 || !slices.IsSorted(r.table))
		if !slices.ContainsFunc(orders, func(o []uint32) bool { return slices.Equal(o, r.table) }) {
			orders = append(orders, r.table)
		}
	}
	c.Have = fmt.Sprintf("%d pages in %d orders", len(runs[0].table), len(orders))
	return c
}

// repeatable is identical of a kernel that is to compute the same bits in every run; of
// another every run is held against the reference.
func (t *Trial) repeatable(runs []*Run) Condition {
	c := identical(runs)
	if !t.mk.Options.Repeatable() {
		c.Want, c.Met = "values only: sums are added in any order", true
	}
	return c
}

// identical compares what the schedules left in memory.
func identical(runs []*Run) Condition {
	c := Condition{Name: "outputs under all schedules", Have: "bit-identical", Want: "bit-identical", Met: true}
	for _, r := range runs[1:] {
		if where := r.Differs(runs[0]); where != "" {
			c.Have, c.Met = fmt.Sprintf("seeds %d and %d differ in %s", runs[0].seed, r.seed, where), false
			return c
		}
	}
	return c
}

// Differs names the first difference between two runs' outputs, bit by bit; ""
// for none. A run that a finding ended differs from one that came to its end.
func (r *Run) Differs(o *Run) string {
	if len(r.outputs) != len(o.outputs) {
		return "whether it ended"
	}
	for i, b := range r.outputs {
		if b != o.outputs[i] {
			return "buffer " + b.name
		}
	}
	for i := range r.logits {
		for j, x := range r.logits[i] {
			if math.Float32bits(x) != math.Float32bits(o.logits[i][j]) {
				return fmt.Sprintf("logit %d of step %d", j, i)
			}
		}
	}
	for l := range r.fresh {
		for i, kv := range r.fresh[l] {
			if !sameBits(kv.k, o.fresh[l][i].k) || !sameBits(kv.v, o.fresh[l][i].v) {
				return fmt.Sprintf("the keys and values of step %d in layer %d", i, l)
			}
		}
	}
	return ""
}

func sameBits(a, b []float64) bool {
	for i := range a {
		if math.Float64bits(a[i]) != math.Float64bits(b[i]) {
			return false
		}
	}
	return true
}
