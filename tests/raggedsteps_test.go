package tests

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/stretchr/testify/require"
)

// raggedCase is launches of a ragged kernel over sequences that have tokens in the
// cache, to be compared with float64.
type raggedCase struct {
	rows, sms, consumers, stage int
	page, group, kvHeads        int
	seqs                        []raggedSequence
	steps, pin                  int
	single                      bool // launches of one step each
}

// raggedSequence has n cached tokens, of which it shares some, whole pages,
// with the sequence before, and new ones.
type raggedSequence struct{ cached, new, shared int }

func (c raggedCase) String() string {
	return fmt.Sprintf("%d rows %v, %d steps (single %v), pin %d, %d SMs of %d warps, stages of %d, pages of %d, %d x %d heads",
		c.rows, c.seqs, c.steps, c.single, c.pin, c.sms, c.consumers, c.stage, c.page, c.kvHeads, c.group)
}

func (c raggedCase) complete() raggedCase {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	n := 0
	for _, s := range c.seqs {
		n += s.new
	}
	def(&c.rows, max(2, n))
	def(&c.sms, 4)
	def(&c.consumers, 2)
	def(&c.stage, 1024)
	def(&c.page, 4)
	def(&c.group, 2)
	def(&c.kvHeads, 1)
	def(&c.steps, 1)
	return c
}

// raggedWorld is a case's memory and what float64 makes of it.
type raggedWorld struct {
	c      raggedCase
	mk     *megakernel.Kernel
	models []*reference.Model
	pages  [][]uint32 // of each sequence
	tokens [][]int    // its new ones
	total  int        // pages of the cache
	cache  [][][]byte // [sequence][token] of all layers and heads
}

func newRaggedWorld(t *testing.T, c raggedCase) *raggedWorld {
	t.Helper()
	w := &raggedWorld{c: c, mk: raggedShape(t, c.group*c.kvHeads, c.kvHeads, 48, 64,
		megakernel.Options{SMs: c.sms, Tokens: c.rows, Page: c.page, Consumers: c.consumers, StageBytes: c.stage})}
	rng := rand.New(rand.NewPCG(uint64(c.rows*c.page), uint64(len(c.seqs))))
	shape := w.mk.Config
	w.total = 2
	for _, s := range c.seqs {
		w.total += (s.cached+s.new+c.steps)/c.page + 1
	}
	free := rng.Perm(w.total - 1)
	var before [][2][]float64 // of the sequence before: [token·layers + layer] key and value
	for i, s := range c.seqs {
		m, err := reference.NewModel(shape, reference.Synthetic(shape, 1), reference.AsKernel(shape))
		require.NoError(t, err)
		var kvs [][2][]float64
		for tok := range s.cached {
			for l := range shape.Layers {
				pair := [2][]float64{bf16Normals(rng, shape.KVHeads*shape.HeadDim, 1.85),
					bf16Normals(rng, shape.KVHeads*shape.HeadDim, 1)}
				if tok < s.shared {
					pair = before[tok*shape.Layers+l]
				}
				kvs = append(kvs, pair)
				m.Append(l, slices.Clone(pair[0]), slices.Clone(pair[1]))
			}
		}
		var pages []uint32
		if s.shared > 0 {
			pages = append(pages, w.pages[i-1][:s.shared/c.page]...)
		}
		for len(pages)*c.page < s.cached+s.new+c.steps-1 {
			pages, free = append(pages, uint32(free[0])), free[1:]
		}
		var tokens []int
		for range s.new {
			tokens = append(tokens, rng.IntN(w.mk.Config.Vocab))
		}
		w.models, w.pages, w.tokens, before = append(w.models, m), append(w.pages, pages), append(w.tokens, tokens), kvs
		w.cache = append(w.cache, w.raw(kvs))
	}
	return w
}

func bf16Normals(rng *rand.Rand, n int, sd float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = reference.RoundBF16(sd * rng.NormFloat64())
	}
	return out
}

// raw is each token of each layer and head as it lies in a slot.
func (w *raggedWorld) raw(kvs [][2][]float64) (out [][]byte) {
	l := w.mk.KV
	for i, pair := range kvs {
		slot := i / l.Layers % l.Page
		bytes := make([]byte, l.Heads*l.TokenBytes())
		for h := range l.Heads {
			base := l.Index(1, 0, 0, 0, slot, 0, 0) / (2 * l.D) * 2 * l.D
			for v := range pair {
				for d := range l.D {
					at := l.Index(1, 0, 0, 0, slot, v, d) - base
					reference.ToBF16(pair[v][h*l.D+d]).Put(bytes[h*l.TokenBytes()+2*at:])
				}
			}
		}
		out = append(out, bytes)
	}
	return out
}

