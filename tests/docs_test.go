package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Files that the documentation names are there, from the top of the project, from docs, or, for test data, anywhere.
func TestFilesNamedInTheDocumentationExist(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	named := regexp.MustCompile("`([\\w.-]+(?:/[\\w.-]+)+\\.(?:go|py|sh|cu|html|json))`")
	n := 0
	for _, page := range append(pages, "../README.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			if strings.HasPrefix(m[1], "testdata/") || strings.HasPrefix(m[1], "out/") {
				continue
			}
			n++
			_, top := os.Stat(filepath.Join("..", m[1]))
			_, docs := os.Stat(filepath.Join("../docs", m[1]))
			require.True(t, top == nil || docs == nil, "%s names %s", page, m[1])
		}
	}
	require.Greater(t, n, 50)
}
