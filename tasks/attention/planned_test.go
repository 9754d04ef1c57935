package attention_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/stretchr/testify/require"
)

// launch is a request of package kv, its plan, and the memory a kernel runs it on.
type launch struct {
	limits  kv.Limits
	request kv.Request
	plan    *kv.Plan
	d       int
	warps   int
	window  [2]int // of the one class: window and sinks

	layout attention.KVLayout
	cache  []half.BF16
	q      []half.BF16
	rows   [][2]int // of every query row: sequence, and which of its new tokens
}

func (l *launch) steps() int { return max(l.request.Steps, 1) }

// newLaunch fills the slots of tokens that are in the cache, or new, in some step.
func newLaunch(t testing.TB, l launch) *launch {
	if l.window[0] > 0 {
		l.request.Classes = []kv.Class{{Window: l.window[0], Sinks: l.window[1]}}
	}
	if l.limits.Selection {
		l.request.Classes = []kv.Class{{Select: true}}
	}
	planner, err := kv.NewPlanner(l.limits)
	require.NoError(t, err)
	l.plan, err = planner.Plan(l.request)
	require.NoError(t, err)
	require.NoError(t, l.plan.Check(l.request))
	l.layout = attention.KVLayout{Layers: 1, Heads: l.limits.KVHeads, D: l.d, Page: l.limits.PageSize}
	rng := rig.Rand(uint64(len(l.request.Sequences)))
	l.cache = make([]half.BF16, l.limits.Pages*l.layout.PageBytes()/2)
	for i := range l.cache {
		l.cache[i] = nanBF16
	}
	for n, s := range l.request.Sequences {
		for i := range s.Cached + l.growth(s, l.steps()-1) + s.New {
			for h := range l.limits.KVHeads {
				for v := range 2 {
					for dim := range l.d {
						if x := &l.cache[l.at(s, i, h, v, dim)]; *x == nanBF16 {
							*x = rig.Normals(rng, 1, 1)[0]
						}
					}
				}
			}
		}
		for j := range s.New {
			l.rows = append(l.rows, [2]int{n, j})
		}
	}
	l.q = rig.Normals(rng, l.limits.Rows*l.limits.KVHeads*l.limits.Group*l.d, math.Log2E/math.Sqrt(float64(l.d)))
	return &l
}

func (l *launch) growth(s kv.Sequence, step int) int {
	if s.Grow {
		return step
	}
	return 0
}

func (l *launch) at(s kv.Sequence, i, head, v, dim int) int {
	page := l.limits.PageSize
	return l.layout.Index(l.limits.Pages, 0, int(s.Pages[i/page]), head, i%page, v, dim)
}

