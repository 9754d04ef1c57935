package reference

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
)

// hfGolden is a file that testdata/make_tiny_hf.py wrote.
type hfGolden struct {
	MadeBy string `json:"made_by"`
	Config struct {
		Hidden       int     `json:"hidden_size"`
		Intermediate int     `json:"intermediate_size"`
		Layers       int     `json:"num_hidden_layers"`
		Heads        int     `json:"num_attention_heads"`
		KVHeads      int     `json:"num_key_value_heads"`
		HeadDim      int     `json:"head_dim"`
		Vocab        int     `json:"vocab_size"`
		NormEps      float64 `json:"rms_norm_eps"`
		Theta        float64 `json:"rope_theta"`
		Tied         bool    `json:"tie_word_embeddings"`
		Scaling      *struct {
			Factor    float64 `json:"factor"`
			Low       float64 `json:"low_freq_factor"`
			High      float64 `json:"high_freq_factor"`
			Positions int     `json:"original_max_position_embeddings"`
		} `json:"rope_scaling"`
	} `json:"config"`
	Seed          uint64      `json:"seed"`
	WeightsHash   string      `json:"weights_hash"`
	Tokens        []int       `json:"tokens"`
	InvFreqBits   []uint32    `json:"inv_freq_bits"`
	FirstPosition int         `json:"first_position"`
	Logits        [][]float64 `json:"logits"`
}

func readHF(t *testing.T, file string) (hfGolden, models.Config) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file)
	require.NoError(t, err)
	var g hfGolden
	require.NoError(t, json.Unmarshal(data, &g))
	c := g.Config
	s := models.Config{
		Layers: c.Layers, Hidden: c.Hidden, Intermediate: c.Intermediate, Heads: c.Heads, KVHeads: c.KVHeads,
		HeadDim: c.HeadDim, Vocab: c.Vocab, NormEps: c.NormEps, TieEmbeddings: c.Tied,
	}
	s.MaxPositions, s.Rope.Theta = 1<<20, c.Theta
	if r := c.Scaling; r != nil {
		s.Rope.Scaling = &models.Scaling{Type: models.ScalingLlama3, Factor: r.Factor, LowFreqFactor: r.Low,
			HighFreqFactor: r.High, OriginalPositions: r.Positions}
	}
	return g, s
}

func (g hfGolden) scaling() *Scaling {
	s := g.Config.Scaling
	if s == nil {
		return nil
	}
	return &Scaling{s.Factor, s.Low, s.High, s.Positions}
}

func TestModelMatchesHuggingFace(t *testing.T) {
	for _, file := range []string{"tiny_hf.json", "tiny_mha_hf.json"} {
		t.Run(file, func(t *testing.T) {
			g, s := readHF(t, file)
			hash, err := synth.SampleHash(g.Seed, synth.Tensors(s), nil)
			require.NoError(t, err)
			require.Equal(t, g.WeightsHash, hash)
			require.Equal(t, g.Tokens, synth.Tokens(g.Seed, 0, len(g.Tokens), s.Vocab))

			m, err := NewModel(s, Synthetic(s, g.Seed), Hooks{})
			require.NoError(t, err)
			worst := 0.0
			for i, token := range g.Tokens {
				got := m.Step(token)
				if i < g.FirstPosition {
					continue
				}
				want := g.Logits[i-g.FirstPosition]
				require.Len(t, want, len(got))
				require.Equal(t, Argmax(want), Argmax(got), "position %d", i)
				worst = max(worst, relativeError(got, want))
			}
			require.Equal(t, len(g.Tokens), m.Len())
			t.Logf("greatest |difference| / greatest |logit|: %.2e (%s)", worst, g.MadeBy)
			require.Less(t, worst, 1e-5)
		})
	}
}

func TestInvFreqMatchesHuggingFace(t *testing.T) {
	for _, file := range []string{"tiny_hf.json", "tiny_mha_hf.json"} {
		g, s := readHF(t, file)
		got := InvFreq(g.Config.Theta, s.HeadDim, g.scaling())
		require.Len(t, got, len(g.InvFreqBits))
		used := models.RopeInvFreq(s)
		for i, b := range g.InvFreqBits {
			require.Equal(t, b, math.Float32bits(used[i]), "%s frequency %d", file, i)
			require.InEpsilon(t, used[i], got[i], 4e-7, "%s frequency %d", file, i) // 3 or 4 float32 roundings
		}
	}
}

// A golden that the wrong mathematics also meets would be no golden: each of these changes must move the logits
// visibly.
func TestGoldenSeesWrongMathematics(t *testing.T) {
	g, s := readHF(t, "tiny_hf.json")
	weights := Synthetic(s, g.Seed)
	unscaled, eps, interleaved := s, s, Hooks{}
	unscaled.Rope.Scaling = nil
	eps.NormEps = 1e-6
	interleaved.Attend = func(_ int, q []float64, keys, values [][]float64) []float64 {
		states := Attention(q, keys, values, s.Heads, s.KVHeads)
		states[1], states[3] = states[3], states[1] // query heads of the two KV heads mixed up
		return Concat(states)
	}
	for name, c := range map[string]struct {
		shape models.Config
		hooks Hooks
	}{"no rope scaling": {unscaled, Hooks{}}, "eps 1e-6": {eps, Hooks{}}, "wrong KV head": {s, interleaved}} {
		m, err := NewModel(c.shape, weights, c.hooks)
		require.NoError(t, err)
		for _, token := range g.Tokens[:g.FirstPosition] {
			m.Step(token)
		}
		require.Greater(t, relativeError(m.Step(g.Tokens[g.FirstPosition]), g.Logits[0]), 5e-5, name)
	}
}

// relativeError is the greatest absolute difference over the greatest absolute value of want.
func relativeError(got, want []float64) float64 {
	diff, size := 0.0, 0.0
	for i := range want {
		diff = max(diff, math.Abs(got[i]-want[i]))
		size = max(size, math.Abs(want[i]))
	}
	return diff / size
}
