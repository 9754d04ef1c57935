package main

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/half"
	"github.com/stretchr/testify/require"
)

// tolerance is for machines that fuse multiplications and additions where amd64
// does not: some values then fall on the other side of a rounding.
const tolerance = 0.02

func TestThePagesTablesAreTheRecords(t *testing.T) {
	r, err := readRecord("../../docs/numerics.json")
	require.NoError(t, err)
	page, err := os.ReadFile("../../docs/numerics.md")
	require.NoError(t, err)
	filled, err := fillIn(string(page), r.tables())
	require.NoError(t, err)
	require.Equal(t, string(page), filled)
}

// Tiny at its first context, attention at its shortest and the smallest product,
// measured again.
func TestTheRecordIsMeasuredAgain(t *testing.T) {
	r, err := readRecord("../../docs/numerics.json")
	require.NoError(t, err)
	list, err := subjects()
	require.NoError(t, err)
	tiny := list[1]
	got := tiny.measure(tiny.contexts[:1], 2, func(string) {})
	require.Equal(t, r.Models[1].Shape, got.Shape)
	want := r.Models[1].Contexts[0].Results
	require.Len(t, got.Contexts[0].Results, len(want))
	for i, g := range got.Contexts[0].Results {
		w := want[i]
		require.Equal(t, []string{w.Group, w.Name}, []string{g.Group, g.Name})
		require.InEpsilon(t, w.RelRMS, g.RelRMS, tolerance, w.Name)
		require.InEpsilon(t, w.KL, g.KL, 2*tolerance, w.Name)
		require.Equal(t, w.Flips, g.Flips, w.Name)
	}
	compareSingles(t, r.Attention, attentionErrors(attentionContexts[:1], attentionSplits, attentionQueries))
	compareSingles(t, r.Products, productErrors(productColumns[:1], productRows))
}

func compareSingles(t *testing.T, recorded, got []single) {
	t.Helper()
	require.NotEmpty(t, got)
	for i, g := range got {
		w := recorded[i]
		require.Equal(t, single{w.What, w.Size, w.Splits, g.RelRMS}, g)
		require.InEpsilon(t, w.RelRMS, g.RelRMS, tolerance, "%s, %d splits", w.What, w.Splits)
	}
}

// Without roundings the kernel's way through the tokens is attention itself,
// whatever the number of splits, empty ones included.
func TestAttentionInPartsIsAttention(t *testing.T) {
	const heads, kvHeads, dim = 6, 2, 32
	for _, tokens := range []int{1, 2, 16, 17, 64, 65, 66, 129, 300} {
		r := rand.New(rand.NewPCG(3, uint64(tokens)))
		keys, values := normals(r, tokens, kvHeads*dim, 2), normals(r, tokens, kvHeads*dim, 1)
		q := normals(r, 1, heads*dim, 2)[0]
		want := reference.Concat(reference.Attention(q, keys, values, heads, kvHeads))
		for _, splits := range []int{1, 2, 3, 7, 64} {
			got := attention{splits, exact, exact, exact}.run(q, keys, values, heads, kvHeads)
			require.InDeltaSlice(t, want, got, 1e-12, "%d tokens, %d splits", tokens, splits)
		}
	}
}

func TestProductsDifferOnlyByRounding(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for _, columns := range []int{1, 31, 32, 96, 1000} {
		w := make([]half.BF16, 5*columns)
		for i := range w {
			w[i] = reference.ToBF16(r.NormFloat64())
		}
		x := normals(r, 1, columns, 1)[0]
		want := reference.MatVec(w, x)
		require.InDeltaSlice(t, want, product(w, x), 1e-12)
		for _, got := range [][]float64{kernelProduct(nearest)(w, x), kernelProduct(toZero)(w, x), inOrder(w, x)} {
			require.InDeltaSlice(t, want, got, 1e-5*math.Sqrt(float64(columns)))
		}
		if columns == 1000 {
			require.NotEqual(t, want, kernelProduct(nearest)(w, x))
		}
	}
}

func TestRoundingTowardsZero(t *testing.T) {
	for x, want := range map[float64]float64{1 + 0x1.8p-23: 1 + 0x1p-23, -1 - 0x1.8p-23: -1 - 0x1p-23, 0.5: 0.5, 0: 0} {
		require.Equal(t, want, toZero(x))
	}
	require.Equal(t, 1+0x1p-22, nearest(1+0x1.8p-23))
}

// A variant with nothing on is float64, one with all bf16 roundings on is what
// reference.AsKernel makes.
func TestVariantsRoundWhatTheyName(t *testing.T) {
	list, err := subjects()
	require.NoError(t, err)
	s := list[1].config
	r := newRun(s, reference.Synthetic(s, seed), 40, 3, seed)
	exactly := r.logits(reference.Hooks{}, inFloat64, inFloat64)
	none := compare(exactly, r.logits(variant{splits: 1}.hooks(s), inFloat64, inFloat64))
	require.Less(t, none.RelRMS, 1e-13)
	require.Less(t, none.KL, 1e-20)

	asKernel := r.logits(reference.AsKernel(s), inBF16, inBF16)
	all := variant{on: only(inQKV, query, key, value, inO, inGateUp, inDown, inHead), splits: 1}
	same := compare(asKernel, r.logits(all.hooks(s), inBF16, inBF16))
	require.Less(t, same.RelRMS, 1e-6)
	require.Greater(t, compare(exactly, asKernel).RelRMS, 1e-4)
}

func TestCompareByHand(t *testing.T) {
	got := compare([][]float64{{math.Log(3), 0, -100}}, [][]float64{{0, math.Log(3), -100}})
	require.Equal(t, 1, got.Flips)
	require.InDelta(t, 2, got.Margin, 1e-12)
	require.InDelta(t, 0.5*math.Log(3), got.KL, 1e-12) // 3/4 ln 3 − 1/4 ln 3
	require.InDelta(t, math.Sqrt(2*math.Log(3)*math.Log(3)/(math.Log(3)*math.Log(3)+1e4)), got.RelRMS, 1e-12)
}

func TestMarksAndTablesMustMatch(t *testing.T) {
	_, err := fillIn("nothing", map[string]string{"a": "x"})
	require.ErrorContains(t, err, "the page has no line")
	page := "<!-- table a: written by go run ./tests/numerics -update -->\nold\n<!-- end of table -->\nrest"
	filled, err := fillIn(page, map[string]string{"a": "new\n"})
	require.NoError(t, err)
	require.Equal(t, "<!-- table a: written by go run ./tests/numerics -update -->\n\nnew\n\n<!-- end of table -->\nrest",
		filled)
	_, err = fillIn(page, nil)
	require.ErrorContains(t, err, "marks of 1 tables, the record 0")
}
