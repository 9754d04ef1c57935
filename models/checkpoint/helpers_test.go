package checkpoint

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
)

// Names of Llama's two tensors that a tied checkpoint shares.
const (
	embedName = "model.embed_tokens.weight"
	headName  = "lm_head.weight"
)

// fixtures are the directories that Hugging Face transformers wrote.
func fixtures() []string {
	return []string{"single_bf16", "sharded_f16", "single_f32", "tied_bf16", "tied_head_f32"}
}

// configOf reads a fixture's configuration.
func configOf(t testing.TB, fixture string) models.Config {
	c, err := models.Reading{}.ParseFile(filepath.Join("testdata", fixture, ConfigFile))
	require.NoError(t, err)
	return c
}

// open opens dir and closes it after the test.
func open(t testing.TB, dir string) *Checkpoint {
	c, err := Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// full returns random finite weights for every tensor of a fixture's configuration.
func full(t testing.TB, fixture string, dtype models.DType) []Tensor {
	random := rand.New(rand.NewPCG(1, 2))
	var list []Tensor
	for _, w := range tensorsOf(configOf(t, fixture)) {
		list = append(list, filled(w.name, dtype, w.shape, func() float32 { return float32(random.NormFloat64()) }))
	}
	return list
}

// filled makes a tensor of values from next; as F16 it holds only the sign and the
// exponent of 1.
func filled(name string, dtype models.DType, shape []int, next func() float32) Tensor {
	n := 1
	for _, d := range shape {
		n *= d
	}
	var data []byte
	for range n {
		bits := bitsOf(next())
		switch dtype {
		case models.F32:
			data = append(data, 0, 0, byte(bits), byte(bits>>8))
		case models.F16:
			data = append(data, 0, byte(bits>>8)&0x80|0x3c)
		default:
			data = append(data, byte(bits), byte(bits>>8))
		}
	}
	return Tensor{Name: name, DType: dtype, Shape: shape, Data: data}
}

// find returns the tensor of that name in list.
func find(t testing.TB, list []Tensor, name string) *Tensor {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	require.Fail(t, "no tensor "+name)
	return nil
}

// without returns list less the tensor of that name.
func without(t testing.TB, list []Tensor, name string) []Tensor {
	find(t, list, name)
	var out []Tensor
	for _, tensor := range list {
		if tensor.Name != name {
			out = append(out, tensor)
		}
	}
	return out
}

// encode is WriteSafetensors into memory.
func encode(t testing.TB, list []Tensor) []byte {
	var b bytes.Buffer
	require.NoError(t, WriteSafetensors(&b, list))
	return b.Bytes()
}

// directory writes files and the fixture's config.json into a new directory.
func directory(t testing.TB, fixture string, files map[string][]byte) string {
	dir := t.TempDir()
	config, err := os.ReadFile(filepath.Join("testdata", fixture, ConfigFile))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, ConfigFile), config, 0o600))
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	return dir
}

// single writes a directory with model.safetensors.
func single(t testing.TB, fixture string, list []Tensor) string {
	return directory(t, fixture, map[string][]byte{SingleFile: encode(t, list)})
}

// sharded returns the files of a checkpoint cut into two, a.safetensors and
// b.safetensors, and the index's weight_map.
func sharded(t testing.TB, list []Tensor) (map[string][]byte, map[string]string) {
	half := len(list) / 2
	files := map[string][]byte{"a.safetensors": encode(t, list[:half]), "b.safetensors": encode(t, list[half:])}
	index := map[string]string{}
	for i, tensor := range list {
		index[tensor.Name] = map[bool]string{true: "a.safetensors", false: "b.safetensors"}[i < half]
	}
	return files, index
}

// indexText is the content of an index file.
func indexText(t testing.TB, weightMap map[string]string) []byte {
	text, err := json.Marshal(map[string]any{"metadata": map[string]int{"total_size": 1}, "weight_map": weightMap})
	require.NoError(t, err)
	return text
}

// refusal returns the message with which Open refuses dir, less the directory.
func refusal(t testing.TB, dir string) string {
	c, err := Open(dir)
	require.Error(t, err)
	require.Nil(t, c)
	return strings.ReplaceAll(err.Error(), "checkpoint "+dir+": ", "")
}

// bitsOf truncates x to bf16.
func bitsOf(x float32) half.BF16 { return half.ExactBF16(x) }
