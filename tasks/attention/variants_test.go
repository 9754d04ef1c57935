package attention_test

import (
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/stretchr/testify/require"
)

// flavour declares a variant in a rig for a model of heads query heads of d.
type flavour struct {
	name     string
	declare  func(r *rig.Rig, heads, d int) *attention.Variant
	rounding float64 // of transformed queries and keys: see batch.check
	unshared bool    // items may not mix sequences
	plain    bool    // also as what the kernel of one sequence is built with
}

func must(t testing.TB, v *attention.Variant, err error) *attention.Variant {
	require.NoError(t, err)
	return v
}

// maskBit is the custom mask of the tests: about two of three keys, the first
// among them for even rows only, and none at all for row 5.
func maskBit(row, index int) bool {
	if row == 5 {
		return false
	}
	return index == 0 && row%2 == 0 || index != 0 && (index*7+row*3)%3 != 0
}

func maskTable() []uint32 {
	words := make([]uint32, 3+17*maskWords)
	for row := range 17 {
		for i := range 32 * maskWords {
			if maskBit(row, i) {
				words[3+row*maskWords+i/32] |= 1 << (i % 32)
			}
		}
	}
	return words
}

func frequencies(d int) []float32 {
	var out []float32
	for i := range d / 2 {
		out = append(out, float32(math.Pow(10000, -2*float64(i)/float64(d))))
	}
	return out
}

func headScales(heads int) []float32 {
	var out []float32
	for h := range heads {
		out = append(out, float32(toBF16Float(0.5+0.25*float64(h%5))))
	}
	return out
}

func toBF16Float(x float64) float64 { return rig.FromBF16(rig.ToBF16(x)) }

func fixed(v *attention.Variant) func(*rig.Rig, int, int) *attention.Variant {
	return func(*rig.Rig, int, int) *attention.Variant { return v }
}

// doubled changes values and outputs: no paper's, but a hook's each.
func doubled() *attention.Variant {
	return &attention.Variant{Name: "doubled",
		Value: func(k *attention.Key, dim dsl.Val[dsl.U32], v dsl.Val[dsl.F32]) dsl.Val[dsl.F32] {
			return v.Mul(dsl.Cast[dsl.F32](k.Position.AndC(1).Add(dim.AndC(3)).AddC(1)))
		},
		Output: func(q *attention.Query, dim dsl.Val[dsl.U32], v dsl.Val[dsl.F32]) dsl.Val[dsl.F32] {
			return v.Mul(dsl.Cast[dsl.F32](q.Head.Add(q.Position).Add(dim).AndC(3)))
		},
		Means: attention.Meaning{
			Value: func(k attention.Place, x []float64) {
				for i := range x {
					x[i] *= float64(k.Position&1 + i&3 + 1)
				}
			},
			Output: func(q attention.Place, x []float64) {
				for i := range x {
					x[i] *= float64((q.Head + q.Position + i) & 3)
				}
			}}}
}