// run runs all steps in one launch and returns the output of each.
func (l *launch) run(t testing.TB, v *attention.Variant) [][]float64 {
	lim, layout := l.limits, l.layout
	heads := lim.KVHeads * lim.Group
	r := rig.New(t, rig.KVSetup(lim.CTAs, l.warps, layout, lim.ChunkTokens, 1))
	items, merges := make([]uint32, lim.WorkWords(1)), make([]uint32, lim.MergeWords(1))
	l.plan.EncodeWork(items)
	l.plan.EncodeMerge(merges)
	buffer := rig.In[dsl.U32](r, "attn_plan", rig.U32Bytes(items...), len(items))
	work := &attention.Work{Classes: 1, PerCTA: lim.ItemsPerCTA,
		Items: dsl.Shared[dsl.U32](r.K, "items", attention.WorkWords(1, lim.ItemsPerCTA), dsl.Align(16)),
		Rows:  rig.In[dsl.U32](r, "rows", rig.U32Bytes(l.plan.Rows...), len(l.plan.Rows))}
	r.Work = work
	work.Fresh = pipeline.NewLanding(r.K, "fresh", nil)
	if lim.Selection {
		work.Selection, work.Positions = true, rig.In[dsl.U32](r, "positions", rig.U32Bytes(l.plan.Positions...), 0)
	}
	width := heads * l.d
	attn := rig.Out[dsl.BF16](r, "attn", l.steps()*lim.Rows*width)
	q := rig.In[dsl.BF16](r, "q", rig.BF16Bytes(l.q), len(l.q))
	words := lim.Partials * attention.StatePackets(lim.Group, l.d)
	states := rig.InOut[dsl.B128](r, "states", make([]byte, 16*words), words)
	indptr := rig.In[dsl.U32](r, "attn_merge", rig.U32Bytes(merges...), len(merges))
	att := &attention.Attention{Heads: heads, KV: layout, PerStage: lim.ChunkTokens, Tokens: lim.Rows, Work: work,
		Variant: v,
		Q:       q, States: states}
	att.Scratch = dsl.Shared[dsl.F32](r.K, "attention_scratch", att.ScratchLen(l.warps), dsl.Align(16))
	att.Final = attention.RowMajor(attn, width)
	step := attention.Step{Pos: r.K.U32(0), Cached: r.K.U32(0), Pages: r.K.U32(lim.Pages), Layer: r.K.U32(0),
		Table: rig.In[dsl.U32](r, "table", rig.U32Bytes(l.plan.Entries...), 0),
		Cache: rig.In[dsl.B128](r, "kv", rig.BF16Bytes(l.cache), 0)}
	counter := rig.InOut[dsl.U32](r, "barrier", rig.U32Bytes(0), 1)
	r.Prologue = func() { work.Fetch(r.Env, buffer) }
	steps := r.Scalar("steps", uint32(l.steps()))
	each := func(body func(s attention.Step)) {
		r.K.For(r.K.U32(0), steps, func(i dsl.Val[dsl.U32]) {
			s := step
			s.Index = i
			body(s)
		}, dsl.Unroll(1))
	}
	r.Body(func(c *pipeline.Consumer) {
		bar := grid.NewGridBarrier(r.Env, counter, r.K.U32(0))
		att.LL = &grid.LL{Flag: bar.Flag}
		each(func(s attention.Step) {
			final := attention.RowMajor(attn, width)
			att.Final = func(row, i dsl.Val[dsl.U32], lo, hi dsl.Val[dsl.F32]) {
				final(row.Add(s.Index.MulC(lim.Rows)), i, lo, hi)
			}
			att.Merge = &attention.Merge{Heads: heads, D: l.d, States: states, Variant: v,
				Table: &attention.MergeTable{Tokens: lim.Rows, KVHeads: lim.KVHeads, Indptr: indptr, Work: work, Final: att.Final}}
			att.Consume(r.Env, c, r.Ring, s)
			bar.Sync()
			r.K.If(att.Phase(), func() {
				att.Merge.EmitIn(r.Env, s)
				bar.Sync()
			})
		})
	}, func(p *pipeline.Producer) { each(func(s attention.Step) { att.Produce(r.Env, p, s) }) })
	flat := rig.Wide(rig.BF16s(r.Run()["attn"]))
	var got [][]float64
	for i := range l.steps() {
		got = append(got, flat[i*lim.Rows*width:(i+1)*lim.Rows*width])
	}
	return got
}

// ancestors of new token j, itself among them, and its depth.
func ancestors(s kv.Sequence, j int) (seen []int, depth int) {
	if s.Parents == nil {
		for i := range j + 1 {
			seen = append(seen, i)
		}
		return seen, j
	}
	for at := j; at >= 0; at = s.Parents[at] {
		seen = append(seen, at)
	}
	return seen, len(seen) - 1
}

// check compares every step's output of every row with float64.
func (l *launch) check(t testing.TB, v *attention.Variant, got [][]float64) {
	width := l.limits.KVHeads * l.limits.Group * l.d
	for step := range l.steps() {
		for row, r := range l.rows {
			for head := range l.limits.KVHeads * l.limits.Group {
				want, size := l.want(v, step, row, l.request.Sequences[r[0]], r[1], head)
				at := row*width + head*l.d
				rig.Near(t, want, got[step][at:at+l.d], rig.Scaled(size, 0x1p-7, 1e-6), "step %d, row %d %v, head %d", step, row, r,
					head)
			}
		}
	}
}

