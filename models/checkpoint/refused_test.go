package checkpoint

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
)

const upName = "model.layers.1.mlp.up_proj.weight"

func TestTensorsThatDoNotFitAreRefusedByName(t *testing.T) {
	number := func() float32 { return 1 }
	cases := []struct {
		fixture, message string
		change           func(t *testing.T, list []Tensor) []Tensor
	}{
		{"single_bf16", "model.layers.1.mlp.up_proj.weight: found nothing, want it, of shape [24, 16]",
			func(t *testing.T, list []Tensor) []Tensor { return without(t, list, upName) }},
		{"single_bf16", "lm_head.weight: found nothing, want it, of shape [40, 16]; only tie_word_embeddings true in config.json makes the embedding serve as LM head",
			func(t *testing.T, list []Tensor) []Tensor { return without(t, list, headName) }},
		{"single_bf16", "model.safetensors: model.layers.1.mlp.up_proj.weight: found shape [16, 24], want [24, 16]",
			func(t *testing.T, list []Tensor) []Tensor {
				find(t, list, upName).Shape = []int{16, 24}
				return list
			}},
		{"single_bf16", "model.safetensors: model.norm.weight: found shape [1, 16], want [16]",
			func(t *testing.T, list []Tensor) []Tensor {
				find(t, list, "model.norm.weight").Shape = []int{1, 16}
				return list
			}},
		{"single_bf16", "model.safetensors: model.layers.2.mlp.up_proj.weight: found BF16 of shape [24, 16], want no such tensor",
			func(t *testing.T, list []Tensor) []Tensor {
				return append(list, filled("model.layers.2.mlp.up_proj.weight", models.BF16, []int{24, 16}, number))
			}},
		{"single_bf16", "model.safetensors: model.layers.0.self_attn.q_proj.bias: found F32 of shape [16], want no such tensor; config.json says nothing of this bias",
			func(t *testing.T, list []Tensor) []Tensor {
				return append(list, filled("model.layers.0.self_attn.q_proj.bias", models.F32, []int{16}, number))
			}},
		{"single_bf16", "model.safetensors: model.layers.2.self_attn.rotary_emb.inv_freq: found F32 of shape [4], want no such tensor",
			func(t *testing.T, list []Tensor) []Tensor {
				return append(list, filled("model.layers.2.self_attn.rotary_emb.inv_freq", models.F32, []int{4}, number))
			}},
		{"tied_bf16", "model.safetensors: lm_head.weight: found shape [39, 16], want [40, 16]",
			func(t *testing.T, list []Tensor) []Tensor {
				return append(list, filled(headName, models.BF16, []int{39, 16}, number))
			}},
	}
	for _, c := range cases {
		dir := single(t, c.fixture, c.change(t, full(t, c.fixture, models.BF16)))
		require.Equal(t, c.message, refusal(t, dir))
	}
}

func TestOtherElementTypesAreRefusedByName(t *testing.T) {
	content := encode(t, full(t, "single_bf16", models.BF16))
	length := binary.LittleEndian.Uint64(content)
	for _, dtype := range []string{"I16", "F8_E4M3", "I64", "BOOL"} {
		shape, per := "[24,16]", map[string]string{"F8_E4M3": "[48,16]", "BOOL": "[48,16]", "I64": "[6,16]"}
		if per[dtype] != "" {
			shape = per[dtype]
		}
		header := strings.Replace(string(content[8:8+length]), upName+`":{"dtype":"BF16","shape":[24,16]`,
			upName+`":{"dtype":"`+dtype+`","shape":`+shape, 1)
		dir := directory(t, "single_bf16", map[string][]byte{SingleFile: append(frame(header), content[8+length:]...)})
		require.Contains(t, refusal(t, dir), "model.safetensors: "+upName+": found dtype "+dtype+", want BF16, F16 or F32")
	}
}

