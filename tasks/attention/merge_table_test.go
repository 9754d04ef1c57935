package attention_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/stretchr/testify/require"
)

// tabled is a merge of partial states by a table: counts has for every query row
// and KV head how many there are.
type tabled struct {
	tokens, kvHeads, group, d int
	sms, consumers            int
	counts                    []int
	part, lse                 []float32
	variant                   *attention.Variant
	bias                      float64
}

func (m *tabled) indptr() []uint32 {
	p := []uint32{0}
	for _, n := range m.counts {
		p = append(p, p[len(p)-1]+uint32(n))
	}
	return p
}

// fill draws the states.
func (m *tabled) fill(seed uint64) *tabled {
	rng, n := rig.Rand(seed), int(m.indptr()[len(m.counts)])
	m.part, m.lse = rig.Floats(rng, n*m.group*m.d, 1), rig.Floats(rng, n*m.group, 6)
	return m
}

// empty makes a state of a head neutral.
func (m *tabled) empty(state, head int) {
	at := state*m.group + head
	m.lse[at] = float32(math.Inf(-1))
	clear(m.part[at*m.d : (at+1)*m.d])
}

// run is the merged output [row][head·D]; what has no state keeps 7.
func (m *tabled) run(t testing.TB) []float64 {
	r := rig.New(t, rig.Setup{SMs: max(m.sms, 1), Consumers: max(m.consumers, 1)})
	width := m.kvHeads * m.group * m.d
	old := make([]half.BF16, m.tokens*width)
	for i := range old {
		old[i] = rig.ToBF16(7)
	}
	p := m.indptr()
	merge := &attention.Merge{Heads: m.kvHeads * m.group, D: m.d, States: statesIn(r, m.d, m.part, m.lse),
		LastBias: m.bias,
		Variant:  m.variant, Table: &attention.MergeTable{Tokens: m.tokens, KVHeads: m.kvHeads,
			Indptr: rig.In[dsl.U32](r, "indptr", rig.U32Bytes(p...), len(p)),
			Final:  attention.RowMajor(rig.InOut[dsl.BF16](r, "out", rig.BF16Bytes(old), len(old)), width)}}
	any := rig.Out[dsl.U32](r, "any", max(m.sms, 1))
	r.Body(func(*pipeline.Consumer) {
		merge.Emit(r.Env)
		r.K.If(r.Env.Tid.EqC(0), func() { any.Store(r.Env.CTA, dsl.Select(merge.Table.Any(r.Env), r.K.U32(1), r.K.U32(0))) })
	}, nil)
	got := r.Run()
	for _, x := range rig.U32s(got["any"]) {
		require.Equal(t, p[len(p)-1] > 0, x == 1)
	}
	return rig.Wide(rig.BF16s(got["out"]))
}

// want is the float64 merge of a row's head.
func (m *tabled) want(row, head int) []float64 {
	p, at := m.indptr(), row*m.kvHeads+head/m.group
	if m.counts[at] == 0 {
		return rig.Scaled(make([]float64, m.d), 0, 7)
	}
	var states []reference.State
	for i := p[at]; i < p[at+1]; i++ {
		x := int(i)*m.group + head%m.group
		states = append(states, reference.State{Out: rig.Wide32(m.part[x*m.d : (x+1)*m.d]),
			LSE: float64(m.lse[x]) / math.Log2E})
	}
	return reference.MergeStates(m.d, states...).Out
}

func (m *tabled) check(t testing.TB) {
	got := m.run(t)
	for i := range m.tokens * m.kvHeads * m.group {
		want := m.want(i/(m.kvHeads*m.group), i%(m.kvHeads*m.group))
		rig.Near(t, want, got[i*m.d:(i+1)*m.d], rig.Scaled(want, 0x1.01p-8, 1e-5), "row and head %d", i)
	}
}

