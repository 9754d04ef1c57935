package tokenizer

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// files reads the test tokenizer's two files.
func files(t testing.TB) (tokenizerJSON, configJSON string) {
	tokenizerData, err := os.ReadFile("testdata/llama3-like/tokenizer.json")
	require.NoError(t, err)
	configData, err := os.ReadFile("testdata/llama3-like/tokenizer_config.json")
	require.NoError(t, err)
	return string(tokenizerData), string(configData)
}

func TestOtherConfigurationsEqualHuggingFace(t *testing.T) {
	source, _ := files(t)
	g := readGolden(t)
	require.NotEmpty(t, g.Variants)
	for _, v := range g.Variants {
		t.Run(v.Name, func(t *testing.T) {
			changed := source
			for _, r := range v.Replace {
				require.Contains(t, changed, r[0])
				changed = strings.ReplaceAll(changed, r[0], r[1])
			}
			tok, err := Parse([]byte(changed), nil)
			require.NoError(t, err)
			require.NotEmpty(t, v.Differ)
			for _, c := range g.Encode {
				want, ok := v.Differ[c.Name]
				if !ok && len(v.Differ) < len(g.Encode)/2 {
					want, ok = c.Special, true
				}
				if !ok {
					continue
				}
				ids, err := tok.Encode(c.Text, true)
				require.NoError(t, err)
				require.Equal(t, want, orEmpty(ids), c.Name)
			}
			require.Equal(t, v.Text, tok.Decode(v.IDs, false))
		})
	}
}

func TestMergesWrittenAsStrings(t *testing.T) {
	source, _ := files(t)
	var file map[string]any
	require.NoError(t, json.Unmarshal([]byte(source), &file))
	model := file["model"].(map[string]any)
	merges := model["merges"].([]any)
	for i, m := range merges {
		merges[i] = m.([]any)[0].(string) + " " + m.([]any)[1].(string)
	}
	old, err := json.Marshal(file)
	require.NoError(t, err)
	tok, err := Parse(old, nil)
	require.NoError(t, err)
	require.Equal(t, open(t).model, tok.model)
}
