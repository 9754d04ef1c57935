package quantise

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/quant"
	"github.com/stretchr/testify/require"
)

const tiny = "../bundled/tiny"

// quantised quantises a checkpoint and opens what was written.
func quantised(t *testing.T, dir string, o Options) (string, *Report, *quant.Checkpoint) {
	out := filepath.Join(t.TempDir(), "made", "out")
	r, err := Checkpoint(t.Context(), dir, out, o)
	require.NoError(t, err)
	return out, r, open(t, out)
}

func open(t *testing.T, dir string) *quant.Checkpoint {
	c, err := quant.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func format(t *testing.T, name string) Format {
	f, err := Parse(name)
	require.NoError(t, err)
	return f
}

// copied is a copy of a directory.
func copied(t *testing.T, from string) string {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(from)))
	return dir
}

// weights reads all of a matrix.
func weights(t *testing.T, m *quant.Matrix) []float32 {
	all := make([]float32, m.Rows*m.Cols)
	for r := range m.Rows {
		require.NoError(t, m.Row(r, all[r*m.Cols:][:m.Cols]))
	}
	return all
}

// TestWhatIsWrittenIsReadBack by the reader that is tested on the formats' own packages: its weights have the errors
// that the report tells, and everything else is as it was.
func TestWhatIsWrittenIsReadBack(t *testing.T) {
	source := open(t, tiny)
	for name, want := range map[string]string{"i4g32": "i4g32 with bf16 scales", "i8": "i8 a row with bf16 scales",
		"e4m3": "e4m3 a row with bf16 scales"} {
		out, r, c := quantised(t, tiny, Options{Format: format(t, name)})
		require.Len(t, r.Tensors, 14)
		require.Equal(t, source.Names(), c.Names())
		for _, cost := range r.Tensors {
			m := c.Matrix(cost.Tensor)
			require.Equal(t, want, m.Format.String())
			squared, norm, largest := 0.0, 0.0, 0.0
			is := weights(t, m)
			for i, x := range weights(t, source.Matrix(cost.Tensor)) {
				d := float64(x) - float64(is[i])
				squared, norm, largest = squared+d*d, norm+float64(x)*float64(x), max(largest, math.Abs(d))
			}
			require.InEpsilon(t, squared/norm, cost.Relative, 1e-9, cost.Tensor)
			require.Equal(t, largest, cost.Largest)
			require.InDelta(t, math.Sqrt(norm/float64(len(is))), cost.RootSquare, 1e-9)
		}
		for _, name := range c.Names() {
			if m := c.Matrix(name); !m.Format.Quantised() {
				require.Equal(t, weights(t, source.Matrix(name)), weights(t, m), name)
			}
		}
		requireCopied(t, tiny, out)
		m, err := quant.OpenModel(out, models.Reading{})
		require.NoError(t, err)
		require.NoError(t, m.Close())
	}
}

// requireCopied wants every file but weights and configuration to be as it was.
func requireCopied(t *testing.T, from, to string) {
	entries, err := os.ReadDir(from)
	require.NoError(t, err)
	require.Greater(t, len(entries), 4)
	for _, e := range entries {
		want, err := os.ReadFile(filepath.Join(from, e.Name()))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(to, e.Name()))
		require.NoError(t, err)
		if e.Name() != checkpoint.SingleFile && e.Name() != checkpoint.ConfigFile {
			require.Equal(t, want, got, e.Name())
		}
	}
}

// TestShardsDoNotMatter compares weights of several files with those of one, digests and types of scales too.
func TestShardsDoNotMatter(t *testing.T) {
	for _, dir := range []string{tiny, "../checkpoint/testdata/sharded_f16", "../checkpoint/testdata/single_f32"} {
		o := Options{Format: format(t, "i8"), Digests: true}
		_, one, single := quantised(t, dir, o)
		o.ShardBytes = 2000
		out, several, sharded := quantised(t, dir, o)
		files, err := filepath.Glob(filepath.Join(out, "model-*-of-*.safetensors"))
		require.NoError(t, err)
		require.Greater(t, len(files), 1, dir)
		require.Equal(t, one, several)
		require.NotEmpty(t, one.Tensors[0].Digest)
		for _, name := range single.Names() {
			a, b := single.Matrix(name), sharded.Matrix(name)
			require.Equal(t, a.Format, b.Format)
			require.Equal(t, weights(t, a), weights(t, b), name)
		}
	}
}

