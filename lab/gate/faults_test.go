package gate_test

import (
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/synth"
)

var (
	seedFlag     = flag.Uint64("synthseed", 2, "seed of the synthetic weights and tokens in TestGateCatchesPlantedFaults")
	referenceDir = flag.String("reference", "", "directory that tests/gpu/reference.py wrote for the tiny config")
)

const (
	sequences, length = 8, 256
	page              = 16
)

var shape = models.Config{
	Layers: 2, Hidden: 96, Intermediate: 352, Heads: 6, KVHeads: 2, HeadDim: 32, Vocab: 320, NormEps: 1e-5,
	TieEmbeddings: true, MaxPositions: 512,
	Rope: models.Rope{Theta: 10000, Scaling: &models.Scaling{Type: models.ScalingLlama3, Factor: 8, LowFreqFactor: 1,
		HighFreqFactor: 4, OriginalPositions: 64}},
}

// variant is a way to compute the logits.
type variant struct {
	weights reference.Weights
	hooks   reference.Hooks
}

// logits runs a variant over all sequences: [sequence][position][vocab].
func (v variant) logits(t *testing.T, seed uint64) [][][]float32 {
	t.Helper()
	out := make([][][]float32, sequences)
	var wait sync.WaitGroup
	for q := range sequences {
		wait.Go(func() { out[q] = decode(t, v, synth.Tokens(seed, q, length, shape.Vocab)) })
	}
	wait.Wait()
	return out
}

// decode runs a variant over one sequence: [position][vocab].
func decode(t *testing.T, v variant, tokens []int) [][]float32 {
	m, err := reference.NewModel(shape, v.weights, v.hooks)
	if !assert.NoError(t, err) {
		return nil
	}
	var rows [][]float32
	for _, token := range tokens {
		row := make([]float32, shape.Vocab)
		for i, x := range m.Step(token) {
			row[i] = float32(x)
		}
		rows = append(rows, row)
	}
	return rows
}

// ownRoundings are KL(o‖s): what the kernel's own roundings cost, of float64. [sequence][position]
func ownRoundings(t *testing.T, w reference.Weights, seed uint64, o [][][]float32) [][]float64 {
	t.Helper()
	out := make([][]float64, len(o))
	var wait sync.WaitGroup
	for q := range out {
		wait.Go(func() {
			s := decode(t, variant{w, reference.AsKernel(shape)}, synth.Tokens(seed, q, len(o[q]), shape.Vocab))
			out[q] = divergences(t, o[q], s)
		})
	}
	wait.Wait()
	return out
}

// divergences are KL(o‖k) of every position.
func divergences(t *testing.T, o, k [][]float32) (out []float64) {
	for p := range o {
		m, err := gate.Measure(o[p], o[p], k[p], 0)
		assert.NoError(t, err)
		out = append(out, m.KLOurs)
	}
	return out
}

// faulty returns the kernel with each fault planted.
func faulty(w reference.Weights) map[string]variant {
	kernel := reference.KernelRounding()
	attend := func(change func(q []float64, keys, values [][]float64) []reference.State) reference.Hooks {
		h := kernel
		h.Attend = func(_ int, q []float64, keys, values [][]float64) []float64 {
			return reference.Concat(change(q, keys, values))
		}
		return h
	}
	all := func(q []float64, keys, values [][]float64) []reference.State {
		return reference.Attention(q, keys, values, shape.Heads, shape.KVHeads)
	}
	skipped := maps.Clone(w)
	skipped["model.layers.1.input_layernorm.weight"] = slices.Repeat([]half.BF16{0x3f80}, shape.Hidden)

	return map[string]variant{
		gate.KVTokenDropped: {w, attend(func(q []float64, keys, values [][]float64) []reference.State {
			if len(keys) > 20 {
				keys, values = slices.Delete(slices.Clone(keys), 20, 21), slices.Delete(slices.Clone(values), 20, 21)
			}
			return all(q, keys, values)
		})},
		gate.RopeOffByOne: {w, reference.Hooks{At: func(l int, p reference.Point, v []float64) {
			if p == reference.Query && l == 1 {
				copy(v, reference.Rope(v, 1, models.RopeInvFreq(shape)))
			}
			kernel.At(l, p, v)
		}}},
		gate.NormGainSkipped: {skipped, kernel},
		gate.MergeWeightWrong: {w, attend(func(q []float64, keys, values [][]float64) []reference.State {
			cut := len(keys) / 2
			left, right := all(q, keys[:cut], values[:cut]), all(q, keys[cut:], values[cut:])
			for h := range left {
				left[h].LSE += math.Log(1.25)
				left[h] = reference.MergeStates(shape.HeadDim, left[h], right[h])
			}
			return left
		})},
		gate.PagesSwapped: {w, attend(func(q []float64, keys, values [][]float64) []reference.State {
			if len(values) >= 2*page {
				values = slices.Concat(values[page:2*page], values[:page], values[2*page:])
			}
			return all(q, keys, values)
		})},
	}
}

