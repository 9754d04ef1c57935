package main

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestImageCache runs a checkpoint twice: the second time its weights come packed, until the image is damaged.
func TestImageCache(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("MKGEN_CACHE", cache)
	imagesLeave = 1
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

// TestImagesOfOwnCodes: a checkpoint of 4 bits has an image for each format that a kernel takes it in, and none of them
// outlives a change of its codes, its scales or its config.json, though files keep their size.
func TestImagesOfOwnCodes(t *testing.T) {
	imagesLeave = 1
	t.Setenv("MKGEN_CACHE", t.TempDir())
	dir := filepath.Join(t.TempDir(), "checkpoint")
	require.NoError(t, os.CopyFS(dir, os.DirFS("../../models/quant/testdata/gptq_i4g32")))
	run := func(more ...string) (out string, packed bool) {
		args := append([]string{"run", "--checkpoint", dir, "--image-cache", "-v", "--max-tokens", "4"}, more...)
		code, out, told := mkgen(append(args, "1 2 3")...)
		require.Equal(t, 0, code, told)
		return out, strings.Contains(told, "the weights were packed already, in the image cache")
	}
	requireNew := func(more ...string) {
		t.Helper()
		first, packed := run(more...)
		require.False(t, packed)
		again, packed := run(more...)
		require.True(t, packed)
		require.Equal(t, first, again)
	}
	requireNew()
	requireNew("--weight-format", "bf16")
	requireNew("--weight-format", "i4g32")
	_, packed := run("--weight-format", "i4g32-f16")
	require.True(t, packed, "the format that it has anyway")

	change := func(file string, to func(data []byte) []byte) {
		path := filepath.Join(dir, file)
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, to(data), 0o644))
	}
	place := func(name string) int {
		text, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
		require.NoError(t, err)
		begin := 8 + int(binary.LittleEndian.Uint64(text))
		var all map[string]struct {
			Offsets []int `json:"data_offsets"`
		}
		require.NoError(t, json.Unmarshal(text[8:begin], &all))
		require.Contains(t, all, name)
		return begin + all[name].Offsets[0]
	}
	for _, name := range []string{"model.layers.0.mlp.up_proj.qweight", "model.layers.0.mlp.up_proj.scales"} {
		at := place(name)
		change("model.safetensors", func(data []byte) []byte { data[at] ^= 1; return data })
		requireNew()
	}
	change("config.json", func(data []byte) []byte { return append(data, '\n') })
	requireNew()
}
