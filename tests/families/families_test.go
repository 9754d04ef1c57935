package families

import (
	"slices"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

func cases(t *testing.T) []Case {
	t.Helper()
	all, err := All()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	return all
}

// difference is Case.Difference.
func difference(t *testing.T, c *Case, config models.Config) float64 {
	t.Helper()
	diff, err := c.Difference(config)
	require.NoError(t, err)
	return diff
}

func TestReferenceEqualsTransformersForEveryFamily(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range cases(t) {
		t.Run(c.Name, func(t *testing.T) {
			config, err := c.Config(nil)
			require.NoError(t, err)
			seen[config.Family] = true
			diff := difference(t, &c, config)
			t.Logf("greatest difference %.1e of a standard deviation", diff)
			require.Less(t, diff, 2e-5) // transformers normalises, rotates and takes softmax in float32
		})
	}
	for _, f := range models.Families() {
		require.True(t, seen[f.Name], "no case of family %s", f.Name)
	}
}

func TestTensorsAreThoseOfTransformers(t *testing.T) {
	for _, c := range cases(t) {
		config, err := c.Config(nil)
		require.NoError(t, err)
		got := map[string][]int{}
		for _, tensor := range config.Stored() {
			got[tensor.Name] = tensor.Shape
		}
		require.Equal(t, c.Shapes(), got, c.Name)
	}
}

// What transformers 5 saves of a published file reads as that file, but for tokens and the like.
func TestSavedConfigsReadAsTheirOriginals(t *testing.T) {
	for _, c := range cases(t) {
		want, err := models.Parse(strings.NewReader(string(c.Published)))
		require.NoError(t, err, c.Name)
		got, err := models.Parse(strings.NewReader(string(c.Saved)))
		require.NoError(t, err, c.Name)
		got.BOS, got.EOS, got.CheckpointDType = want.BOS, want.EOS, want.CheckpointDType
		require.Equal(t, want, got, c.Name)
	}
}

// A golden that the wrong mathematics also meets would be no golden: every change of the description shows.
func TestGoldensSeeEveryFeature(t *testing.T) {
	all := cases(t)
	find := func(name string) *Case {
		i := slices.IndexFunc(all, func(c Case) bool { return c.Name == name })
		require.GreaterOrEqual(t, i, 0, name)
		return &all[i]
	}
	for _, f := range []struct {
		name, golden string
		wrong        func(c *models.Config)
	}{
		{"biases dropped", "qwen2", func(c *models.Config) { c.Traits.QKVBias = false }},
		{"bias of o dropped", "llama-bias", func(c *models.Config) { c.Traits.OBias = false }},
		{"biases of the MLP dropped", "llama-bias", func(c *models.Config) { c.Traits.MLPBias = false }},
		{"norms of q and k dropped", "qwen3", func(c *models.Config) { c.Traits.QKNorm = models.NoQKNorm }},
		{"1+w taken as w", "gemma3", func(c *models.Config) { c.Traits.PlusOne = false }},
		{"window off by one", "mistral", func(c *models.Config) { c.Traits.Kinds[0].Window++ }},
		{"window off by one in some layers", "gemma2", func(c *models.Config) { c.Traits.Kinds[0].Window-- }},
		{"window left out", "phi3", func(c *models.Config) { c.Traits.Kinds = nil; c.Traits.Pattern = nil }},
		{"windows of the other layers", "ministral", func(c *models.Config) { c.Traits.Pattern = []int{1, 0, 0, 0} }},
		{"local rope base left out", "gemma3", func(c *models.Config) { c.Traits.Kinds[0].Rope = nil }},
		{"rope in every layer", "smollm3", func(c *models.Config) { c.Traits.Kinds[1].NoRope = false }},
		{"soft cap of scores left out", "gemma2", func(c *models.Config) { c.Traits.AttnSoftCap = 0 }},
		{"soft cap of logits left out", "gemma2", func(c *models.Config) { c.Traits.LogitSoftCap = 0 }},
		{"embedding not scaled", "gemma", func(c *models.Config) { c.Traits.EmbedScale = 1 }},
		{"SiLU for GELU", "gemma", func(c *models.Config) { c.Traits.Act = models.SiLU }},
		{"plain scale of scores", "gemma3", func(c *models.Config) { c.Traits.AttnScale = 0 }},
		{"q, k and v one below the other", "internlm2", func(c *models.Config) { c.ByKVHead = false }},
		{"halves instead of neighbours", "helium", func(c *models.Config) { c.Rope.Interleaved = false }},
		{"a layer's positions rotated", "granite4-nope", func(c *models.Config) {
			c.Traits.Kinds, c.Traits.Pattern = nil,
				nil
		}},
		{"residuals not scaled", "granite", func(c *models.Config) { c.Traits.ResidualScale = 0 }},
		{"logits not scaled", "granite", func(c *models.Config) { c.Traits.LogitScale = 0 }},
		{"halves for neighbours", "glm4", func(c *models.Config) { c.Rope.Interleaved = false }},
		{"the whole head rotated", "glm", func(c *models.Config) { c.Rope.Dims = 0 }},
		{"linear scaling left out", "llama-linear", func(c *models.Config) { c.Rope.Scaling = nil }},
		{"dynamic scaling left out", "llama-dynamic", func(c *models.Config) { c.Rope.Scaling = nil }},
		{"yarn's attention factor left out", "llama-yarn", func(c *models.Config) { c.Rope.Scaling.AttentionFactor = 1 }},
		{"scores that do not grow", "ministral3", func(c *models.Config) { c.Traits.Grows = models.Growth{} }},
		{"short factors for long ones", "phi4-mini", func(c *models.Config) { c.MaxPositions = 16 }},
	} {
		c := find(f.golden)
		config, err := c.Config(nil)
		require.NoError(t, err)
		f.wrong(&config)
		got, err := c.Difference(config)
		require.NoError(t, err, f.name)
		require.Greater(t, got, 1e-3, f.name)
	}
}
