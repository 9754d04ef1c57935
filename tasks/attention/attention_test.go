package attention_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/stretchr/testify/require"
)

// attend is one attention over a paged cache, with its merge.
type attend struct {
	kvHeads, group, d, page int
	cached, splits          int
	perStage                int // tokens a stage; 0: 16
	sms, consumers          int
	scale                   float64 // of queries and keys; 0: 1
	kv                      attention.KVType
	meet                    string // who merges: "" all, behind a barrier, or "words", all that have one
	unsplit                 attention.Unsplit
	bias                    float64 // planted in the merge
}

func (c attend) String() string {
	return fmt.Sprintf("%d x %d heads of %d, page %d, %d cached, %d splits, %d a stage, %d SMs, %d warps%s",
		c.kvHeads, c.group, c.d, c.page, c.cached, c.splits, c.perStage, c.sms, c.consumers,
		map[bool]string{true: ", e4m3"}[c.kv == attention.KVE4M3]+
			map[bool]string{true: ", merged by " + c.meet}[c.meet != ""]+
			map[bool]string{true: fmt.Sprintf(", unsplit %v", c.unsplit)}[c.unsplit.Tokens > 0])
}

func (c attend) withDefaults() attend {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.kvHeads, 1)
	def(&c.group, 2)
	def(&c.d, 32)
	def(&c.page, 8)
	def(&c.splits, 1)
	def(&c.perStage, 16)
	def(&c.sms, 2)
	def(&c.consumers, 2)
	if c.scale == 0 {
		c.scale = 1
	}
	return c
}

// meetings are the values of attend.meet.
var meetings = []string{"", "words"}

// scene is the cache and the query of one attend.
type scene struct {
	attend
	q            []half.BF16 // in order of the dimensions
	keys, values [][]float64 // [cached+1][kvHeads·d]
	cache        []byte
	scales       []float32 // of e4m3, [layer][kvHeads][K, V]
	table        []uint32
	pages        int
}

// put writes an element to the cache and returns what it counts.
func (s *scene) put(layer, page, head, slot, v, d int, x float64) float64 {
	l := s.layout()
	return putElement(l, s.cache, s.scales, l.Index(s.pages, layer, page, head, slot, v, d), layer, head, v, x)
}

// newScene fills the cache of layer 1 of 3: pages in shuffled order, NaN in
// every slot no token was written to, and in all of the other layers.
func newScene(c attend) *scene {
	rng := rig.Rand(uint64(c.cached*c.d + c.group))
	s := &scene{attend: c, q: rig.Normals(rng, c.kvHeads*c.group*c.d, c.scale*math.Log2E/math.Sqrt(float64(c.d)))}
	used := c.cached/c.page + 1
	s.pages = used + 2
	for _, p := range rng.Perm(s.pages)[:used] {
		s.table = append(s.table, uint32(p))
	}
	l := s.layout()
	s.scales = scales(l)
	s.cache = bytes.Repeat([]byte{0xff}, l.Layers*s.pages*l.PageBytes())
	for tok := range c.cached + 1 {
		k, v := rig.Wide(rig.Normals(rng, c.kvHeads*c.d, c.scale)), rig.Wide(rig.Normals(rng, c.kvHeads*c.d, 1))
		for i := range k {
			page, slot := int(s.table[tok/c.page]), tok%c.page
			k[i] = s.put(1, page, i/c.d, slot, 0, i%c.d, k[i])
			v[i] = s.put(1, page, i/c.d, slot, 1, i%c.d, v[i])
		}
		s.keys, s.values = append(s.keys, k), append(s.values, v)
	}
	return s
}

func (s *scene) layout() attention.KVLayout {
	return attention.KVLayout{Layers: 3, Heads: s.kvHeads, D: s.d, Page: s.page, Type: s.kv}
}

// rig is the kernel: attention, a grid barrier, merge.
func (s *scene) rig(t testing.TB) *rig.Rig {
	return s.rigOf(t, func(*rig.Rig) *attention.Variant { return nil })
}

