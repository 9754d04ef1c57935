package models

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// goldenConfigs returns each family's golden config.json by file, as published and as transformers saves it.
func goldenConfigs(t *testing.T) map[string]object {
	files, err := filepath.Glob("../tests/families/testdata/*.json")
	require.NoError(t, err)
	all := map[string]object{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var golden struct{ Published, Saved json.RawMessage }
		require.NoError(t, json.Unmarshal(text, &golden))
		for kind, text := range map[string][]byte{"published": golden.Published, "saved": golden.Saved} {
			all[filepath.Base(file)+" "+kind], err = readObject(bytes.NewReader(text))
			require.NoError(t, err)
		}
	}
	require.Greater(t, len(all), 60)
	return all
}

// defaultsOf returns the defaults of the family that a golden names.
func defaultsOf(t *testing.T, o object) object {
	name, _ := o.get("model_type")
	families := Families()
	i := slices.IndexFunc(families, func(f Family) bool { return f.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	defaults, err := readObject(bytes.NewReader([]byte(families[i].Defaults)))
	require.NoError(t, err)
	return defaults
}

// null means absent in every field of every family, but for those where it is a value of its own; no message of a
// null holds a type of Go. A text part is read alike.
func TestNullMeansAbsentInEveryFieldOfEveryFamily(t *testing.T) {
	for golden, o := range goldenConfigs(t) {
		var names []string
		for _, m := range slices.Concat(o, defaultsOf(t, o), object{{name: "layer_types"}}) {
			names = append(names, m.name)
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			absent := slices.DeleteFunc(slices.Clone(o), func(m member) bool { return m.name == name })
			null := append(slices.Clone(absent), member{name: name})
			for _, wrap := range []bool{false, true} {
				want, wantErr := parsedNull(absent, wrap)
				got, err := parsedNull(null, wrap)
				if err != nil {
					assert.NotRegexp(t, goWords, own(err.Error(), "[]"), "%s, %s null", golden, name)
				}
				if !slices.Contains(ownNull(), name) {
					assert.Equal(t, wantErr, err, "%s, %s null", golden, name)
					assert.Equal(t, want, got, "%s, %s null", golden, name)
				}
			}
		}
	}
}

// parsedNull parses an object, as the text part of another where wrap says so.
func parsedNull(o object, wrap bool) (Config, error) {
	if wrap {
		o = object{{"model_type", "whole"}, {"text_config", o}}
	}
	return Reading{}.parse(o)
}

// Without layer_types the pattern of windows is Gemma 3's own, whatever holds null.
func TestNullPatternOfWindowsIsGemma3s(t *testing.T) {
	const more = `, "rope_theta": 1e6, "sliding_window": 8`
	want := parsedText(t, "{"+fieldsOf("gemma3_text", more)+"}")
	for _, null := range []string{"sliding_window_pattern", "_sliding_window_pattern", "rope_local_base_freq",
		"hidden_activation", "query_pre_attn_scalar"} {
		require.Equal(t, want, parsedText(t, "{"+fieldsOf("gemma3_text", more+`, "`+null+`": null`)+"}"), null)
	}
}

// rope_theta that is null says nothing that the rotary embedding's own could contradict.
func TestNullBesideARotaryEmbeddingsOwnBase(t *testing.T) {
	for _, family := range []string{"llama", "smollm3", "ernie4_5", "helium", "olmo3"} {
		got := parsedText(t, "{"+fieldsOf(family, `, "bos_token_id": 1, "rope_theta": null,
			"rope_parameters": {"rope_type": "default", "rope_theta": 7e5}`)+"}")
		require.Equal(t, 7e5, got.Rope.Theta, family)
	}
}

// In these null is what transformers takes it for: no token, no window, no cap.
func TestNullThatIsAValueOfItsOwn(t *testing.T) {
	null := func(family, field string) Config {
		return parsedText(t, "{"+fieldsOf(family, `, "`+field+`": null`)+"}")
	}
	require.Equal(t, NoToken, null("llama", "bos_token_id").BOS)
	require.Zero(t, null("gemma2", "attn_logit_softcapping").Traits.AttnSoftCap)
	require.Zero(t, null("gemma2", "final_logit_softcapping").Traits.LogitSoftCap)
	require.Empty(t, null("mistral", "sliding_window").Traits.Kinds)
}