func (l *launch) want(v *attention.Variant, step, row int, s kv.Sequence, j, head int) (out, size []float64) {
	d, h := l.d, head/l.limits.Group
	cached := s.Cached + l.growth(s, step)
	seen, depth := ancestors(s, j)
	q := rig.Wide(l.q[(row*l.limits.KVHeads*l.limits.Group+head)*d:][:d])
	for i := range q {
		q[i] /= math.Log2E / math.Sqrt(float64(d))
	}
	var at []attention.Place
	var keys, values, abs [][]float64
	add := func(i, position int) {
		vec := func(v int) []float64 {
			var x []half.BF16
			for dim := range d {
				x = append(x, l.cache[l.at(s, i, h, v, dim)])
			}
			return rig.Wide(x)
		}
		at = append(at, attention.Place{Head: h, Index: i, Position: position})
		keys, values = append(keys, vec(0)), append(values, vec(1))
		abs = append(abs, rig.Scaled(values[len(values)-1], 1, 0))
	}
	for i := range cached {
		if page := i / l.limits.PageSize; s.Select == nil || page >= s.Cached/l.limits.PageSize ||
			slices.Contains(s.Select[h], page) {
			add(i, i)
		}
	}
	for _, i := range seen {
		_, deep := ancestors(s, i)
		add(cached+i, cached+deep)
	}
	place := attention.Place{Head: head, Row: row, Position: cached + depth, First: cached}
	out, _ = v.Attend(place, q, at, keys, values)
	size, _ = v.Attend(place, q, at, keys, abs)
	return out, size
}

// randomLaunch is a batch of sequences, some of which share pages, a draft tree
// or a launch of several steps.
func randomLaunch(rng *rand.Rand) launch {
	page, kvHeads := 1<<rng.IntN(6), 1+rng.IntN(3)
	l := launch{d: 16 << rng.IntN(3), warps: []int{1, 2, 4, 7, 8}[rng.IntN(5)]}
	l.limits = kv.Limits{CTAs: 1 + rng.IntN(5), KVHeads: kvHeads, Group: []int{1, 2, 3, 4, 8, 17}[rng.IntN(6)],
		Rows: 1 + rng.IntN(kv.MaxRows), PageSize: page, ChunkTokens: 16 << rng.IntN(2), ItemsPerCTA: 64, Partials: 256,
		Pages: 800, Selection: rng.IntN(4) == 0}
	if l.limits.KVHeads*l.limits.Group*l.d%32 != 0 {
		l.d = 32
	}
	if !l.limits.Selection && rng.IntN(3) == 0 {
		l.window = [2]int{1 + rng.IntN(60), rng.IntN(2) * rng.IntN(40)}
	}
	if rng.IntN(3) == 0 {
		l.request.Steps = 1 + rng.IntN(5)
	}
	free := rng.Perm(l.limits.Pages)
	var shared []uint32
	for range 1 + rng.IntN(5) {
		shared, free = append(shared, uint32(free[0])), free[1:]
	}
	for left := l.limits.Rows; left > 0; {
		s := kv.Sequence{New: 1 + rng.IntN(min(left, 1+rng.IntN(8))), Cached: rng.IntN(90)}
		if l.request.Steps > 1 {
			s.New, s.Grow = 1, true
		}
		if rng.IntN(2) == 0 && s.Cached >= page { // a prefix of whole pages
			n := min(len(shared), s.Cached/page)
			s.Pages = append(s.Pages, shared[:1+rng.IntN(n)]...)
		}
		for len(s.Pages)*page < s.Cached+s.New+l.request.Steps {
			s.Pages, free = append(s.Pages, uint32(free[0])), free[1:]
		}
		if rng.IntN(3) == 0 && s.New > 1 {
			for i := range s.New {
				s.Parents = append(s.Parents, rng.IntN(i+1)-1)
			}
		}
		if l.limits.Selection && rng.IntN(3) > 0 {
			for range kvHeads {
				var pick []int
				for p := range s.Cached / page {
					if rng.IntN(2) == 0 {
						pick = append(pick, p)
					}
				}
				s.Select = append(s.Select, pick)
			}
		}
		left -= s.New
		l.request.Sequences = append(l.request.Sequences, s)
		if rng.IntN(5) == 0 {
			break
		}
	}
	return l
}

func TestAttentionOfPlannedBatches(t *testing.T) {
	rng := rig.Rand(11)
	cases := 60
	if !deep.On() {
		cases = 8
	}
	for i := range cases {
		l := newLaunch(t, randomLaunch(rng))
		var v *attention.Variant
		if l.window[0] > 0 {
			v = attention.SlidingWindow(l.window[0], l.window[1])
		}
		t.Run(fmt.Sprintf("%d: %d sequences, %d steps, window %v, %+v", i, len(l.request.Sequences), l.steps(), l.window,
			l.limits), func(t *testing.T) {
			l.check(t, v, l.run(t, v))
		})
	}
}
