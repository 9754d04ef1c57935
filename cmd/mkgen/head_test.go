package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/tests/enginecases"
	"github.com/stretchr/testify/require"
)

// untiedCheckpoint writes bundled tiny's files with random weights and an LM head that is a matrix of its own.
func untiedCheckpoint(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(bundledTiny)))
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	untied := strings.Replace(string(text), `"tie_word_embeddings": true`, `"tie_word_embeddings": false`, 1)
	require.NotEqual(t, string(text), untied)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(untied), 0o666))
	config, err := models.Parse(strings.NewReader(untied))
	require.NoError(t, err)
	require.NoError(t, enginecases.WriteTensors(dir, config, 1))
	return dir
}

// A checkpoint whose LM head is quantised, too, is multiplied with the head's own codes, or has it widened, but it is
// not rounded once more.
func TestAQuantisedHeadHasItsOwnCodes(t *testing.T) {
	from, out := untiedCheckpoint(t), filepath.Join(t.TempDir(), "i8")
	code, _, stderr := mkgen("quantize", "--checkpoint", from, "--format", "i8", "--head", "--out", out)
	require.Equal(t, 0, code, stderr)
	run := func(args ...string) (int, string) {
		code, _, stderr := mkgen(append([]string{"run", "--checkpoint", out, "--max-tokens", "2", "Once upon"}, args...)...)
		return code, stderr
	}
	code, stderr = run()
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stderr,
		"the kernel's format is i8, which has just these codes and scales. So is the LM head's, i8.")
	code, stderr = run("--head-format", "bf16")
	require.Equal(t, 0, code, stderr)
	require.NotContains(t, stderr, "LM head")
	code, stderr = run("--head-format", "e4m3")
	require.Equal(t, 2, code)
	require.Contains(t, stderr,
		"--head-format e4m3: lm_head.weight is i8 a row with bf16 scales, which would be rounded once more; want i8, or bf16")
	code, stderr = run("--weight-format", "e4m3", "--head-format", "i8")
	require.Equal(t, 2, code)
	require.Contains(t, stderr,
		"--head-format i8: lm_head.weight is i8 a row with bf16 scales, which would be rounded once more; want bf16")
}

// Embeddings that are tied to a head in another format stay bf16, and what no head can be is refused.
func TestFormatsOfTheHeadInCommands(t *testing.T) {
	code, stdout, stderr := mkgen("explain", "--model", "tiny", "--head-format", "i8")
	require.Equal(t, 0, code, stderr)
	require.Contains(t, strings.Join(strings.Fields(stdout), " "),
		"LM head and embedding are one matrix, packed twice: the embedding stays bf16")
	code, _, stderr = mkgen("explain", "--model", "tiny", "--head-format", "i9")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, `--head-format: found "i9", want bf16, e4m3, i4`)
	code, stdout, stderr = mkgen("run", "--model", "tiny", "--head-format", "i8", "--rows", "4", "--max-tokens", "2",
		"Once upon")
	require.Equal(t, 0, code, stderr)
	require.NotEmpty(t, stdout)
	code, stdout, stderr = mkgen("run", "--model", "tiny", "--head-format", "i8", "--prefill", "64", "--max-tokens", "2",
		"Once upon")
	require.Equal(t, 0, code, stderr)
	require.NotEmpty(t, stdout)
}
