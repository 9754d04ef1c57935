package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const bundledTiny = "../../models/bundled/tiny"

// TestQuantize writes a checkpoint, tells its errors worst first and the perplexity before and after, and runs it.
func TestQuantize(t *testing.T) {
	dir := t.TempDir()
	text, out, report := filepath.Join(dir, "text"), filepath.Join(dir, "out"), filepath.Join(dir, "r.json")
	require.NoError(t, os.WriteFile(text, []byte("Once upon a time there was a king who had three sons."), 0o644))
	code, stdout, stderr := mkgen("quantize", "--checkpoint", bundledTiny, "--format", "i4g32", "--out", out, "--report",
		report, "--text", text)
	require.Equal(t, 0, code, stderr)
	require.Regexp(t, `(?s)^TENSOR .*\nand 2 with less\n.*232.0 kB of i4g32, 14 matrices; as it was: embeddings, lm_head\n`+
		`perplexity of \d+ tokens: [\d.]+ before, [\d.]+ after \([\d.]+ and [\d.]+ bits a byte\), by the float64 reference on the CPU`, stdout)
	var told struct {
		Tensors []struct {
			Error  float64 `json:"relative_squared_error"`
			Digest string  `json:"weights_sha256"`
		}
		Perplexity struct {
			Bytes         int
			Before, After struct{ Nats float64 }
		}
	}
	data, err := os.ReadFile(report)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &told))
	require.Len(t, told.Tensors, 14)
	for i, tensor := range told.Tensors {
		require.Len(t, tensor.Digest, 64)
		require.True(t, i == 0 || tensor.Error <= told.Tensors[i-1].Error)
	}
	require.Equal(t, 53, told.Perplexity.Bytes)
	require.NotEqual(t, told.Perplexity.Before, told.Perplexity.After)
	require.InEpsilon(t, told.Perplexity.Before.Nats, told.Perplexity.After.Nats, 0.5)

	code, stdout, stderr = mkgen("run", "--checkpoint", out, "--max-tokens", "3", "Once upon")
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stderr,
		"compressed-tensors: 14 matrices of i4g32 with bf16 scales; the kernel's format is i4g32, which has just these codes and scales.")
	require.NotEmpty(t, strings.TrimSpace(stdout))
}

// spoiled is a copy of a checkpoint of one file in which change changes the bytes of a tensor.
func spoiled(t *testing.T, from, tensor string, change func(data []byte)) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(from)))
	path := filepath.Join(dir, "model.safetensors")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	header := text[8:][:binary.LittleEndian.Uint64(text)]
	var tensors map[string]struct {
		Offsets [2]int `json:"data_offsets"`
	}
	require.NoError(t, json.Unmarshal(header, &tensors))
	at, ok := tensors[tensor]
	require.True(t, ok, tensor)
	change(text[8+len(header):][at.Offsets[0]:at.Offsets[1]])
	require.NoError(t, os.WriteFile(path, text, 0o644))
	return dir
}

// TestQuantizeTellsOfWhatIsLost where no scale of a format is small enough.
func TestQuantizeTellsOfWhatIsLost(t *testing.T) {
	const up = "model.layers.0.mlp.up_proj.weight"
	dir := spoiled(t, "../../models/checkpoint/testdata/single_f32", up, func(data []byte) {
		copy(data, bytes.Repeat([]byte{1, 0, 0, 0}, len(data)/4)) // the least float32
	})
	code, _, stderr := mkgen("quantize", "--checkpoint", dir, "--format", "e4m3", "--out", t.TempDir())
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stderr, "mkgen: "+up+": found a squared error of 1, want less than 0.5: little of it is left\n")
	require.Equal(t, 1, strings.Count(stderr, "little of it is left"), stderr)
}

// A report that cannot be written any more costs neither the checkpoint nor the table.
func TestQuantizePrintsItsTableBeforeTheReport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "both.json")
	code, stdout, stderr := mkgen("quantize", "--checkpoint", bundledTiny, "--format", "i8", "--out", path,
		"--report", path)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "mkgen: write "+path+": it is there and no regular file")
	require.Regexp(t, `(?s)^TENSOR .*\nand 2 with less\n.*of i8, 14 matrices; as it was: embeddings, lm_head\n$`, stdout)
}

func TestQuantizeCalledWrongly(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--format i8 --out o", 2, "--checkpoint is missing"},
		{"--checkpoint c --out o", 2, "--format is missing"},
		{"--checkpoint c --format i8", 2, "--out is missing"},
		{"--checkpoint c --format i3 --out o", 2, `--format: found "i3", want one of i4g128, i4g64, i4g32, i8, e4m3`},
		{"--checkpoint " + bundledTiny + " --format i8 --out " + bundledTiny, 1,
			"it is there and has README.md in it, want an empty directory or none"},
		{"--checkpoint " + bundledTiny + " --format i8 --out " + dir + "/x --text " + dir + "/nobody", 1,
			"--text: open " + dir + "/nobody"},
		{"--checkpoint " + bundledTiny + " --format i4g64 --out " + dir + "/x", 1,
			"found 96 columns, want a multiple of 64; the format is i4g64"},
	} {
		code, _, stderr := mkgen(append([]string{"quantize"}, strings.Fields(c.args)...)...)
		require.Equal(t, c.code, code, c.args)
		require.Contains(t, stderr, c.want, c.args)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// TestBundledQuantisedModelsRun by their names.
func TestBundledQuantisedModelsRun(t *testing.T) {
	code, _, stderr := mkgen("run", "--model", "tiny-i8", "--weight-format", "e4m3", "--max-tokens", "1", "Once upon")
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stderr, "--weight-format e4m3 rounds them once more: without it they are as they were quantised.")
	for name, told := range map[string]string{"tiny-i8": "14 matrices of i8 a row",
		"small-i4g128": "14 matrices of i4g128"} {
		code, stdout, stderr := mkgen("run", "--model", name, "--max-tokens", "2", "Once upon")
		require.Equal(t, 0, code, stderr)
		require.Contains(t, stderr, told)
		require.NotContains(t, stderr, "once more")
		require.NotEmpty(t, stdout)
	}
}
