package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestImageCache runs a checkpoint twice: the second time its weights come packed, until the image is damaged.
func TestImageCache(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("MKGEN_CACHE", cache)
	run := func() (out, told string) {
		code, out, told := mkgen("run", "--checkpoint", bundledTiny, "--image-cache", "-v", "--max-tokens", "2", "Once upon")
		require.Equal(t, 0, code, told)
		return out, told
	}
	const packed = "the weights were packed already, in the image cache"
	first, told := run()
	require.NotContains(t, told, packed)
	again, told := run()
	require.Contains(t, told, packed)
	require.Equal(t, first, again)

	files, err := filepath.Glob(filepath.Join(cache, "images", "*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, os.Truncate(files[0], 1000))
	again, told = run()
	require.Equal(t, first, again)
	require.Regexp(t, `mkgen: image cache: .*\.image: it is damaged: found 1000 bytes, want \d+; the weights are packed again\n`, told)
	_, told = run()
	require.Contains(t, told, packed)

	code, _, told := mkgen("run", "--model", "tiny", "--image-cache", "x")
	require.Equal(t, 2, code)
	require.Contains(t, told, "--image-cache goes with --checkpoint")
}
