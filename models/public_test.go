package models

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// publicFile is a block of testdata/public.txt.
type publicFile struct{ name, verdict, text string }

func publicFiles(t *testing.T) (files []publicFile) {
	all, err := os.ReadFile("testdata/public.txt")
	require.NoError(t, err)
	_, blocks, ok := strings.Cut(string(all), "\n\n")
	require.True(t, ok)
	for block := range strings.SplitSeq(strings.TrimSpace(blocks), "\n\n") {
		lines := strings.Split(block, "\n")
		require.Len(t, lines, 3, block)
		files = append(files, publicFile{lines[0], lines[1], lines[2]})
	}
	return files
}

// A file of a popular model is read, or its refusal names every feature that is missing and nothing else.
func TestPublicFilesAreReadOrRefusedByFeature(t *testing.T) {
	accepted, refused := 0, 0
	for _, f := range publicFiles(t) {
		c, err := Parse(strings.NewReader(f.text))
		if family, ok := strings.CutPrefix(f.verdict, "accepted as "); ok {
			require.NoError(t, err, f.name)
			require.Equal(t, family, c.Family, f.name)
			accepted++
			continue
		}
		features, ok := strings.CutPrefix(f.verdict, "refused for ")
		require.True(t, ok, f.verdict)
		require.Error(t, err, f.name)
		require.NotContains(t, err.Error(), "models.", "a Go type of "+f.name)
		require.NotContains(t, err.Error(), "--ignore-field", f.name)
		require.NotContains(t, err.Error(), "adding-a-family", f.name)
		for feature := range strings.SplitSeq(features, "; ") {
			require.Contains(t, err.Error(), feature, f.name)
		}
		o, err := readObject(strings.NewReader(f.text))
		require.NoError(t, err)
		text, _ := textPart(o)
		// these say it in other words, or of the whole
		if model, _ := text.get("model_type"); model != "granitemoehybrid" && model != "chatglm" && model != "gemma" {
			require.Len(t, missingFeatures(text), strings.Count(features, "; ")+1, f.name)
		}
		refused++
	}
	require.GreaterOrEqual(t, accepted, 20)
	require.GreaterOrEqual(t, refused, 45)
}

// A fine-tune of a family that is read must not be refused for the family's name.
func TestNoFamilyOfOursIsASignOfAMissingFeature(t *testing.T) {
	for _, f := range Families() {
		for _, s := range signs() {
			require.NotContains(t, strings.Fields(s.types), f.Name)
			for _, part := range f.Parts {
				require.NotContains(t, strings.Fields(s.types), part)
			}
		}
	}
}