func TestAllProblemsComeBackTogetherUpToALimit(t *testing.T) {
	message := refusal(t, single(t, "single_bf16", full(t, "single_bf16", models.BF16)[18:]))
	require.Len(t, strings.Split(message, "\n"), 18)
	var many []Tensor
	for i := range 40 {
		many = append(many, Tensor{Name: strings.Repeat("x", i+1), DType: models.F32, Shape: []int{0}})
	}
	message = refusal(t, single(t, "single_bf16", append(many, full(t, "single_bf16", models.BF16)...)))
	require.Len(t, strings.Split(message, "\n"), 33)
	require.Contains(t, message, "\nand 8 more problems")
}

func TestModelSavedWithoutItsHeadIsExplained(t *testing.T) {
	list := full(t, "tied_bf16", models.BF16)
	for i := range list {
		list[i].Name = strings.TrimPrefix(list[i].Name, "model.")
	}
	require.Contains(t, refusal(t, single(t, "tied_bf16", list)),
		"model.embed_tokens.weight: found nothing, want it, of shape [40, 16]; without model. it is there: save the model with its LM head, such as LlamaForCausalLM, instead of the bare one\n")
}

func TestTiedHeadMustEqualTheEmbedding(t *testing.T) {
	for _, dtype := range []models.DType{models.BF16, models.F32} {
		list := full(t, "tied_bf16", dtype)
		head := *find(t, list, embedName)
		head.Name, head.Data = headName, slices.Clone(head.Data)
		list = append(list, head)
		require.NoError(t, open(t, single(t, "tied_bf16", list)).Check(t.Context(), nil))
		head.Data[17*16*dtype.Bytes()+dtype.Bytes()-1] ^= 0x80
		head.Data[20*16*dtype.Bytes()+dtype.Bytes()-1] ^= 0x80
		require.Equal(t, "model.safetensors: lm_head.weight: found another row 17 than in model.embed_tokens.weight, want equal ones, or no lm_head.weight; config.json says tie_word_embeddings true",
			refusal(t, single(t, "tied_bf16", list)))
	}
}

func TestTiedHeadMayHaveAnotherType(t *testing.T) {
	list := full(t, "tied_bf16", models.BF16)
	wide := *find(t, list, embedName)
	var data []byte
	for i := 0; i < len(wide.Data); i += 2 {
		data = append(data, 0, 0, wide.Data[i], wide.Data[i+1])
	}
	wide.Name, wide.DType, wide.Data = headName, models.F32, data
	open(t, single(t, "tied_bf16", append(list, wide)))
}

func TestIndexAndShardsMustAgree(t *testing.T) {
	cases := []struct {
		message string
		change  func(list []Tensor, files map[string][]byte, index map[string]string)
	}{
		{"b.safetensors: found no such file, want the shard that model.safetensors.index.json names",
			func(_ []Tensor, files map[string][]byte, _ map[string]string) { delete(files, "b.safetensors") }},
		{"b.safetensors: " + upName + ": found it here, want it in a.safetensors, as model.safetensors.index.json says",
			func(_ []Tensor, _ map[string][]byte, index map[string]string) { index[upName] = "a.safetensors" }},
		{"b.safetensors: " + upName + ": found it here, want only what model.safetensors.index.json lists",
			func(_ []Tensor, _ map[string][]byte, index map[string]string) { delete(index, upName) }},
		{"a.safetensors: model.extra: found no such tensor, want it, as model.safetensors.index.json says",
			func(_ []Tensor, _ map[string][]byte, index map[string]string) { index["model.extra"] = "a.safetensors" }},
		{"b.safetensors: " + embedName + ": found it in a.safetensors too, want it in one shard",
			func(list []Tensor, files map[string][]byte, _ map[string]string) {
				files["b.safetensors"] = encode(t, append(slices.Clone(list[len(list)/2:]), list[0]))
			}},
		{"b.safetensors: found 3 bytes, want a safetensors file of 8 bytes or more, which fits the address space",
			func(_ []Tensor, files map[string][]byte, _ map[string]string) { files["b.safetensors"] = []byte("abc") }},
		{"model.safetensors.index.json: " + upName +
			`: found shard "../a.safetensors", want the name of a .safetensors file in the same directory`,
			func(_ []Tensor, _ map[string][]byte, index map[string]string) { index[upName] = "../a.safetensors" }},
	}
	for _, c := range cases {
		list := full(t, "single_bf16", models.BF16)
		files, index := sharded(t, list)
		c.change(list, files, index)
		files[IndexFile] = indexText(t, index)
		require.Equal(t, c.message, refusal(t, directory(t, "single_bf16", files)))
	}
}

