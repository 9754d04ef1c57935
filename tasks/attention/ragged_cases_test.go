package attention_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/stretchr/testify/require"
)

func (c ragged) run(t *testing.T) {
	c = c.withDefaults()
	for _, c.kv = range attention.KVTypes() {
		t.Run(c.String(), func(t *testing.T) {
			b := newBatch(c)
			b.check(t, nil, b.rig(t, nil, nil).Run(), 0)
		})
	}
}

func TestRaggedAttentionOfOneSequence(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 9, 15, 16, 17, 33, 64, 65, 100} {
		ragged{seqs: []sequence{{cached: n, new: 1}}, perStage: 32}.run(t)
		ragged{seqs: []sequence{{cached: n, new: 3}}, parts: 2}.run(t)
	}
}

// mixed is sequences of all lengths about a page, of n new tokens in all.
func mixed(page int, news ...int) []sequence {
	lengths := []int{0, page + 1, 1, 3*page + 5, page - 1, page, 70}
	var out []sequence
	for i, n := range news {
		out = append(out, sequence{cached: lengths[i%len(lengths)], new: n})
	}
	return out
}

func raggedCases() []ragged {
	var cs []ragged
	for _, page := range []int{1, 8, 16, 32, 128} {
		cs = append(cs, ragged{page: page, seqs: mixed(page, 1, 1, 1, 1), sms: 4, kvHeads: 2},
			ragged{page: page, seqs: mixed(page, 1, 4, 2, 1), sms: 3, parts: 3, perStage: 32},
			ragged{page: page, seqs: mixed(page, 1, 2), sms: 2, prefix: 2 * page, perStage: 32})
	}
	for n := 1; n <= 16; n++ { // T rows of one sequence, and of T sequences
		ones := make([]int, n)
		for i := range ones {
			ones[i] = 1
		}
		cs = append(cs, ragged{seqs: []sequence{{cached: 40, new: n}}, group: 4, consumers: 4, parts: 2},
			ragged{seqs: mixed(8, ones...), group: 3, sms: 4, consumers: 2, prefix: 16})
	}
	for _, group := range []int{1, 2, 3, 4, 8, 16, 17, 32} { // up to 8 tiles at once, and several passes
		for _, consumers := range []int{1, 2, 4, 7, 8} {
			cs = append(cs, ragged{group: group, consumers: consumers,
				seqs: []sequence{{cached: 50, new: 9}, {cached: 20, new: 1}, {cached: 33, new: 4}}, perStage: 64, page: 16,
				tokens: 16, parts: 1 + group%2})
		}
	}
	for _, d := range []int{16, 48, 64, 80, 128, 256} {
		cs = append(cs, ragged{d: d, seqs: mixed(8, 1, 5), group: 5, consumers: 4},
			ragged{d: d, seqs: mixed(8, 1, 5), group: 5, consumers: 4, prefix: 24, parts: 2})
	}
	for _, group := range []int{9, 16, 24} { // no item of 8 rows or fewer; with one warp a pass of 24 has as many
		for _, consumers := range []int{1, 4, 8} {
			cs = append(cs, ragged{d: 128, group: group, consumers: consumers, seqs: mixed(16, 1, 2), perStage: 32, page: 16,
				prefix: group % 2 * 32, parts: 1 + group%3})
		}
	}
	tree := []int{-1, 0, 0, 1, 1, 2, 5}
	return append(cs,
		ragged{seqs: []sequence{{cached: 21, new: 7, parents: tree}, {cached: 5, new: 1}}, parts: 2},
		ragged{seqs: []sequence{{cached: 0, new: 7, parents: tree}}},
		ragged{seqs: mixed(8, 1, 1, 1), sms: 4, kvHeads: 5, parts: 3}, // 45 items on 4 CTAs
		ragged{seqs: mixed(8, 3, 2), tails: true}, ragged{seqs: []sequence{{cached: 21, new: 7, parents: tree}}, tails: true,
			group: 3},
		ragged{seqs: mixed(8, 1), sms: 5}, // CTAs without an item
		ragged{seqs: mixed(8, 1, 1, 1, 1), parts: 3, pinned: true},
		ragged{seqs: mixed(8, 2, 1, 3, 1), parts: 5, pinned: true, index: 0, prefix: 40},
		ragged{seqs: mixed(8, 1, 2), page: 1, perStage: 64}, // more pages a stage than lanes
		ragged{seqs: mixed(8, 1, 2), tokens: 16}, ragged{seqs: mixed(8, 1, 2), tokens: 8, group: 8},
		ragged{seqs: mixed(8, 3, 2), scale: 4, parts: 2}, ragged{seqs: mixed(8, 3, 2), scale: 30, parts: 2},
		ragged{seqs: mixed(8, 1, 1, 1, 1), index: 1}, ragged{seqs: mixed(8, 1, 1, 1, 1), index: 20, parts: 3, sms: 3},
		ragged{seqs: mixed(16, 1, 1), index: 5, prefix: 16, page: 16, parts: 2, pinned: true})
}

func TestRaggedAttention(t *testing.T) {
	for i, c := range raggedCases() {
		if deep.On() || i%8 == 0 {
			c.run(t)
		}
	}
}

