package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/synth"
)

// digest is the SHA-256 of a whole tensor as Row delivers it.
func digest(t *testing.T, c *Checkpoint, name string) string {
	sum := sha256.New()
	row := make([]half.BF16, c.tensors[name].cols)
	for i := range c.tensors[name].rows {
		require.NoError(t, c.Row(name, i, row))
		sum.Write(BF16Bytes(row))
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func TestRowsEqualWhatTorchRoundsThemTo(t *testing.T) {
	text, err := os.ReadFile("testdata/golden.json")
	require.NoError(t, err)
	var golden map[string]map[string]string
	require.NoError(t, json.Unmarshal(text, &golden))
	require.Len(t, golden, len(fixtures()))
	for _, fixture := range fixtures() {
		c := open(t, filepath.Join("testdata", fixture))
		require.Len(t, c.order, len(tensorsOf(c.Config())))
		for _, name := range c.order {
			require.Equal(t, golden[fixture][name], digest(t, c, name), "%s %s", fixture, name)
		}
	}
}

func TestFixturesHoldTheTypesAndFilesTheyAreFor(t *testing.T) {
	types := map[string][]models.DType{
		"single_bf16": {models.BF16}, "sharded_f16": {models.F16}, "tied_bf16": {models.BF16},
		"single_f32": {models.BF16, models.F16, models.F32}, "tied_head_f32": {models.F32},
	}
	for _, fixture := range fixtures() {
		c := open(t, filepath.Join("testdata", fixture))
		var found []models.DType
		for _, name := range c.order {
			found = append(found, c.tensors[name].from)
		}
		slices.Sort(found)
		require.Equal(t, types[fixture], slices.Compact(found), fixture)
		require.Equal(t, map[bool]int{true: 3, false: 1}[fixture == "sharded_f16"], len(c.files), fixture)
		require.NoError(t, c.Check(t.Context(), nil), fixture)
	}
}

func TestTiedHeadIsTheEmbedding(t *testing.T) {
	for _, fixture := range []string{"tied_bf16", "tied_head_f32"} {
		c := open(t, filepath.Join("testdata", fixture))
		require.True(t, c.Config().TieEmbeddings)
		require.Equal(t, digest(t, c, embedName), digest(t, c, headName))
	}
}

func TestNeededTensorsAreThoseOfTheGenerator(t *testing.T) {
	for _, fixture := range []string{"single_bf16", "tied_bf16"} {
		c := configOf(t, fixture)
		dims := c
		want := map[string][]int{}
		for _, tensor := range synth.Tensors(dims) {
			want[tensor.Name] = tensor.Shape
		}
		have := map[string][]int{}
		for _, w := range tensorsOf(c) {
			have[w.name] = w.shape
		}
		require.Equal(t, want, have)
	}
}

func TestBytesCountsWhatIsNeeded(t *testing.T) {
	for fixture, size := range map[string]int64{"single_bf16": 2, "sharded_f16": 2, "tied_bf16": 2, "tied_head_f32": 4} {
		c := open(t, filepath.Join("testdata", fixture))
		require.Equal(t, size*c.Config().ParamCount(), c.Bytes(), fixture)
	}
}

func TestConfigIsACopy(t *testing.T) {
	c := open(t, "testdata/single_bf16")
	c.Config().EOS[0] = -7
	require.Equal(t, configOf(t, "single_bf16"), c.Config())
}

func TestRowRefusesWhatIsNotThere(t *testing.T) {
	c := open(t, "testdata/single_bf16")
	cases := []struct {
		name        string
		row, length int
		message     string
	}{
		{"model.norm.bias", 0, 16,
			`checkpoint: tensor "model.norm.bias": found no such tensor, want one of the 21 of config.json`},
		{embedName, -1, 16, "checkpoint: model.embed_tokens.weight: found row -1 asked for, want 0 to 39"},
		{embedName, 40, 16, "checkpoint: model.embed_tokens.weight: found row 40 asked for, want 0 to 39"},
		{"model.norm.weight", 1, 16, "checkpoint: model.norm.weight: found row 1 asked for, want 0 to 0"},
		{embedName, 0, 15, "checkpoint: model.embed_tokens.weight: found a destination of 15 elements, want 16"},
		{embedName, 0, 0, "checkpoint: model.embed_tokens.weight: found a destination of 0 elements, want 16"},
	}
	for _, k := range cases {
		require.EqualError(t, c.Row(k.name, k.row, make([]half.BF16, k.length)), k.message)
	}
}

func TestUseAfterCloseIsAnError(t *testing.T) {
	c, err := Open("testdata/sharded_f16")
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.Row(embedName, 0, make([]half.BF16, 16)), ErrClosed)
	require.ErrorIs(t, c.Check(t.Context(), nil), ErrClosed)
	require.Equal(t, 16, c.Config().Hidden)
	require.Positive(t, c.Bytes())
}

func TestCloseWaitsForRowsUnderWay(t *testing.T) {
	for range 20 {
		c, err := Open("testdata/single_f32")
		require.NoError(t, err)
		var started, done sync.WaitGroup
		for range 4 {
			started.Add(1)
			done.Go(func() {
				row := make([]half.BF16, 16)
				err := c.Row(embedName, 0, row)
				started.Done()
				for i := 1; err == nil; i++ {
					err = c.Row(embedName, i%40, row)
				}
				require.ErrorIs(t, err, ErrClosed)
			})
		}
		started.Wait()
		require.NoError(t, c.Close())
		done.Wait()
	}
}

func TestConcurrentReadersSeeTheSameRows(t *testing.T) {
	c := open(t, "testdata/single_f32")
	want := map[string]string{}
	for _, name := range c.order {
		want[name] = digest(t, c, name)
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for _, name := range c.order {
				require.Equal(t, want[name], digest(t, c, name), name)
			}
		})
	}
	group.Wait()
}