// The whole gate on the CPU: rounding as a kernel stores passes against rounding as a framework does, and every fault
// planted into it fails. This is a test of the gate and of the synthetic weights; the GPU's records repeat it with the
// real kernel. tiny averages rounding errors over few heads, so that a right kernel flips a sure token about once in
// 8000 positions: of the seeds 1 to 6 the first fails by that rule.
func TestGateCatchesPlantedFaults(t *testing.T) {
	if !deep.On() {
		t.Skip("2048 positions, eight times")
	}
	seed := *seedFlag
	w := reference.Synthetic(shape, seed)
	o := variant{w, reference.Hooks{}}.logits(t, seed)
	h := variant{w, reference.FrameworkRounding(shape)}.logits(t, seed)
	own := ownRoundings(t, w, seed, o)
	judge := func(v variant) gate.Result {
		g := gate.New(gate.DefaultRules())
		for q, rows := range v.logits(t, seed) {
			for p, k := range rows {
				require.NoError(t, g.Add(q, p, o[q][p], h[q][p], k, own[q][p]))
			}
		}
		return g.Result()
	}
	ours := judge(variant{w, reference.KernelRounding()})
	faults := map[string]gate.Result{}
	planted := faulty(w)
	for _, name := range gate.Faults() {
		faults[name] = judge(planted[name])
		f := faults[name]
		t.Logf("%-20s mean KL %.3e, 99th percentile %.3e, %d flips of %d", name, f.KLOurs, f.P99Ours, f.Flips, f.Sure)
	}
	record := gate.NewRecord(ours, slices.Repeat([]int{length}, sequences), gate.Faults(), faults)
	data, err := json.Marshal(record)
	require.NoError(t, err)
	t.Logf("%s", data)
	require.True(t, record.Passed, record.Reasons)
	require.Equal(t, gate.Faults(), record.FaultsCaught)

	// One position in 64 without the first page is named, and so are those that see its keys.
	f := judge(variant{w, firstPageDropped()})
	t.Logf("first page dropped at 1 of 64 positions: mean KL %.3e, kernel's %.3e: %q", f.KLOurs, ours.KLOurs, f.Reasons)
	require.False(t, f.Passed)
	require.Contains(t, strings.Join(f.Reasons, "; "), "positions with KL(o‖k) beyond their limits, the worst sequence ")
	require.Equal(t, 40, *f.WorstPosition.Position%64)
}

// firstPageDropped is the kernel that reads no first page at one position of 64.
func firstPageDropped() reference.Hooks {
	h := reference.KernelRounding()
	h.Attend = func(_ int, q []float64, keys, values [][]float64) []float64 {
		if len(keys)%64 == 41 {
			keys, values = keys[page:], values[page:]
		}
		return reference.Concat(reference.Attention(q, keys, values, shape.Heads, shape.KVHeads))
	}
	return h
}

// With -reference: the same with o and h of Hugging Face, read from their files.
func TestKernelRoundingAgainstReference(t *testing.T) {
	if *referenceDir == "" {
		t.Skip("no -reference")
	}
	r, err := gate.OpenReference(*referenceDir)
	require.NoError(t, err)
	hash, err := synth.SampleHash(r.Seed, synth.Tensors(shape), nil)
	require.NoError(t, err)
	require.Equal(t, hash, r.WeightsHash, "the reference is of tiny")
	exact, kernel, bf16 := gate.New(gate.DefaultRules()), gate.New(gate.DefaultRules()), gate.New(gate.DefaultRules())
	var torch, ours []float64 // KL(o‖s), of torch in float32 and of float64
	w := reference.Synthetic(shape, r.Seed)
	for q := range r.Sequences {
		tokens, err := r.Tokens(q)
		require.NoError(t, err)
		require.Equal(t, tokens, synth.Tokens(r.Seed, q, len(tokens), shape.Vocab))
		a := decode(t, variant{w, reference.Hooks{}}, tokens)
		b := decode(t, variant{w, reference.AsKernel(shape)}, tokens)
		own, err := r.Own(q)
		require.NoError(t, err)
		torch = append(torch, own...)
		require.NoError(t, r.EachRow(q, func(p int, o, h []float32) error {
			s := own[p-r.Sequences[q].First]
			ours = append(ours, divergences(t, [][]float32{o}, b[p:p+1])...)
			return errors.Join(exact.Add(q, p, o, h, a[p], s), kernel.Add(q, p, o, h, b[p], s), bf16.Add(q, p, o, h, h, s))
		}))
	}
	t.Logf("float64:         %+v", exact.Result())
	t.Logf("kernel rounding: %+v", kernel.Result())
	t.Logf("h itself:        %+v", bf16.Result())
	mean := func(v []float64) (sum float64) {
		for _, x := range v {
			sum += x / float64(len(v))
		}
		return sum
	}
	t.Logf("mean KL(o‖s): torch's %.4g, float64's %.4g", mean(torch), mean(ours))
	require.InEpsilon(t, mean(ours), mean(torch), 0.05)
	require.Less(t, exact.Result().KLOurs, 1e-9)
	require.Zero(t, exact.Result().Flips)
	require.Less(t, kernel.Result().KLOurs, kernel.Result().KLReference)
}