// rigOf is rig of a variant.
func (s *scene) rigOf(t testing.TB, declare func(r *rig.Rig) *attention.Variant) *rig.Rig {
	l, heads := s.layout(), s.kvHeads*s.group
	r := rig.New(t, rig.KVSetup(s.sms, s.consumers, l, s.perStage, s.cached+s.group+s.splits))
	v := declare(r)
	att := &attention.Attention{Heads: heads, KV: l, Splits: s.splits, PerStage: s.perStage, Variant: v,
		Q: rig.In[dsl.BF16](r, "q", rig.BF16Bytes(inKeyOrder(l, s.q)), len(s.q)),
		States: rig.InOut[dsl.B128](r, "states", make([]byte, 16*s.splits*attention.StatePackets(heads, s.d)),
			s.splits*attention.StatePackets(heads, s.d))}
	att.Scratch = dsl.Shared[dsl.F32](r.K, "attention_scratch", att.ScratchLen(s.consumers), dsl.Align(16))
	att.Tail = dsl.Shared[dsl.B128](r.K, "tail", l.TokenUnits())
	merge := &attention.Merge{Heads: heads, D: s.d, Splits: s.splits, States: att.States,
		Out: rig.Out[dsl.BF16](r, "attn", heads*s.d), Variant: v, LastBias: s.bias}
	if s.meet == "words" {
		att.Merge, att.LL, att.Unsplit = merge, &grid.LL{}, s.unsplit
	}
	cached, pages := r.Scalar("cached", uint32(s.cached)), r.Scalar("pages", uint32(s.pages))
	step := attention.Step{Pos: cached, Cached: cached, Pages: pages, Layer: r.K.U32(1),
		Table: rig.In[dsl.U32](r, "table", rig.U32Bytes(s.table...), len(s.table)),
		Cache: rig.In[dsl.B128](r, "kv", s.cache, 0)}
	if s.scales != nil {
		step.Scales = rig.In[dsl.F32](r, "kv_scales", rig.F32Bytes(s.scales), len(s.scales))
	}
	counter := rig.InOut[dsl.U32](r, "barrier", rig.U32Bytes(0), 1)
	layers := func(body func()) { // counters must be as they were for the next layer, and words be other ones
		r.K.For(r.K.U32(0), r.K.U32(map[bool]int{true: 2, false: 1}[s.meet != ""]), func(dsl.Val[dsl.U32]) { body() },
			dsl.Unroll(1))
	}
	r.Body(func(c *pipeline.Consumer) {
		bar := grid.NewGridBarrier(r.Env, counter, r.K.U32(0))
		if s.meet == "words" {
			att.LL.Flag = bar.Flag
		}
		layers(func() {
			att.Consume(r.Env, c, r.Ring, step)
			bar.Sync()
		})
		if s.meet == "" {
			merge.EmitIn(r.Env, step)
		}
	}, func(p *pipeline.Producer) { layers(func() { att.Produce(r.Env, p, step) }) })
	return r
}

// states is the states over tokens from … to−1, and the weighted mean of
// |v|, to which errors of the weights are proportional.
func (s *scene) states(from, to int) (states []reference.State, size [][]float64) {
	heads := s.kvHeads * s.group
	q := rig.Wide(s.q)
	for i := range q { // the reference scales by 1/√D and works in base e
		q[i] *= math.Sqrt(float64(s.d)) / math.Log2E
	}
	var abs [][]float64
	for _, v := range s.values[from:to] {
		abs = append(abs, rig.Scaled(v, 1, 0))
	}
	states = reference.Attention(q, s.keys[from:to], s.values[from:to], heads, s.kvHeads)
	for _, st := range reference.Attention(q, s.keys[from:to], abs, heads, s.kvHeads) {
		size = append(size, st.Out)
	}
	return states, size
}

