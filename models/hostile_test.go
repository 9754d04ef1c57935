package models

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// goWords are what no message may have: types, packages and errors of Go.
var goWords = regexp.MustCompile(
	`%!|\b(models|json|strconv|reflect|map|runtime)\.|\b(float64|int64|uint64|int|nil|interface|struct|slice|goroutine|panic|unmarshal|NaN|Inf)\b|\[\]|0x[0-9a-f]`)

// Each of these is what somebody's script, editor or malice makes of a config.json. There is one complaint, of the
// field, and in words of config.json.
func TestHostileConfigsGetOneClearError(t *testing.T) {
	deep := strings.Repeat("[", 20000) + strings.Repeat("]", 20000)
	for _, c := range []struct{ field, text, says string }{
		{"hidden_size", "null", "hidden_size: found nothing, want an integer"},
		{"num_hidden_layers", "null", "num_hidden_layers: found nothing, want an integer"},
		{"vocab_size", `"32000"`, `vocab_size: found "32000", want an integer`},
		{"hidden_size", "[64]", "hidden_size: found [64], want an integer"},
		{"intermediate_size", `{"a": 1}`, `intermediate_size: found {"a": 1}, want an integer`},
		{"num_hidden_layers", "2.5", "num_hidden_layers: found 2.5, want an integer"},
		{"num_attention_heads", "true", "num_attention_heads: found true, want an integer"},
		{"hidden_size", "-64", "hidden_size: found -64, want an integer"},
		{"num_hidden_layers", "0", "num_hidden_layers: found 0, want an integer"},
		{"num_key_value_heads", "-1", "num_key_value_heads: found -1, want an integer"},
		{"vocab_size", "99999999999999999999999999", "vocab_size: found 99999999999999999999999999, want an integer"},
		{"hidden_size", "1e300", "hidden_size: found 1e300, want an integer"},
		{"num_hidden_layers", "1000000", "num_hidden_layers: found 1000000, want an integer"},
		{"max_position_embeddings", "1e18", "max_position_embeddings: found 1e18, want an integer"},
		{"head_dim", "1000000", "head_dim: found 1000000, want an integer"},
		{"rms_norm_eps", `"small"`, `rms_norm_eps: found "small", want a number`},
		{"rms_norm_eps", "-1", "rms_norm_eps: found -1, want a number"},
		{"rms_norm_eps", "1e999", "rms_norm_eps: found 1e999, want a number"},
		{"rope_theta", "0", "rope_theta: found 0, want "},
		{"rope_theta", "-10000", "rope_theta: found -10000, want "},
		{"rope_theta", "false", "rope_theta: found false, want "},
		{"rope_scaling", `"linear"`, `rope_scaling: found "linear", want an object or null`},
		{"rope_scaling", `[]`, `rope_scaling: found [], want an object or null`},
		{"rope_scaling", `{"rope_type": 7}`, `rope_scaling.rope_type: found 7, want one of `},
		{"rope_scaling", `{"rope_type": "linear", "factor": "4"}`, `rope_scaling.factor: found "4", want a number`},
		{"rope_scaling", `{"rope_type": "linear", "factor": 4, "beta": 1}`, `rope_scaling.beta: found 1, want a field known`},
		{"tie_word_embeddings", `"yes"`, `tie_word_embeddings: found "yes", want true or false`},
		{"model_type", "null", "model_type: found nothing, want one of "},
		{"model_type", "5", "model_type: found 5, want one of "},
		{"model_type", `"%s%d"`, `model_type: found "%s%d", want one of `},
		{"hidden_act", `["silu"]`, `hidden_act: found ["silu"], want "silu"`},
		{"eos_token_id", `[1, "two"]`, "eos_token_id: found "},
		{"eos_token_id", "-7", "eos_token_id: found -7, want "},
		{"torch_dtype", "16", "torch_dtype: found 16, want "},
		{"architectures", `"LlamaForCausalLM"`, `architectures: found "LlamaForCausalLM", want `},
		{"frobnicate", "3", "frobnicate: found 3, want a field known"},
		{"frobnicate", deep, "exceeded max depth"},
		{"attention_bias", `"none"`, `attention_bias: found "none", want true or false`},
		{"quantization_config", "7", "quantization_config: found 7, want "},
		{"num_local_experts", "8", "num_local_experts: found 8, want "},
	} {
		name := c.field + " " + c.text[:min(len(c.text), 30)]
		_, err := Parse(strings.NewReader(changed(t, [][2]string{{c.field, c.text}})))
		require.Error(t, err, name)
		message := strings.TrimPrefix(err.Error(), "config.json: ")
		assert.Contains(t, message, c.says, name)
		assert.NotContains(t, message, "\n", name)
		assert.Less(t, len(message), 600, name)
		assert.NotRegexp(t, goWords, own(message, c.text), name)
		t.Log(message)
	}
}

// Files that are no object of JSON, or not whole.
func TestWhatIsNoConfigGetsOneClearError(t *testing.T) {
	for text, says := range map[string]string{
		"": "unexpected end", " ": "unexpected end", "null": "want an object", "[]": "want an object", "7": "want an object",
		`"config"`: "want an object", "{": "", `{"model_type": "llama"`: "", `{"model_type": "llama"} {}`: "",
		`{"a": 1, "a": 2}`:        `"a"`,
		"{'model_type': 'llama'}": "", `{"model_type": "llama",}`: "", "\xff\xfe{\x00": "", "<html>404</html>": "",
		"GGUF\x03\x00": "",
		"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n": "",
	} {
		_, err := Parse(strings.NewReader(text))
		require.Error(t, err, text)
		assert.NotContains(t, err.Error(), "\n", text)
		assert.Contains(t, err.Error(), says)
		assert.NotRegexp(t, goWords, own(err.Error(), text), text)
		t.Logf("%q: %v", text, err)
	}
}

// own is a message without what it quotes.
func own(message, quoted string) string {
	if quoted == "[]" || strings.HasPrefix(quoted, "[[") || quoted == `"%s%d"` {
		return strings.NewReplacer("[]", "", "[...]", "", "%s%d", "").Replace(message)
	}
	return message
}