// open is a session under a schedule, with the cached tokens and no others in the
// cache.
func (w *raggedWorld) open(t *testing.T, seed uint64) (*runtime.Session, *runtime.Sim) {
	t.Helper()
	sim, err := runtime.NewSim(w.mk.IR, seed)
	require.NoError(t, err)
	s, err := runtime.Open(t.Context(), w.mk, sim, syntheticWeights(w.mk),
		runtime.Options{Pages: w.total, Steps: w.c.steps, Pin: w.c.pin, Costs: smallCosts, Guard: uint32(w.total - 1)})
	require.NoError(t, err)
	l := w.mk.KV
	for i, tokens := range w.cache {
		for n, bytes := range tokens {
			layer, tok := n%l.Layers, n/l.Layers
			for h := range l.Heads {
				at := l.Index(w.total, layer, int(w.pages[i][tok/l.Page]), h, tok%l.Page, 0, 0) / (2 * l.D) * l.TokenBytes()
				require.NoError(t, sim.Write("kv", int64(at), bytes[h*l.TokenBytes():][:l.TokenBytes()]))
			}
		}
	}
	return s, sim
}

// plan is the work of the case's first launch.
func (w *raggedWorld) plan(t *testing.T) *kv.Plan {
	t.Helper()
	limits := w.mk.Limits(w.total)
	limits.Costs = smallCosts
	planner, err := kv.NewPlanner(limits)
	require.NoError(t, err)
	q := kv.Request{Steps: w.c.steps, PinTokens: w.c.pin, Classes: w.mk.Classes()}
	for i, s := range w.c.seqs {
		q.Sequences = append(q.Sequences, kv.Sequence{Pages: w.pages[i], Cached: s.cached, New: s.new, Grow: w.c.steps > 1})
	}
	p, err := planner.Plan(q)
	require.NoError(t, err)
	return p
}

// launched is what a run of a case gave.
type launched struct {
	chosen [][]int     // [step][sequence]
	logits [][]float64 // of each row, after the last step
}

// run runs all steps, in one launch or one each.
func (w *raggedWorld) run(t *testing.T, seed uint64) *launched {
	t.Helper()
	s, sim := w.open(t, seed)
	out := &launched{}
	feed := func(steps, done int) {
		var seqs []batch.Sequence
		for i, q := range w.c.seqs {
			x := batch.Sequence{New: w.tokens[i], Cached: q.cached, Pages: w.pages[i]}
			if done > 0 {
				x.New, x.Cached = []int{out.chosen[done-1][i]}, q.cached+q.new+done-1
			}
			seqs = append(seqs, x)
		}
		chosen, err := s.Run(t.Context(), batch.StepRequest{Sequences: seqs, Steps: steps})
		require.NoError(t, err, "%s, seed %d", w.c, seed)
		require.Len(t, chosen, steps)
		out.chosen = append(out.chosen, chosen...)
	}
	if w.c.single {
		for i := range w.c.steps {
			feed(1, i)
		}
	} else {
		feed(w.c.steps, 0)
	}
	rows := 0
	for _, q := range w.c.seqs {
		rows += q.new
	}
	raw := make([]byte, 4*rows*w.mk.Config.Vocab)
	require.NoError(t, sim.Read("logits", 0, raw))
	for r := range rows {
		row := make([]float64, w.mk.Config.Vocab)
		for i := range row {
			row[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*(r*len(row)+i):])))
		}
		out.logits = append(out.logits, row)
	}
	return out
}

// check compares a run with float64, which is fed the tokens that the kernel chose.
// In a launch of several steps every sequence has one row. worst is the largest
// difference of a logit, relative to their root mean square.
func (w *raggedWorld) check(t *testing.T, got *launched) (worst float64) {
	t.Helper()
	row := 0
	close := func(want, have []float64, where string) {
		requireClose(t, want, have, raggedTolerance, where)
		for i, x := range want {
			worst = max(worst, math.Abs(x-have[i])/rms(want))
		}
	}
	for i, m := range w.models {
		var want []float64
		for j, token := range w.tokens[i] {
			want = m.Step(token)
			if w.c.steps == 1 {
				close(want, got.logits[row], fmt.Sprintf("%s, sequence %d, token %d", w.c, i, j))
			}
			row++
		}
		for step := range w.c.steps {
			where := fmt.Sprintf("%s, sequence %d, step %d", w.c, i, step)
			requireNearBest(t, want, got.chosen[step][i], where)
			if step == w.c.steps-1 {
				close(want, got.logits[row-1], where)
			} else {
				want = m.Step(got.chosen[step][i])
			}
		}
	}
	return worst
}

// rms is the root mean square.
func rms(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x * x
	}
	return math.Sqrt(sum / float64(len(xs)))
}

// raggedTolerance is that of logits: the shape is smaller than tiny's.
const raggedTolerance = referenceTolerance