// check compares partial states and merged output. Weights are rounded to bf16
// for the second product (2⁻⁸ each, of either sign, while their sum is not), so
// the output is within 2⁻⁸ of the weighted mean of |v|, or to f16, within 2⁻¹¹,
// where the cache is e4m3; the log-sum-exp only sees f32. The merged output is
// rounded to bf16 once more.
func (s *scene) check(t testing.TB, got map[string][]byte) {
	weights := 0x1p-8
	if s.kv == attention.KVE4M3 {
		weights = 0x1p-11
	}
	heads := s.kvHeads * s.group
	part, lse := statesOf(got["states"], s.d)
	chunks := (s.cached + s.perStage - 1) / s.perStage
	split := s.splits
	if s.meet == "words" && s.cached <= s.unsplit.Tokens && s.unsplit.Tokens > 0 {
		split = 0
		require.Zero(t, slices.Max(append(got["states"], 0)), "a state was written")
	}
	for sp := range split {
		from := sp * chunks / s.splits * s.perStage
		to := min((sp+1)*chunks/s.splits*s.perStage, s.cached)
		if sp == s.splits-1 {
			to = s.cached + 1
		}
		states, size := s.states(from, max(from, to))
		for h, want := range states {
			at := sp*heads + h
			rig.Near(t, want.Out, part[at*s.d:(at+1)*s.d], rig.Scaled(size[h], weights, 1e-6),
				"split %d (tokens %d to %d), head %d", sp,
				from, to-1, h)
			if math.IsInf(want.LSE, -1) {
				require.Equal(t, want.LSE, lse[at], "split %d, head %d", sp, h)
			} else {
				require.InDelta(t, want.LSE*math.Log2E, lse[at], 1e-5*(1+math.Abs(want.LSE)), "split %d, head %d", sp, h)
			}
		}
	}
	states, size := s.states(0, s.cached+1)
	merged := rig.Wide(rig.BF16s(got["attn"]))
	for h, want := range states {
		rig.Near(t, want.Out, merged[h*s.d:(h+1)*s.d], rig.Scaled(size[h], weights+0x1p-8, 1e-6), "merged head %d", h)
	}
}

func attendCases() []attend {
	cs := []attend{}
	for _, n := range []int{0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100} { // page 8, blocks of 16, stages of 32
		cs = append(cs, attend{cached: n, perStage: 32, splits: 2})
	}
	for _, g := range []int{1, 2, 3, 4, 7, 8, 9, 16, 17, 32, 35, 71} {
		cs = append(cs, attend{cached: 37, group: g, kvHeads: 2, splits: 2})
	}
	for _, d := range []int{16, 32, 48, 64, 80, 96, 112, 128, 256} {
		cs = append(cs, attend{cached: 21, d: d, group: 3}, attend{cached: 40, d: d, group: 9, splits: 2, page: 4})
	}
	for _, p := range []int{1, 2, 4, 8, 16, 32, 64, 128} {
		cs = append(cs, attend{cached: 45, page: p, splits: 2}, attend{cached: 150, page: p, perStage: 64})
	}
	for _, sp := range []int{1, 2, 3, 5} {
		cs = append(cs, attend{cached: 70, splits: sp}, attend{cached: 20, splits: sp, sms: 1}, attend{cached: 0, splits: sp})
	}
	for _, w := range []int{1, 2, 3, 4, 8} {
		cs = append(cs, attend{cached: 90, consumers: w, perStage: 64, page: 16})
	}
	return append(cs,
		attend{cached: 33, kvHeads: 5, splits: 3, sms: 2},                      // 15 items on 2 CTAs
		attend{cached: 33, kvHeads: 1, splits: 2, sms: 5},                      // CTAs without an item
		attend{cached: 70, page: 1, perStage: 64},                              // more pages a stage than lanes
		attend{cached: 60, scale: 4}, attend{cached: 60, scale: 30, splits: 3}, // a peaked softmax; one token takes all
		attend{cached: 60, scale: 0.01})
}

func TestAttention(t *testing.T) {
	for i, c := range attendCases() {
		for _, kv := range attention.KVTypes() {
			if !deep.On() && i%3 != 0 {
				continue
			}
			c := c.withDefaults()
			c.kv, c.meet = kv, meetings[i%len(meetings)]
			t.Run(c.String(), func(t *testing.T) {
				s := newScene(c)
				s.check(t, s.rig(t).Run())
			})
		}
	}
}