func TestProcessorsDoNotMatter(t *testing.T) {
	var bytes [][]byte
	for _, n := range []int{1, 3} {
		before := runtime.GOMAXPROCS(n)
		out, _, _ := quantised(t, tiny, Options{Format: format(t, "i4g32")})
		runtime.GOMAXPROCS(before)
		text, err := os.ReadFile(filepath.Join(out, checkpoint.SingleFile))
		require.NoError(t, err)
		bytes = append(bytes, text)
	}
	require.Equal(t, bytes[0], bytes[1])
}

// TestTheConfigurationIsThatOfThePackage compares it with what compressed-tensors 0.20.0 wrote of the same formats.
func TestTheConfigurationIsThatOfThePackage(t *testing.T) {
	for name, fixture := range map[string]string{"i4g128": "ct_i4g128", "i8": "ct_i8_row", "e4m3": "ct_e4m3_row"} {
		text, err := os.ReadFile(filepath.Join("../quant/testdata", fixture, "config.json"))
		require.NoError(t, err)
		var theirs map[string]any
		require.NoError(t, json.Unmarshal(text, &theirs))
		want := theirs["quantization_config"].(map[string]any)
		// ours are of weights only
		want["config_groups"].(map[string]any)["group_0"].(map[string]any)["input_activations"] = nil
		delete(theirs, "quantization_config")
		plain, err := json.Marshal(theirs)
		require.NoError(t, err)
		var ignored []string
		for _, module := range want["ignore"].([]any) {
			ignored = append(ignored, module.(string))
		}
		ours, err := configWith(plain, format(t, name), ignored)
		require.NoError(t, err)
		theirs["quantization_config"] = want
		expected, err := json.Marshal(theirs)
		require.NoError(t, err)
		require.JSONEq(t, string(expected), string(ours), name)
	}
}

func TestTheHead(t *testing.T) {
	const untied = "../checkpoint/testdata/single_bf16"
	_, r, c := quantised(t, untied, Options{Format: format(t, "i8")})
	require.Equal(t, []string{"lm_head"}, r.Ignored)
	require.Equal(t, "bf16", c.Matrix("lm_head.weight").Format.String())
	_, r, c = quantised(t, untied, Options{Format: format(t, "i8"), Head: true})
	require.Empty(t, r.Ignored)
	require.True(t, c.Matrix("lm_head.weight").Format.Quantised())
	require.Equal(t, "bf16", c.Matrix("model.embed_tokens.weight").Format.String())
	_, err := Checkpoint(t.Context(), tiny, filepath.Join(t.TempDir(), "x"), Options{Format: format(t, "i8"), Head: true})
	require.EqualError(t, err,
		"checkpoint ../bundled/tiny: lm_head.weight: found nothing, want it, to be quantised; the head is the embedding here")
}

func TestRefused(t *testing.T) {
	above := t.TempDir()
	out := filepath.Join(above, "out")
	_, err := Checkpoint(t.Context(), tiny, out, Options{Format: format(t, "i4g128")})
	require.ErrorContains(t, err,
		"model.layers.0.mlp.down_proj.weight: found 352 columns, want a multiple of 128; the format is i4g128")
	require.ErrorContains(t, err, "model.layers.1.self_attn.q_proj.weight: found 96 columns")
	_, err = Checkpoint(t.Context(), "../quant/testdata/gptq_i4g32", out, Options{Format: format(t, "i8")})
	require.EqualError(t, err,
		"checkpoint ../quant/testdata/gptq_i4g32: found weights that are quantised already (gptq), want those that they were made from")
	ended, end := context.WithCancel(t.Context())
	end()
	_, err = Checkpoint(ended, tiny, out, Options{Format: format(t, "i8")})
	require.ErrorIs(t, err, context.Canceled)
	_, err = Checkpoint(t.Context(), above+"/nobody", out, Options{Format: format(t, "i8")})
	require.ErrorContains(t, err, "nobody: found no such directory, want one with config.json and safetensors files")
	dangling := copied(t, tiny)
	require.NoError(t, os.Symlink("nothing", filepath.Join(dangling, "merges.txt")))
	_, err = Checkpoint(t.Context(), dangling, out, Options{Format: format(t, "i8")})
	require.EqualError(t, err, "checkpoint "+dangling+
		": merges.txt: found a symbolic link to nothing, want a file; is the download complete?")
	_, err = Checkpoint(t.Context(), tiny, tiny, Options{Format: format(t, "i8")})
	require.ErrorContains(t, err, "want an empty directory or none")
	null := copied(t, tiny)
	require.NoError(t, os.WriteFile(filepath.Join(null, checkpoint.ConfigFile), []byte("null"), 0o644))
	_, err = Checkpoint(t.Context(), null, out, Options{Format: format(t, "i8")})
	require.EqualError(t, err, "checkpoint "+null+": config.json: found null, want an object of UTF-8 text")

	entries, err := os.ReadDir(above)
	require.NoError(t, err)
	require.Empty(t, entries, "something is left of what failed")
	_, err = Parse("i5")
	require.EqualError(t, err, `found "i5", want one of i4g128, i4g64, i4g32, i8, e4m3`)
}