// A key's NaN makes the rows NaN that see it, and no others: whatever block, item and
// pass it lies in, cached or new.
func TestRaggedAttentionPassesNaNOn(t *testing.T) {
	c := ragged{seqs: []sequence{{cached: 40, new: 3}, {cached: 20, new: 2}}, kvHeads: 2, group: 3, prefix: 16,
		parts: 2}.withDefaults()
	// the first is in the prefix
	for _, at := range []struct{ seq, token, from int }{{0, 3, 0}, {0, 16, 0}, {0, 55, 0}, {0, 57, 1}, {1, 37, 1}} {
		b := newBatch(c)
		tok := b.toks[at.seq][at.token]
		x := 2 * b.layout().Index(b.pages, 1, tok.page, 1, tok.slot, 0, 5)
		binary.LittleEndian.PutUint16(b.cache[x:], nanBF16)
		got := b.rig(t, nil, nil).Run()
		for row, r := range b.rows {
			out := b.output(got, row)
			sees := r.seq == at.seq && r.child >= at.from || at.token < c.prefix
			require.Equal(t, sees, math.IsNaN(out[3*c.d]), "row %d, NaN in token %d of sequence %d", row, at.token, at.seq)
			require.False(t, math.IsNaN(out[0]), "of the other KV head")
		}
	}
}

func TestWhatAPlansAttentionRefuses(t *testing.T) {
	b := newBatch(ragged{seqs: []sequence{{cached: 4, new: 2}}}.withDefaults())
	for want, spoil := range map[string]func(r *rig.Rig, a *attention.Attention){
		"attention: 0 tokens, want 1 to 16":           func(_ *rig.Rig, a *attention.Attention) { a.Tokens = 0 },
		"attention: 17 tokens, want 1 to 16":          func(_ *rig.Rig, a *attention.Attention) { a.Tokens = 17 },
		"attention: a plan's direct items need Final": func(_ *rig.Rig, a *attention.Attention) { a.Final = nil },
		"attention: class 1 of 1":                     func(_ *rig.Rig, a *attention.Attention) { a.Class = 1 },
		"attention: 0 items a CTA, want at least 1":   func(_ *rig.Rig, a *attention.Attention) { a.Work.PerCTA = 0 },
		"attention: Items has 64 elements, want 128":  func(_ *rig.Rig, a *attention.Attention) { a.Work.PerCTA = 3 },
		"attention: Scratch has 4 elements, want 560 for 2 consumer warps": func(r *rig.Rig, a *attention.Attention) {
			a.Scratch = dsl.Shared[dsl.F32](r.K, "short", 4)
		},
		`attention: variant "x" sums without softmax, but has no Logits to give weights`: func(_ *rig.Rig,
			a *attention.Attention) {
			a.Variant = &attention.Variant{Name: "x", Sum: true}
		},
		`attention: variant "x" has a slope, but no Logits`: func(_ *rig.Rig, a *attention.Attention) {
			a.Variant = &attention.Variant{Name: "x", Slope: attention.ALiBi(dsl.Buf[dsl.F32]{}, nil).Slope}
		},
		`attention: variant "x" sums without softmax, but has a slope`: func(_ *rig.Rig, a *attention.Attention) {
			v := *attention.ALiBi(dsl.Buf[dsl.F32]{}, nil)
			v.Name, v.Sum = "x", true
			a.Variant = &v
		},
		`attention: variant "x" has a window of 4, but no Mask`: func(_ *rig.Rig,
			a *attention.Attention) {
			a.Variant = &attention.Variant{Name: "x", Window: 4}
		},
		`attention: variant "x" has 3 sinks without a window`: func(_ *rig.Rig,
			a *attention.Attention) {
			a.Variant = &attention.Variant{Name: "x", Sinks: 3}
		},
		`attention: variant "x" has a window of -1 with 0 sinks`: func(_ *rig.Rig,
			a *attention.Attention) {
			a.Variant = &attention.Variant{Name: "x", Window: -1}
		},
	} {
		t.Run(want, func(t *testing.T) {
			b.spoil = spoil
			require.Contains(t, b.rig(t, nil, nil).Refused(), want)
		})
	}
}

// Scratch is bounded by slices of D, whatever the shape, or by 128 queries and 16 new
// tokens.
func TestScratchOfAPlansAttentionIsBounded(t *testing.T) {
	for _, d := range []int{16, 48, 64, 80, 128, 176, 256} {
		for _, consumers := range []int{1, 2, 7, 8, 16, 31} {
			a := &attention.Attention{Heads: 8, KV: attention.KVLayout{Heads: 1, D: d}, Tokens: 16, Work: &attention.Work{}}
			bound := max(32<<10+consumers*192, 128*(2*d+16)+16*4*d)
			require.LessOrEqual(t, 4*a.ScratchLen(consumers), bound, "%d warps, D %d", consumers, d)
		}
	}
}

func TestFragmentOrderAndRowMajorPlaceEveryElementOnce(t *testing.T) {
	const rows, width = 8, 64
	r := rig.New(t, rig.Setup{})
	a, b := rig.Out[dsl.BF16](r, "a", rows*width), rig.Out[dsl.BF16](r, "b", rows*width)
	inOrder, plain := attention.FragmentOrder(r.K, a, rows, pipeline.FormatBF16), attention.RowMajor(b, width)
	r.Body(func(*pipeline.Consumer) {
		r.K.ForStep(r.Env.Lane, r.K.U32(rows*width/2), dsl.WarpSize, func(i dsl.Val[dsl.U32]) {
			row, at := i.DivC(width/2), i.RemC(width/2).MulC(2)
			x := dsl.Cast[dsl.F32](row.MulC(width).Add(at))
			inOrder(row, at, x, x.AddC(1))
			plain(row, at, x, x.AddC(1))
		})
	}, nil)
	got := r.Run()
	for row := range rows {
		for k := range width {
			want := rig.ToBF16(float64(row*width + k))
			require.Equal(t, want, rig.BF16s(got["b"])[row*width+k])
			require.Equal(t, want, rig.BF16s(got["a"])[((k/32)*rows+row)*32+k%32])
		}
	}
}