// Wherever states meet they are merged in the same order, a few at once.
func TestStatesAreMergedInOneOrder(t *testing.T) {
	for _, splits := range []int{2, 24, 25, 62} {
		t.Run(fmt.Sprint(splits), func(t *testing.T) {
			var want []byte
			for _, meet := range meetings {
				s := newScene(attend{cached: 16 * 70, group: 4, splits: splits, sms: 3, scale: 2, meet: meet}.withDefaults())
				got := s.rig(t).Run()
				s.check(t, got)
				if want == nil {
					want = got["attn"]
				}
				require.Equal(t, want, got["attn"], "merged by %s", meet)
			}
		})
	}
}

// Shapes drawn at random, over what the template accepts.
func TestAttentionOfRandomShapes(t *testing.T) {
	rng := rig.Rand(2026)
	cases := 40
	if !deep.On() {
		cases = 8
	}
	for range cases {
		c := attend{kvHeads: 1 + rng.IntN(3), group: 1 + rng.IntN(16), d: 16 * (1 + rng.IntN(8)), page: 1 << rng.IntN(8),
			cached: rng.IntN(140), splits: 1 + rng.IntN(6), perStage: 16 << rng.IntN(3), sms: 1 + rng.IntN(4),
			consumers: 1 + rng.IntN(5), scale: []float64{0.3, 1, 3}[rng.IntN(3)], kv: attention.KVTypes()[rng.IntN(2)],
			meet: meetings[rng.IntN(len(meetings))]}
		t.Run(c.String(), func(t *testing.T) {
			s := newScene(c)
			s.check(t, s.rig(t).Run())
		})
	}
}

// NaN in what a head attends to makes that head's output NaN, whatever block,
// warp and split it lies in, and no other head's.
func TestAttentionPassesNaNOn(t *testing.T) {
	for _, kv := range attention.KVTypes() {
		c := attend{kvHeads: 2, group: 3, cached: 70, splits: 3, kv: kv}.withDefaults()
		for _, tok := range []int{0, 15, 16, 33, 69, 70} { // 70 is the query's own
			for v := range 2 {
				s := newScene(c)
				s.put(1, int(s.table[tok/c.page]), 1, tok%c.page, v, 5, math.NaN())
				for i, x := range rig.Wide(rig.BF16s(s.rig(t).Run()["attn"])) {
					head, dim := i/c.d, i%c.d
					require.Equal(t, head >= 3 && (v == 0 || dim == 5), math.IsNaN(x), "NaN in token %d, %d: element %d of head %d",
						tok, v, dim, head)
				}
			}
		}
	}
}

// Dropping or swapping what attention reads must show: the tolerance is no
// blanket over faults.
func TestAttentionToleranceShowsASwappedPageAndALostToken(t *testing.T) {
	for _, kv := range attention.KVTypes() {
		c := attend{cached: 45, splits: 2, scale: 2, kv: kv}.withDefaults()
		for what, spoil := range map[string]func(r *rig.Rig, s *scene){
			"two pages swapped": func(r *rig.Rig, s *scene) {
				s.table[0], s.table[3] = s.table[3], s.table[0]
				r.Data["table"] = rig.U32Bytes(s.table...)
			},
			"the newest cached token lost": func(r *rig.Rig, s *scene) { r.Params["cached"] = 44 },
		} {
			s := newScene(c)
			r := s.rig(t)
			spoil(r, s)
			got := r.Run()
			probe := &probe{TB: t}
			func() {
				defer func() { _ = recover() }()
				s.check(probe, got)
			}()
			require.True(t, probe.failed, "%s passes", what)
		}
	}
}

// probe is a testing.TB that notes a failure instead of failing.
type probe struct {
	testing.TB
	failed bool
}

func (p *probe) Helper()               {}
func (p *probe) Errorf(string, ...any) { p.failed = true }
func (p *probe) FailNow()              { p.failed = true; panic("probe") }
