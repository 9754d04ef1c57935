package runtime_test

import (
	"math"
	"testing"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// raggedWith is a session of several rows of tiny on the executor with pages of 4, the last of
// them the guard.
func raggedWith(t *testing.T, o megakernel.Options, r runtime.Options) *runtime.Session {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	o.SMs, o.Page = 2, 4
	mk, err := megakernel.Build(c, o)
	require.NoError(t, err)
	sim, err := runtime.NewSim(mk.IR, 1)
	require.NoError(t, err)
	r.Guard = uint32(r.Pages - 1)
	s, err := runtime.Open(t.Context(), mk, sim, runtime.FromTensors(synth.NewWeights(1, c), runtime.LoadOptions{}), r)
	require.NoError(t, err)
	return s
}

// launched is a launch that goes well.
func launched(t *testing.T, r *runtime.Session, q kv.Request) [][]int {
	t.Helper()
	got, err := r.Launch(t.Context(), q, nil)
	require.NoError(t, err)
	return got
}

func rowLogits(t *testing.T, r *runtime.Session, row int) []float32 {
	t.Helper()
	out := make([]float32, 320)
	require.NoError(t, r.RowLogits(row, out))
	return out
}

// near demands logits that differ by no more than roundings.
func near(t *testing.T, want, got []float32, what string) {
	t.Helper()
	for i := range want {
		require.InDelta(t, want[i], got[i], 0.04, "%s: logit %d", what, i)
	}
}

// pagesFrom are n pages from first on.
func pagesFrom(first, n int) (pages []uint32) {
	for i := range n {
		pages = append(pages, uint32(first+i))
	}
	return pages
}

// fill feeds tokens to a sequence in launches of up to n rows.
func fill(t *testing.T, r *runtime.Session, tokens []uint32, pages []uint32, rows int) {
	t.Helper()
	for i := 0; i < len(tokens); i += rows {
		n := min(rows, len(tokens)-i)
		launched(t, r, kv.Request{Sequences: []kv.Sequence{{Pages: pages, Cached: i, New: n, Tokens: tokens[i : i+n]}}})
	}
}

func counted(n int) (tokens []uint32) {
	for i := range n {
		tokens = append(tokens, uint32(7*i%320))
	}
	return tokens
}

// A draft tree beside another sequence: every token's logits are those of its branch
// fed alone.
func TestADraftTreesLogitsAreThoseOfItsBranches(t *testing.T) {
	ofValues(t)
	prompt := counted(9)
	tree, parents := []uint32{50, 60, 61, 70, 71, 80}, []int{-1, 0, 0, 1, 1, 2}
	for _, o := range []megakernel.Options{{Tokens: 8}, {Tokens: 8, Attention: "window=6+sinks=2/alibi"}} {
		r := raggedWith(t, o, runtime.Options{Pages: 24})
		pages := pagesFrom(0, 4)
		fill(t, r, prompt, pages, 8)
		q := kv.Request{Sequences: []kv.Sequence{{Pages: pagesFrom(8, 1), New: 2, Tokens: []uint32{5, 6}},
			{Pages: pages, Cached: len(prompt), New: 6, Tokens: tree, Parents: parents}}}
		chosen := launched(t, r, q)
		require.Len(t, chosen[0], 8)
		var drafted [][]float32
		for i := range tree {
			drafted = append(drafted, rowLogits(t, r, 2+i))
		}
		for i := range tree {
			var branch []uint32
			for at := i; at >= 0; at = parents[at] {
				branch = append([]uint32{tree[at]}, branch...)
			}
			alone := launched(t, r, kv.Request{Sequences: []kv.Sequence{{Pages: pages, Cached: len(prompt), New: len(branch),
				Tokens: branch}}})
			near(t, rowLogits(t, r, len(branch)-1), drafted[i], "token of the tree")
			require.Equal(t, alone[0][len(branch)-1], chosen[0][2+i])
		}
	}
}

// All pages selected is no selection; fewer are something else.
func TestASelectionOfAllPagesIsNoSelection(t *testing.T) {
	prompt := counted(26)
	r := raggedWith(t, megakernel.Options{Tokens: 4, Selection: true, Attention: "causal/window=8"},
		runtime.Options{Pages: 24, Steps: 3})
	pages := []uint32{5, 2, 11, 0, 7, 1, 9, 4}
	fill(t, r, prompt, pages, 4)
	run := func(lists [][]int) ([][]int, []float32) {
		got := launched(t, r, kv.Request{Steps: 3,
			Sequences: []kv.Sequence{{Pages: pages, Cached: 26, New: 1, Tokens: []uint32{9}, Grow: true, Select: lists}}})
		return got, rowLogits(t, r, 0)
	}
	all := []int{0, 1, 2, 3, 4, 5}
	want, plain := run(nil)
	got, logits := run([][]int{all, all})
	require.Equal(t, want, got)
	near(t, plain, logits, "all pages")
	_, few := run([][]int{{0, 4}, {5}})
	most := 0.0
	for i := range few {
		most = max(most, math.Abs(float64(few[i]-plain[i])))
	}
	require.Greater(t, most, 0.1)
}

// Bits that hide what a window hides are a window; without any all is seen.
func TestMaskBitsHideTokens(t *testing.T) {
	ofValues(t)
	prompt := counted(19)
	masked := raggedWith(t, megakernel.Options{Tokens: 4, Attention: "mask"}, runtime.Options{Pages: 12, MaskWords: 9})
	window := raggedWith(t, megakernel.Options{Tokens: 4, Attention: "window=5"}, runtime.Options{Pages: 12})
	plain := raggedWith(t, megakernel.Options{Tokens: 4}, runtime.Options{Pages: 12})
	pages := pagesFrom(2, 6)
	for i := 0; i < len(prompt); i += 3 {
		n := min(3, len(prompt)-i)
		s := kv.Sequence{Pages: pages, Cached: i, New: n, Tokens: prompt[i : i+n]}
		launched(t, window, kv.Request{Sequences: []kv.Sequence{s}})
		var bits []uint32
		for j := range n {
			s.Masks = append(s.Masks, uint32(2+2*j))
			bits = append(bits, 0b11111<<(i+j)>>4, 0)
		}
		require.NoError(t, masked.SetMask(2, bits))
		launched(t, masked, kv.Request{Sequences: []kv.Sequence{s}})
		near(t, rowLogits(t, window, n-1), rowLogits(t, masked, n-1), "masked")
	}
	fill(t, plain, prompt, pages, 4)
	require.NoError(t, masked.SetMask(0, []uint32{1<<32 - 1}))
	fill(t, masked, prompt, pages, 4)
	near(t, rowLogits(t, plain, 2), rowLogits(t, masked, 2), "nothing masked")
}

// With pinned parts a decoding sequence's logits are the same bits whatever else the
// batch holds, and wherever its row is.
func TestPinnedPartsMakeLogitsTheSameInEveryBatch(t *testing.T) {
	deep.Only(t)
	ofValues(t)
	prompt := counted(70)
	for _, attention := range []string{"", "window=40+sinks=3/causal"} {
		r := raggedWith(t, megakernel.Options{Tokens: 8, Attention: attention}, runtime.Options{Pages: 80})
		pin := 2 * r.ChunkTokens()
		pages, other, third := pagesFrom(0, 20), pagesFrom(20, 20), pagesFrom(40, 20)
		fill(t, r, prompt, pages, 8)
		fill(t, r, counted(45), other, 8)
		one := func(cached int) kv.Sequence {
			return kv.Sequence{Pages: pages, Cached: cached, New: 1, Tokens: []uint32{33}}
		}
		for _, cached := range []int{0, 3, 31, 32, 33, 64, 70} {
			alone := []kv.Sequence{one(cached)}
			var want []float32
			for i, batch := range []struct {
				row       int
				sequences []kv.Sequence
			}{
				{0, alone},
				{0, []kv.Sequence{one(cached), {Pages: other, Cached: 45, New: 7, Tokens: counted(7)}}},
				{3, []kv.Sequence{{Pages: other, Cached: 17, New: 3, Tokens: counted(3)}, one(cached)}},
				{6, []kv.Sequence{{Pages: other, Cached: 45, New: 1, Tokens: []uint32{1}},
					{Pages: third, New: 5, Tokens: counted(5)}, one(cached)}},
				{1, []kv.Sequence{{Pages: append(pages[:cached/4:cached/4], third...), Cached: cached / 4 * 4, New: 1,
					Tokens: []uint32{8}}, one(cached)}},
			} {
				launched(t, r, kv.Request{Sequences: batch.sequences, PinTokens: pin})
				got := rowLogits(t, r, batch.row)
				if want == nil {
					want = got
				}
				require.Equal(t, want, got, "batch %d, %d tokens cached", i, cached)
			}
		}
	}
}

func TestLaunchesThatCannotBeAreRefused(t *testing.T) {
	r := raggedWith(t, megakernel.Options{Tokens: 4, Attention: "mask"}, runtime.Options{Pages: 12, MaskWords: 3})
	s := func(change func(s *kv.Sequence)) kv.Request {
		one := kv.Sequence{Pages: pagesFrom(0, 3), New: 2, Tokens: []uint32{1, 2}}
		change(&one)
		return kv.Request{Sequences: []kv.Sequence{one}}
	}
	for want, q := range map[string]kv.Request{
		"sequence 0: 1 tokens for 2 new ones": s(
			func(s *kv.Sequence) { s.Tokens = []uint32{1} }),
		"sequence 0: token 320, want 0 to 319": s(
			func(s *kv.Sequence) { s.Tokens[1] = 320 }),
		"no token to feed in any sequence": s(func(s *kv.Sequence) {
			s.New,
				s.Tokens = 0, nil
		}),
		"sequence 0: mask words 3 to 3, there are 3": s(
			func(s *kv.Sequence) { s.Masks = []uint32{0, 3} }),
		"kv: sequence 0: new token 1 has parent 1, want -1 to 0": s(
			func(s *kv.Sequence) { s.Parents = []int{-1, 1} }),
		"kv: sequence 0: selects pages, but the kernel is built without selection": s(
			func(s *kv.Sequence) { s.Select = [][]int{{}, {}} }),
		"0 sequences and 1 steps, want at least 1 and 1 to 1": {},
	} {
		_, err := r.Launch(t.Context(), q, nil)
		require.EqualError(t, err, want)
	}
	require.EqualError(t, r.SetMask(2, []uint32{1, 2}), "mask words 2 to 3, want 0 to 2")
	plain := raggedWith(t, megakernel.Options{Tokens: 4}, runtime.Options{Pages: 12})
	_, err := plain.Launch(t.Context(), s(func(s *kv.Sequence) { s.Masks = []uint32{0, 0} }), nil)
	require.EqualError(t, err, "sequence 0: masks, but the kernel's attention has none")
	require.EqualError(t, plain.SetMask(0, nil), "mask bits for a kernel whose attention has no mask")
	require.EqualError(t, plain.RowLogits(0, nil), "logits of row 0, the last launch had 0")
}