func TestShardsAreFilesOfTheDirectory(t *testing.T) {
	for _, name := range []string{"../a.safetensors", "/a.safetensors", "b/a.safetensors", `b\a.safetensors`,
		"a.safetensors\x00.safetensors", "a.bin", "", ".."} {
		require.False(t, validShard(name), "%q", name)
	}
	require.True(t, validShard("model-00001-of-00002.safetensors"))
}

func TestMalformedIndexIsRefused(t *testing.T) {
	files, index := sharded(t, full(t, "single_bf16", models.BF16))
	good := string(indexText(t, index))
	cases := map[string]string{
		"{}":                                     "found no tensor in weight_map, want the shard of each tensor",
		"[]":                                     "found a list, want an object",
		"{":                                      "found text that is not JSON at byte 0, want one JSON object; unexpected end of JSON input",
		`{"weight_map":[]}`:                      "found a list, want an object",
		`{"weight_map":null}`:                    "found null, want an object",
		`{"weight_map":{"model.norm.weight":3}}`: "model.norm.weight: found shard 3, want a string",
		strings.Replace(good, `"weight_map":{`, `"weight_map":{"`+upName+`":"a.safetensors",`, 1): `found a second "` +
			upName + `", want each name once`,
	}
	for text, message := range cases {
		files[IndexFile] = []byte(text)
		require.Equal(t, IndexFile+": "+message, refusal(t, directory(t, "single_bf16", files)))
	}
}

func TestUnlistedRotaryFrequenciesAreIgnored(t *testing.T) {
	list := full(t, "single_bf16", models.BF16)
	list = append(list, filled("model.layers.0.self_attn.rotary_emb.inv_freq", models.F32, []int{4},
		func() float32 { return 1 }))
	files, index := sharded(t, list)
	delete(index, "model.layers.0.self_attn.rotary_emb.inv_freq")
	files[IndexFile] = indexText(t, index)
	c := open(t, directory(t, "single_bf16", files))
	require.Error(t, c.Row("model.layers.0.self_attn.rotary_emb.inv_freq", 0, make([]half.BF16, 4)))
}

func TestOneFileIsPreferredToAnIndex(t *testing.T) {
	list := full(t, "single_bf16", models.BF16)
	dir := directory(t, "single_bf16", map[string][]byte{SingleFile: encode(t, list), IndexFile: []byte("{}")})
	require.Len(t, open(t, dir).files, 1)
}

func TestDirectoryWithoutWeightsIsExplained(t *testing.T) {
	require.Equal(t, "found neither model.safetensors nor model.safetensors.index.json, want one of them",
		refusal(t, directory(t, "single_bf16", nil)))
	require.Equal(t, "found neither model.safetensors nor model.safetensors.index.json, want one of them; there is pytorch_model.bin: load it with transformers and save it with save_pretrained",
		refusal(t, directory(t, "single_bf16", map[string][]byte{"pytorch_model.bin": nil})))
	dangling := directory(t, "single_bf16", nil)
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dangling, SingleFile)))
	require.Equal(t, "model.safetensors: found a symbolic link to nothing, want a file; is the download complete?",
		refusal(t, dangling))
	_, err := Open(t.TempDir())
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "config.json")
}

func TestDirectoryInPlaceOfTheFileIsRefused(t *testing.T) {
	dir := directory(t, "single_bf16", nil)
	require.NoError(t, os.Mkdir(filepath.Join(dir, SingleFile), 0o700))
	require.Contains(t, refusal(t, dir), "want a regular file")
}

func TestUnsupportedConfigurationIsRefusedFirst(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, ConfigFile), []byte(`{"model_type":"gpt2"}`), 0o600))
	_, err := Open(dir)
	require.ErrorContains(t, err, "model_type")
}