func flavours(t testing.TB) []flavour {
	streaming := func(window, sinks int) func(r *rig.Rig, heads, d int) *attention.Variant {
		return func(r *rig.Rig, _, d int) *attention.Variant {
			f := frequencies(d)
			return attention.StreamingRoPE(window, sinks, rig.In[dsl.F32](r, "inv_freq", rig.F32Bytes(f), len(f)), f)
		}
	}
	alibi := func(r *rig.Rig, heads, _ int) *attention.Variant {
		s := attention.ALiBiSlopes(heads)
		return attention.ALiBi(rig.In[dsl.F32](r, "slopes", rig.F32Bytes(s), heads), s)
	}
	scale := func(r *rig.Rig, heads, _ int) *attention.Variant {
		s := headScales(heads)
		return attention.HeadScale(rig.In[dsl.F32](r, "scale", rig.F32Bytes(s), heads), s)
	}
	return []flavour{
		{name: "window 1", declare: fixed(attention.SlidingWindow(1, 0)), plain: true},
		{name: "window 20", declare: fixed(attention.SlidingWindow(20, 0)), plain: true},
		{name: "window 33, 4 sinks", declare: fixed(attention.SlidingWindow(33, 4)), plain: true},
		{name: "window 7, 37 sinks", declare: fixed(attention.SlidingWindow(7, 37)), plain: true},
		{name: "window 1000", declare: fixed(attention.SlidingWindow(1000, 4)), plain: true},
		{name: "soft cap", declare: fixed(attention.SoftCap(1.5)), plain: true},
		{name: "ALiBi", declare: alibi, plain: true},
		{name: "sigmoid", declare: fixed(attention.Sigmoid(-1)), plain: true},
		{name: "head scale", declare: scale, rounding: 1, plain: true},
		{name: "custom mask", declare: func(r *rig.Rig, _, _ int) *attention.Variant {
			w := maskTable()
			return attention.CustomMask(rig.In[dsl.U32](r, "mask", rig.U32Bytes(w...), len(w)), maskBit)
		}},
		{name: "RoPE at read", declare: streaming(0, 0), rounding: 6, plain: true},
		{name: "streaming RoPE", declare: streaming(24, 4), rounding: 6, unshared: true, plain: true},
		{name: "values and outputs", declare: fixed(doubled()), rounding: 2, plain: true},
		{name: "window, soft cap and ALiBi", plain: true, declare: func(r *rig.Rig, heads, d int) *attention.Variant {
			v, err := attention.Combine(attention.SlidingWindow(20, 3), attention.SoftCap(2), alibi(r, heads, d))
			return must(t, v, err)
		}},
		{name: "head scale, window, outputs and sigmoid", rounding: 3, plain: true,
			declare: func(r *rig.Rig, heads, d int) *attention.Variant {
				v, err := attention.Combine(scale(r, heads, d), attention.SlidingWindow(20, 3), doubled(), attention.Sigmoid(0.5))
				return must(t, v, err)
			}},
	}
}

func (c ragged) runAs(t *testing.T, f flavour) {
	c.variant = f.name
	c = c.withDefaults()
	if f.unshared {
		c.prefix = 0
	}
	for _, c.kv = range attention.KVTypes() {
		t.Run(c.String(), func(t *testing.T) {
			b := newBatch(c)
			var v *attention.Variant
			r := b.rig(t, nil, func(r *rig.Rig) *attention.Variant {
				v = f.declare(r, c.kvHeads*c.group, c.d)
				return v
			})
			b.check(t, v, r.Run(), f.rounding)
		})
	}
}

func TestVariantsOfRaggedAttention(t *testing.T) {
	tree := []int{-1, 0, 0, 1, 1, 2}
	for i, f := range flavours(t) {
		cases := []ragged{
			{seqs: []sequence{{cached: 70, new: 1}}},
			{seqs: []sequence{{cached: 70, new: 1}, {cached: 3, new: 3}, {cached: 45, new: 4}}, parts: 3, group: 3, consumers: 4,
				sms: 3},
			{seqs: []sequence{{cached: 40, new: 2}, {cached: 0, new: 1}, {cached: 70, new: 1}}, prefix: 24, parts: 2,
				kvHeads: 2},
			{seqs: []sequence{{cached: 50, new: 6, parents: tree}, {cached: 20, new: 1}}, group: 4, consumers: 4, page: 16},
			{seqs: []sequence{{cached: 50, new: 1}, {cached: 20, new: 1}}, index: 9, parts: 2, page: 16, perStage: 32},
			{seqs: []sequence{{cached: 50, new: 1}, {cached: 20, new: 1}}, index: 3, parts: 3, pinned: true, prefix: 16},
			{seqs: []sequence{{cached: 60, new: 9}}, group: 8, consumers: 7, page: 1, tokens: 16},
			{seqs: []sequence{{cached: 34, new: 2}}, d: 80, group: 2},
		}
		for j, c := range cases {
			if deep.On() || (i+j)%4 == 0 {
				c.runAs(t, f)
			}
		}
	}
}