// A multimodal checkpoint's text part reads as the model of text alone, whichever way its tensors are named.
func TestTextPartOfAMultimodalCheckpoint(t *testing.T) {
	config, err := os.ReadFile(filepath.Join("testdata", "single_bf16", ConfigFile))
	require.NoError(t, err)
	list := full(t, "single_bf16", models.BF16)
	want := open(t, single(t, "single_bf16", list))
	for _, rename := range []func(name string) string{
		func(name string) string { return "language_model." + name },
		func(name string) string {
			if after, ok := strings.CutPrefix(name, "model."); ok {
				return "model.language_model." + after
			}
			return name
		},
		func(name string) string { return strings.Replace(name, "model.", "model.text_model.", 1) }, // Idefics 2 and 3
		func(name string) string { return name },                                                    // Qwen 2 VL
		func(name string) string { return "thinker." + name },
	} {
		renamed := []Tensor{filled("model.vision_tower.embeddings.weight", models.F32, []int{3, 5},
			func() float32 { return 1 }), filled("model.visual.layers.0.input_layernorm.weight", models.F32, []int{3},
			func() float32 { return 1 })}
		for _, tensor := range list {
			tensor.Name = rename(tensor.Name)
			renamed = append(renamed, tensor)
		}
		dir := single(t, "single_bf16", renamed)
		whole := `{"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"], "vision_config": {"hidden_size": 8}, "text_config": ` + string(config) + "}"
		require.NoError(t, os.WriteFile(filepath.Join(dir, ConfigFile), []byte(whole), 0o600))
		got := open(t, dir)
		require.True(t, got.Config().TextPart)
		require.Equal(t, digest(t, want, embedName), digest(t, got, embedName))
		require.Equal(t, digest(t, want, upName), digest(t, got, upName))
		require.Equal(t, digest(t, want, headName), digest(t, got, headName))
	}
}