// TestWeightsThatAreNotFiniteAreRefused changes the end of a copy's file: a matrix, and the norm behind it, which
// is not rounded.
func TestWeightsThatAreNotFiniteAreRefused(t *testing.T) {
	for want, end := range map[string]int{"model.layers.1.self_attn.q_proj.weight: found NaN at [": 20_000,
		"model.norm.weight: found NaN at [0, 94], want finite weights": 4} {
		dir, above := copied(t, tiny), t.TempDir()
		path := filepath.Join(dir, checkpoint.SingleFile)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		copy(text[len(text)-end:], "\xc0\x7f\xc0\x7f")
		require.NoError(t, os.WriteFile(path, text, 0o644))
		_, err = Checkpoint(t.Context(), dir, filepath.Join(above, "out"), Options{Format: format(t, "i4g32")})
		require.ErrorContains(t, err, want)
		entries, err := os.ReadDir(above)
		require.NoError(t, err)
		require.Empty(t, entries)
	}
}

// TestModelsThatAreNotWhatTheirConfigurationSaysAreRefused before anything is rounded; of other families nothing is
// known.
func TestModelsThatAreNotWhatTheirConfigurationSaysAreRefused(t *testing.T) {
	for _, c := range []struct{ file, old, new, want string }{
		{checkpoint.ConfigFile, `"hidden_size": 96,`, ``, "config.json: hidden_size: found nothing, want"},
		{checkpoint.ConfigFile, `"num_attention_heads": 6`, `"num_attention_heads": -6`,
			"config.json: num_attention_heads: found -6, want"},
		{checkpoint.ConfigFile, `"intermediate_size": 352`, `"intermediate_size": 351`, "want"},
		{checkpoint.ConfigFile, `"num_hidden_layers": 2`, `"num_hidden_layers": 3`,
			"model.layers.2.mlp.down_proj.weight: found nothing, want it, of shape [96 352]"},
		{checkpoint.ConfigFile, `"vocab_size": 320`, `"vocab_size": 319`,
			"model.embed_tokens.weight: found 320 rows of 96, want 319 of 96"},
		{checkpoint.SingleFile, `model.layers.1.mlp.up_proj.weight`, `model.layers.1.mlp.op_proj.weight`,
			"model.layers.1.mlp.up_proj.weight: found nothing"},
		{checkpoint.ConfigFile, `"hidden_size"`, `"tilt": 1, "hidden_size"`, "config.json: tilt: found 1, want a field known to this program"},
		{checkpoint.ConfigFile, `"llama"`, `"unheard_of"`, ""},
	} {
		dir := copied(t, tiny)
		path := filepath.Join(dir, c.file)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Contains(t, string(text), c.old)
		require.NoError(t, os.WriteFile(path, bytes.Replace(text, []byte(c.old), []byte(c.new), 1), 0o644))
		o := Options{Format: format(t, "i8")}
		_, err = Checkpoint(t.Context(), dir, filepath.Join(t.TempDir(), "out"), o)
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "checkpoint "+dir+": ")
		require.ErrorContains(t, err, c.want)
		if o.Reading.Ignore = []string{"tilt"}; strings.Contains(c.new, "tilt") {
			_, err = Checkpoint(t.Context(), dir, filepath.Join(t.TempDir(), "out"), o)
			require.NoError(t, err)
		}
	}
}
