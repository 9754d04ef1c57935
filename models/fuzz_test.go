package models

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzParse: no text makes Parse panic; what it accepts is valid, has sane
// derived figures and reads the same a second time.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/configs/*.json", "testdata/saved_by_v5/*.json"} {
		paths, err := filepath.Glob(pattern)
		require.NoError(f, err)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			require.NoError(f, err)
			f.Add(text)
		}
	}
	f.Add([]byte(`{"a": [1e999, "\ud800", {"a": null}], "rope_scaling": {"rope_type": []}}`))
	f.Fuzz(func(t *testing.T, text []byte) { checkParse(t, string(text)) })
}

// FuzzParseOfOneField: the same for tiny's file with one field set to any text,
// which reaches further than mutations of whole files.
func FuzzParseOfOneField(f *testing.F) {
	for _, c := range readRefused(f) {
		f.Add(c.edits[0][0], c.edits[0][1])
	}
	f.Fuzz(func(t *testing.T, field, text string) {
		checkParse(t, changed(t, [][2]string{{field, text}}))
	})
}

func checkParse(t *testing.T, text string) {
	c, err := Parse(strings.NewReader(text))
	if err != nil {
		require.Equal(t, Config{}, c)
		require.NotEmpty(t, err.Error())
		return
	}
	require.NoError(t, c.Validate())
	require.Positive(t, c.WeightBytes())
	require.Positive(t, c.ParamCount())
	require.Positive(t, c.KVBytesPerToken())
	for _, freq := range RopeInvFreq(c) {
		require.True(t, freq > 0 && freq < 1.001, freq)
	}
	again, err := Parse(strings.NewReader(text))
	require.NoError(t, err)
	require.Equal(t, c, again)
}