// requireNearBest wants a chosen token whose logit is the best within the tolerance.
func requireNearBest(t *testing.T, want []float64, token int, where string) {
	t.Helper()
	require.GreaterOrEqual(t, want[token], slices.Max(want)-2*raggedTolerance*rms(want), where)
}

// compare runs a case under schedules and compares all with float64, and each other
// bit for bit.
func (c raggedCase) compare(t *testing.T, seeds ...uint64) {
	t.Helper()
	w := newRaggedWorld(t, c.complete())
	var first *launched
	for _, seed := range seeds {
		got := w.run(t, seed)
		if first == nil {
			first = got
			w.check(t, got)
		}
		require.Equal(t, first, got, "%s: seeds %d and %d", c, seeds[0], seed)
	}
}

// lengths are about a page.
func lengths(page int) []int { return []int{0, 1, page - 1, page, page + 1} }

func TestRaggedStepsOfAllNumbersOfRows(t *testing.T) {
	deep.Only(t)
	for rows := 2; rows <= 16; rows++ {
		one := raggedCase{seqs: []raggedSequence{{cached: 37, new: rows}}, group: 3}
		one.compare(t, uint64(rows), 100)
		each := raggedCase{kvHeads: 2}
		for i := range rows {
			each.seqs = append(each.seqs, raggedSequence{cached: lengths(4)[i%5] + i/5*20, new: 1})
		}
		each.compare(t, uint64(rows))
	}
}

func TestRaggedStepsOfAllPageSizes(t *testing.T) {
	for _, page := range []int{1, 8, 16, 32, 64, 128} {
		c := raggedCase{page: page, rows: 10}
		for _, n := range lengths(page) {
			c.seqs = append(c.seqs, raggedSequence{cached: n, new: 1})
		}
		c.seqs[2].new = 5 // a chunk of a prompt beside tokens
		c.compare(t, 1, 2, 3)
	}
}

func TestRaggedStepsOfOddGroups(t *testing.T) {
	deep.Only(t)
	for _, group := range []int{1, 3, 5, 17} {
		for _, consumers := range []int{1, 3, 8} {
			raggedCase{group: group, consumers: consumers, sms: 3,
				seqs: []raggedSequence{{cached: 50, new: 9}, {cached: 20, new: 1}, {new: 4}}}.compare(t, 1)
		}
	}
}

// Four CTAs with many more items than CTAs.
func TestRaggedStepsOfMoreItemsThanSMs(t *testing.T) {
	c := raggedCase{kvHeads: 2, rows: 16}
	for i := range 16 {
		c.seqs = append(c.seqs, raggedSequence{cached: 11 * i % 67, new: 1})
	}
	c.compare(t, 1, 2)
	require.Greater(t, newRaggedWorld(t, c.complete()).plan(t).Classes[0].Items, 4*4)
	c.pin = 16
	c.compare(t, 3)
}

// Prefixes that several sequences have, on two levels.
func TestRaggedStepsOfSharedPrefixes(t *testing.T) {
	c := raggedCase{sms: 3, consumers: 3, group: 3, rows: 10, seqs: []raggedSequence{
		{cached: 130, new: 1}, {cached: 121, new: 2, shared: 96}, {cached: 99, new: 1, shared: 96},
		{cached: 70, new: 1, shared: 48}, {cached: 48, new: 3, shared: 48}, {cached: 7, new: 1}}}
	require.GreaterOrEqual(t, newRaggedWorld(t, c.complete()).plan(t).Prefixes, 2)
	c.compare(t, 1, 2, 3)
	c.page = 16
	c.compare(t, 4)
	for i, s := range c.seqs {
		c.seqs[i].new = min(s.new, 1)
	}
	c.steps = 3
	c.compare(t, 5)
}

// Sequences that grow over the steps of a launch, past pages and chunks, are what a
// launch for each step makes of them: to the bit where both cut their KV alike.
func TestRaggedStepsInOneLaunchAreThoseOfManyLaunches(t *testing.T) {
	c := raggedCase{sms: 3, kvHeads: 2, rows: 5, steps: 9,
		seqs: []raggedSequence{{cached: 28, new: 1}, {new: 1}, {cached: 43, new: 1}, {cached: 3, new: 1},
			{cached: 12, new: 1}}}
	for _, c.pin = range []int{16, 0} {
		c.single = false
		w := newRaggedWorld(t, c.complete())
		together := w.run(t, 1)
		w.check(t, together)
		w.c.single = true
		apart := w.run(t, 2)
		if c.pin != 0 {
			require.Equal(t, together, apart)
		} else {
			require.Equal(t, together.chosen, apart.chosen)
			for i := range apart.logits {
				requireClose(t, apart.logits[i], together.logits[i], raggedTolerance, fmt.Sprint(c))
			}
		}
	}
}
