package synth

import (
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"sort"
	"strconv"
	"testing"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
	"github.com/stretchr/testify/require"
)

// torchGolden is what `python tests/gpu/synth.py golden` printed.
type torchGolden struct {
	Cases []struct {
		Seed, Name, Bits string
		Gain             bool
		Mantissa, Exp    int
		Shift            int
		Start            int64
	}
	Tokens     []int
	TiedHash   string `json:"tied_hash"`
	UntiedHash string `json:"untied_hash"`
	SingleHash string `json:"single_hash"`
}

var (
	tied = models.Config{Layers: 2, Hidden: 128, Intermediate: 352, Heads: 6, KVHeads: 2, HeadDim: 32, Vocab: 320,
		TieEmbeddings: true}
	untied = models.Config{Layers: 3, Hidden: 96, Intermediate: 200, Heads: 3, KVHeads: 3, HeadDim: 32, Vocab: 1000}
	// single has a tensor that the hash samples with a step, and the branch sizes of one tied layer.
	single = models.Config{Layers: 1, Hidden: 64, Intermediate: 70000, Heads: 1, KVHeads: 1, HeadDim: 64, Vocab: 1000,
		TieEmbeddings: true}
)

func readTorch(t *testing.T) torchGolden {
	t.Helper()
	data, err := os.ReadFile("testdata/torch.json")
	require.NoError(t, err)
	var g torchGolden
	require.NoError(t, json.Unmarshal(data, &g))
	return g
}

func TestBitsEqualTorch(t *testing.T) {
	g := readTorch(t)
	require.Len(t, g.Cases, 36)
	for _, c := range g.Cases {
		seed, err := strconv.ParseUint(c.Seed, 10, 64)
		require.NoError(t, err)
		want, err := hex.DecodeString(c.Bits)
		require.NoError(t, err)
		tensor := Tensor{c.Name, []int{1 << 16, 1 << 15}, Recipe{KindNormal, c.Mantissa, c.Exp, c.Shift}}
		if c.Gain {
			tensor.Recipe = Gain()
		}
		got := make([]half.BF16, len(want)/2)
		require.NoError(t, Fill(got, seed, tensor, c.Start))
		for i, b := range got {
			require.Equal(t, half.BF16At(want[2*i:]), b, "%s seed %s element %d", c.Name, c.Seed,
				c.Start+int64(i))
		}
	}
}

