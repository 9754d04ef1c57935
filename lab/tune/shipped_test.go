package tune_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/lab/tune"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// What the repository ships can be read.
func TestShippedProfilesAndAblationsAreValid(t *testing.T) {
	profiles, err := filepath.Glob("../../bench/profiles/*/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, profiles)
	for _, path := range profiles {
		p, err := tune.ReadFile(path)
		require.NoError(t, err)
		c, err := models.Lookup(p.Model)
		require.NoError(t, err)
		require.NoError(t, p.Fits(c, p.Rows(), p.Setup.Options.Launch), path)
	}
	ablations, err := filepath.Glob("../../bench/results/*/*-ablate-*.json")
	require.NoError(t, err)
	require.NotEmpty(t, ablations)
	for _, path := range ablations {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		a, err := tune.ParseAblated(data)
		require.NoError(t, err, path)
		require.Equal(t, tune.Gated, a.Gate, path)
		table, err := os.ReadFile(strings.TrimSuffix(path, ".json") + ".md")
		require.NoError(t, err)
		require.True(t, tune.IsMarkdown(table[:512]), path)
		var want bytes.Buffer
		require.NoError(t, a.WriteMarkdown(&want))
		require.True(t, strings.HasSuffix(string(table), want.String()), path)
	}
}