// Selected pages keep their positions.
func TestSelectedPagesOfRaggedAttention(t *testing.T) {
	for _, f := range append(flavours(t), flavour{name: "causal", declare: fixed(nil)}) {
		for _, page := range deep.Most([]int{8, 1, 16}, 1) {
			ragged{seqs: []sequence{{cached: 45, new: 3, parents: []int{-1, -1, 1}}, {cached: 30, new: 1}}, page: page, parts: 2,
				selection: true}.runAs(t, f)
		}
	}
}

// The kernel of one sequence takes the variants, too.
func TestVariantsOfAttentionOfOneSequence(t *testing.T) {
	for i, f := range flavours(t) {
		for j, c := range []attend{
			{cached: 70, splits: 3, perStage: 32}, {cached: 45, group: 9, page: 16}, {cached: 0},
			{cached: 37, group: 17, splits: 2, d: 48}, {cached: 80, splits: 2, consumers: 3, page: 1, kvHeads: 2},
		} {
			if !f.plain || !deep.On() && (i+j)%4 != 0 {
				continue
			}
			c = c.withDefaults()
			c.meet = meetings[(i+j)%2]
			c.unsplit.Tokens = i / 2 % 2 * 1000 // where states meet in words
			t.Run(f.name+" "+c.String(), func(t *testing.T) {
				s := newScene(c)
				s.checkVariant(t, f)
			})
		}
	}
}

// checkVariant compares the merged output alone.
func (s *scene) checkVariant(t testing.TB, f flavour) {
	var v *attention.Variant
	heads := s.kvHeads * s.group
	got := s.rigOf(t, func(r *rig.Rig) *attention.Variant {
		v = f.declare(r, heads, s.d)
		return v
	}).Run()
	merged := rig.Wide(rig.BF16s(got["attn"]))
	q := rig.Wide(s.q)
	for i := range q {
		q[i] *= math.Sqrt(float64(s.d)) / math.Log2E
	}
	for head := range heads {
		h := head / s.group
		var at []attention.Place
		var keys, values, abs [][]float64
		for i := range s.cached + 1 {
			at = append(at, attention.Place{Head: h, Index: i, Position: i})
			keys, values = append(keys, s.keys[i][h*s.d:(h+1)*s.d]), append(values, s.values[i][h*s.d:(h+1)*s.d])
			abs = append(abs, rig.Scaled(values[i], 1, 0))
		}
		place := attention.Place{Head: head, Heads: heads, Position: s.cached, First: s.cached}
		want, _ := v.Attend(place, q[head*s.d:(head+1)*s.d], at, keys, values)
		size, _ := v.Attend(place, q[head*s.d:(head+1)*s.d], at, keys, abs)
		rig.Near(t, want, merged[head*s.d:(head+1)*s.d], rig.Scaled(size, (2+f.rounding)*0x1p-8, 1e-6), "head %d", head)
	}
}

func TestCombineRefusesWhatDoesNotGoTogether(t *testing.T) {
	_, err := attention.Combine(attention.Sigmoid(0), attention.SoftCap(1))
	require.EqualError(t, err, `combine: variant "sigmoid" sums, want it last`)
	_, err = attention.Combine(attention.SlidingWindow(4, 0), attention.SlidingWindow(5, 0))
	require.EqualError(t, err, `combine: variant "sliding window" has a window, and one before it has, too`)
}

func TestALiBiSlopesAreThePapers(t *testing.T) {
	require.Equal(t, []float32{0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625},
		attention.ALiBiSlopes(8))
	require.Equal(t, []float32{0.0625, 0.00390625, 0.25}, attention.ALiBiSlopes(3),
		"of 2 heads, then every other one of 4")
	require.Len(t, attention.ALiBiSlopes(12), 12)
}