func TestModelHashAndTokensEqualTorch(t *testing.T) {
	g := readTorch(t)
	for _, c := range []struct {
		dims models.Config
		want string
	}{{tied, g.TiedHash}, {untied, g.UntiedHash}, {single, g.SingleHash}} {
		got, err := SampleHash(5, Tensors(c.dims), nil)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	require.Equal(t, g.Tokens, Tokens(7, 3, 16, 128256))
}

// The hash that tests/gpu/reference.py wrote for llama3.2-1b with seed 1: the whole of the model's shapes and recipes.
func TestHashOfLlama1BEqualsTorch(t *testing.T) {
	d := models.Config{Layers: 16, Hidden: 2048, Intermediate: 8192, Heads: 32, KVHeads: 8, HeadDim: 64, Vocab: 128256,
		TieEmbeddings: true}
	got, err := SampleHash(1, Tensors(d), nil)
	require.NoError(t, err)
	require.Equal(t, "75a6cf5bedd01d200a035b96769302c469e6221678ea0c88d3ddb26e05d5a4a0", got)
}

func TestHashSeesOneChangedWeight(t *testing.T) {
	ts := Tensors(tied)
	want, err := SampleHash(5, ts, nil)
	require.NoError(t, err)
	got, err := SampleHash(5, ts, func(tensor Tensor, i int64) half.BF16 {
		b := At(5, tensor, i)
		if tensor.Name == "model.norm.weight" && i == 100 {
			b ^= 1
		}
		return b
	})
	require.NoError(t, err)
	require.NotEqual(t, want, got)
}

func TestFillDoesNotDependOnCuts(t *testing.T) {
	tensor := Tensor{"a", []int{40, 25}, Normal(0.3)}
	whole, cut := make([]half.BF16, 1000), make([]half.BF16, 1000)
	require.NoError(t, Fill(whole, 9, tensor, 0))
	for _, r := range [][2]int64{{600, 1000}, {0, 1}, {1, 600}} {
		require.NoError(t, Fill(cut[r[0]:r[1]], 9, tensor, r[0]))
	}
	require.Equal(t, whole, cut)
	for i := range whole {
		require.Equal(t, whole[i], At(9, tensor, int64(i)))
	}
}

func TestFillRefusesRangesOutside(t *testing.T) {
	tensor := Tensor{"a", []int{4, 4}, Gain()}
	require.ErrorContains(t, Fill(make([]half.BF16, 8), 0, tensor, 9), "elements 9 to 17 asked for, it has 16")
	require.Error(t, Fill(make([]half.BF16, 1), 0, tensor, -1))
	big := Tensor{"b", []int{1 << 16, 1<<15 + 1}, Gain()}
	require.ErrorContains(t, Fill(make([]half.BF16, 1), 0, big, 0), "at most 2147483648")
	_, err := SampleHash(0, []Tensor{big}, nil)
	require.ErrorContains(t, err, "at most 2147483648")
}

func TestNormalHasItsDistribution(t *testing.T) {
	for _, std := range []float64{1, 0.0123, 37} {
		tensor := Tensor{"model.layers.0.mlp.up_proj.weight", []int{1000, 1000}, Normal(std)}
		xs := fillFloats(t, 3, tensor)
		mean, sd, kurtosis := moments(xs)
		require.InDelta(t, 0, mean/std, 0.004) // 4 sigma of the mean
		require.InDelta(t, 1, sd/std, 0.006)   // 0.4 % of the mantissa, 3 sigma
		require.InDelta(t, 2.7, kurtosis, 0.02, "a sum of four uniforms has kurtosis 3 - 1.2/4")
		sort.Float64s(xs)
		for _, q := range []struct{ p, z float64 }{{0.0228, -2}, {0.1587, -1}, {0.5, 0}, {0.8413, 1}, {0.9772, 2}} {
			require.InDelta(t, q.z, xs[int(q.p*1e6)]/std, 0.05, "quantile %v", q.p)
		}
	}
}

func TestGainIsUniform(t *testing.T) {
	xs := fillFloats(t, 3, Tensor{"model.norm.weight", []int{1000000}, Gain()})
	mean, sd, _ := moments(xs)
	require.InDelta(t, 1, mean, 0.002)
	require.InDelta(t, math.Sqrt(1.0/12), sd, 0.001)
	sort.Float64s(xs)
	for _, p := range []float64{0.001, 0.1, 0.25, 0.75, 0.9, 0.999} {
		require.InDelta(t, 0.5+p, xs[int(p*1e6)], 0.004)
	}
	require.GreaterOrEqual(t, xs[0], 0.5)
	require.LessOrEqual(t, xs[len(xs)-1], 1.5)
}

func TestStreamsAreIndependent(t *testing.T) {
	a := fillFloats(t, 1, Tensor{"a", []int{200000}, Normal(1)})
	others := map[string][]float64{
		"other seed":      fillFloats(t, 2, Tensor{"a", []int{200000}, Normal(1)}),
		"other name":      fillFloats(t, 1, Tensor{"b", []int{200000}, Normal(1)}),
		"shifted by 1":    append(a[1:len(a):len(a)], a[0]),
		"shifted by 4096": append(a[4096:len(a):len(a)], a[:4096]...),
	}
	for what, b := range others {
		sum := 0.0
		for i := range a {
			sum += a[i] * b[i]
		}
		require.InDelta(t, 0, sum/float64(len(a)), 4.5/math.Sqrt(float64(len(a))), what)
	}
}

func TestTokensCoverTheVocabulary(t *testing.T) {
	count := make([]int, 320)
	for _, id := range Tokens(1, 0, 64000, 320) {
		count[id]++
	}
	for id, n := range count {
		require.InDelta(t, 200, n, 90, "token %d", id)
	}
	require.NotEqual(t, Tokens(1, 0, 8, 320), Tokens(1, 1, 8, 320))
}

func TestTensorsOfLlamaAreListedOnce(t *testing.T) {
	params := func(d models.Config) (n int64) {
		seen := map[string]bool{}
		for _, tensor := range Tensors(d) {
			require.False(t, seen[tensor.Name], tensor.Name)
			seen[tensor.Name] = true
			n += tensor.Elems()
		}
		require.Equal(t, !d.TieEmbeddings, seen["lm_head.weight"])
		return n
	}
	// The published parameter counts.
	require.EqualValues(t, 8030261248,
		params(models.Config{Layers: 32, Hidden: 4096, Intermediate: 14336, Heads: 32, KVHeads: 8, HeadDim: 128,
			Vocab: 128256, TieEmbeddings: false}))
	require.EqualValues(t, 1235814400,
		params(models.Config{Layers: 16, Hidden: 2048, Intermediate: 8192, Heads: 32, KVHeads: 8, HeadDim: 64, Vocab: 128256,
			TieEmbeddings: true}))
	require.EqualValues(t, 70553706496,
		params(models.Config{Layers: 80, Hidden: 8192, Intermediate: 28672, Heads: 64, KVHeads: 8, HeadDim: 128,
			Vocab: 128256, TieEmbeddings: false}))
}

func BenchmarkFill(b *testing.B) {
	dst := make([]half.BF16, 1<<20)
	tensor := Tensor{"a", []int{1 << 20}, Normal(1)}
	b.SetBytes(2 << 20)
	for b.Loop() {
		if err := Fill(dst, 1, tensor, 0); err != nil {
			b.Fatal(err)
		}
	}
}

func fillFloats(t *testing.T, seed uint64, tensor Tensor) []float64 {
	t.Helper()
	raw := make([]half.BF16, tensor.Elems())
	require.NoError(t, Fill(raw, seed, tensor, 0))
	xs := make([]float64, len(raw))
	for i, b := range raw {
		xs[i] = float64(b.Float32())
	}
	return xs
}

func moments(xs []float64) (mean, sd, kurtosis float64) {
	n := float64(len(xs))
	for _, x := range xs {
		mean += x / n
	}
	var m2, m4 float64
	for _, x := range xs {
		d := (x - mean) * (x - mean)
		m2 += d / n
		m4 += d * d / n
	}
	return mean, math.Sqrt(m2), m4 / (m2 * m2)
}
