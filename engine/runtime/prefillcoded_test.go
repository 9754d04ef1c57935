package runtime_test

import (
	"math"
	"testing"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// roundingByToken rounds inputs of a layer's products as prefill kernels of e4m3 do: a token's elements, before the
// norm's scale rounded to bf16, over their largest magnitude over 448, to e4m3.
func roundingByToken() reference.Hooks {
	var residual, scale float64
	return reference.Hooks{At: func(_ int, p reference.Point, v []float64) {
		switch p {
		case reference.Embedded, reference.AttnResidual, reference.MLPResidual:
			residual = norm(v)
		case reference.Normalised:
			scale = norm(v) / residual
		case reference.AttnNorm, reference.MLPNorm:
			roundByToken(v, scale)
		case reference.AttnOut, reference.Activated:
			roundByToken(v, 1)
		}
	}}
}

func roundByToken(v []float64, scale float64) {
	most := 0.0
	for i := range v {
		v[i] = float64(half.BF16Of(float32(v[i] / scale)).Float32())
		most = max(most, math.Abs(v[i]))
	}
	for i := range v {
		v[i] = float64(pipeline.FromE4M3(pipeline.ToE4M3(float32(v[i]*448/most)))) * most / 448 * scale
	}
}

func norm(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x * x
	}
	return math.Sqrt(sum)
}

// Where the inputs of products are e4m3 with a scale a token, keys and values of the first layer are those of the
// float64 reference whose inputs are rounded so, and far from the one whose inputs are not. What bf16 rounds changes
// codes of later layers, each by an eighth, so their logits are nearer to the first reference than to the other one,
// and no more.
func TestAPromptWithActivationsInE4M3(t *testing.T) {
	ofValues(t)
	const pages = 12
	tokens := synth.Tokens(3, 0, 150, 320)
	table := make([]uint32, pages-1)
	for i := range table {
		table[i] = uint32((5*i + 3) % pages)
	}
	options := deep.Most([]megakernel.PrefillOptions{{Tokens: 128}, {Tokens: 64, Groups: 1, Cluster: 1},
		{Tokens: 64, Groups: 1, Cluster: 2}}, 1)
	for _, o := range options {
		o.Activations = pipeline.FormatE4M3
		r, _, _, sim, mk := prefillOfTinyIn(t, pipeline.FormatE4M3, o, 16, pages)
		weights, rounded := reference.Synthetic(mk.Config, 1), mk.Rounded(synth.NewWeights(1, mk.Config))
		for _, tensor := range synth.Tensors(mk.Config) {
			columns := tensor.Shape[len(tensor.Shape)-1]
			for row := range len(weights[tensor.Name]) / columns {
				require.NoError(t, rounded.Row(tensor.Name, row, weights[tensor.Name][row*columns:][:columns]))
			}
		}
		var refs [2]*reference.Model
		var want [2][]float64
		for i, hooks := range []reference.Hooks{roundingByToken(), {}} {
			var err error
			refs[i], err = reference.NewModel(mk.Config, weights, hooks)
			require.NoError(t, err)
			for _, token := range tokens {
				want[i] = refs[i].Step(token)
			}
		}
		for cached, i := 0, 0; cached < len(tokens); i++ {
			n := min([]int{64, 17, 40, 29}[i], o.Tokens)
			_, err := r.Run(t.Context(), tokens[cached:cached+n], cached, table, cached+n < len(tokens))
			require.NoError(t, err)
			cached += n
		}
		var first, last [2]float64 // of each reference: relative errors of layer 0's keys and values, and of logits
		for i, ref := range refs {
			var rows, have [][]float64
			keys, values := ref.Cache(0)
			for token := range tokens {
				for v, row := range [2][]float64{keys[token], values[token]} {
					rows, have = append(rows, row), append(have, cacheOf(t, sim, mk, pages, table, 0, token, v))
				}
			}
			first[i] = relative(rows, have)
			got := make([]float32, mk.Config.Vocab)
			require.NoError(t, r.Logits(0, got))
			last[i] = relative(want[i:i+1], [][]float64{widened(got)})
		}
		t.Logf("%+v: relative errors of first keys and values %.2g, of logits %.2g", o, first, last)
		require.Less(t, first[0], 0.004)
		require.Greater(t, first[1], 0.02)
		require.Less(t, last[0], last[1])
		require.Less(t, last[1], 0.25)
	}
}

// The planted fault of token scales leaves the first layer's keys and values as they are and changes the second's, and
// a kernel whose inputs are bf16 has none.
func TestTheScaleOfANeighbouringTokenChangesWhatLiesBehindIt(t *testing.T) {
	ofValues(t)
	const pages = 4
	tokens, table := synth.Tokens(3, 0, 40, 320), []uint32{3, 0, 1}
	var rows [2][2][][]float64 // without and with the fault, of each layer
	for i, fault := range []megakernel.Fault{megakernel.NoFault, megakernel.FaultTokenScale} {
		o := megakernel.PrefillOptions{Tokens: 64, Groups: 1, Cluster: 1, Activations: pipeline.FormatE4M3}
		r, _, _, sim, mk := prefillWith(t, megakernel.Options{SMs: 4, Page: 16, Weights: pipeline.FormatE4M3, Fault: fault},
			runtime.Options{}, o, pages)
		_, err := r.Run(t.Context(), tokens, 0, table, false)
		require.NoError(t, err)
		for layer := range rows[i] {
			for token := range tokens {
				for v := range 2 {
					rows[i][layer] = append(rows[i][layer], cacheOf(t, sim, mk, pages, table, layer, token, v))
				}
			}
		}
		o.Activations = ""
		_, err = megakernel.BuildPrefill(mk, o)
		require.Equal(t, fault != megakernel.NoFault, err != nil, "%v", err)
	}
	require.Equal(t, rows[0][0], rows[1][0])
	require.Greater(t, relative(rows[0][1], rows[1][1]), 0.05)
}