func TestMergeByTable(t *testing.T) {
	for _, m := range []*tabled{
		{tokens: 1, kvHeads: 1, group: 1, d: 16, counts: []int{1}},
		{tokens: 1, kvHeads: 1, group: 3, d: 16, counts: []int{0}},
		{tokens: 2, kvHeads: 2, group: 3, d: 48, counts: []int{1, 0, 7, 8}, sms: 2, consumers: 3},
		{tokens: 3, kvHeads: 1, group: 4, d: 32, counts: []int{9, 16, 17}, sms: 3},
		{tokens: 16, kvHeads: 1, group: 1, d: 32, counts: []int{0, 1, 2, 3, 0, 0, 7, 8, 9, 0, 11, 1, 1, 1, 40, 2}, sms: 4,
			consumers: 2},
		{tokens: 2, kvHeads: 1, group: 17, d: 128, counts: []int{2, 3}, consumers: 8},
	} {
		t.Run(fmt.Sprint(m.counts, m.group, m.d), func(t *testing.T) { m.fill(uint64(m.d)).check(t) })
	}
}

// A state of log-sum-exp −inf is neutral, wherever it stands: the same bits as
// without it in so far as the others keep their places among eight; and all of
// them empty is 0.
func TestMergeByTableOfEmptyStates(t *testing.T) {
	m := (&tabled{tokens: 1, kvHeads: 1, group: 2, d: 32, counts: []int{20}}).fill(3)
	for _, state := range []int{0, 3, 7, 8, 12, 19} {
		m.empty(state, 0)
		m.check(t)
	}
	for state := range 20 {
		m.empty(state, 1)
	}
	m.check(t)
	require.Equal(t, make([]float64, 32), m.run(t)[32:])
	for state := range 12 { // the first eight all empty
		m.empty(state, 0)
	}
	m.check(t)
}

// However the states are grouped, merged in two levels or in one, the result is
// the same but for rounding: ⊕ is associative; and permuted, commutative.
func TestMergeByTableIsAssociativeAndCommutative(t *testing.T) {
	const n, d = 12, 32
	all := (&tabled{tokens: 1, kvHeads: 1, group: 1, d: d, counts: []int{n}}).fill(9)
	whole := all.run(t)
	var states []reference.State
	for i := range n {
		states = append(states, reference.State{Out: rig.Wide32(all.part[i*d : (i+1)*d]),
			LSE: float64(all.lse[i]) / math.Log2E})
	}
	for _, cut := range []int{1, 5, 8, 11} {
		two := &tabled{tokens: 1, kvHeads: 1, group: 1, d: d, counts: []int{2}}
		for _, s := range []reference.State{reference.MergeStates(d, states[:cut]...),
			reference.MergeStates(d, states[cut:]...)} {
			for _, x := range s.Out {
				two.part = append(two.part, float32(x))
			}
			two.lse = append(two.lse, float32(s.LSE*math.Log2E))
		}
		rig.Near(t, whole, two.run(t), rig.Scaled(whole, 0x1p-7, 1e-5), "cut at %d", cut)
	}
	for range 4 {
		mixed := &tabled{tokens: 1, kvHeads: 1, group: 1, d: d, counts: []int{n}}
		for _, i := range rig.Rand(uint64(n)).Perm(n) {
			mixed.part, mixed.lse = append(mixed.part, all.part[i*d:(i+1)*d]...), append(mixed.lse, all.lse[i])
		}
		rig.Near(t, whole, mixed.run(t), rig.Scaled(whole, 0x1p-7, 1e-5), "")
	}
}

// The planted fault of the last state's weight is planted here, too.
func TestMergeByTableWithABiasOnTheLastState(t *testing.T) {
	m := (&tabled{tokens: 2, kvHeads: 1, group: 2, d: 16, counts: []int{3, 9}}).fill(5)
	m.bias = 1
	got := m.run(t)
	m.bias = 0
	p := m.indptr()
	for _, last := range []uint32{p[1] - 1, p[2] - 1} {
		for h := range 2 {
			m.lse[int(last)*2+h]++
		}
	}
	require.Equal(t, m.run(t), got)
}

// States of attention without softmax are added.
func TestMergeByTableOfSums(t *testing.T) {
	m := (&tabled{tokens: 1, kvHeads: 2, group: 1, d: 16, counts: []int{11, 2}, variant: attention.Sigmoid(0)}).fill(6)
	got := m.run(t)
	for i, x := range got {
		first, n := 0, 11
		if i >= m.d {
			first, n = 11, 2
		}
		want, size := 0.0, 0.0
		for s := first; s < first+n; s++ {
			v := float64(m.part[s*m.d+i%m.d])
			want, size = want+v, size+math.Abs(v)
		}
		require.InDelta(t, want, x, math.Abs(want)*0x1p-8+size*1e-6)
	}
}
