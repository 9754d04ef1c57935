package models

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// However a repository of the hub is written, the sentence says how to download it.
func TestNamesOfTheHubSayHowToDownload(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"Qwen/Qwen3-8B", "hf.co/Qwen/Qwen3-8B", "huggingface.co/Qwen/Qwen3-8B",
		"https://hf.co/Qwen/Qwen3-8B", "https://huggingface.co/Qwen/Qwen3-8B/", "./Qwen/Qwen3-8B", "Qwen/Qwen3-8B/",
		"https://huggingface.co/Qwen/Qwen3-8B/tree/main", "Qwen/Qwen3-8B:Q4_K_M"} {
		require.Equal(t, "found "+name+", a repository of the Hugging Face hub, want a directory: download it with "+
			"hf download Qwen/Qwen3-8B --local-dir Qwen3-8B, and give --checkpoint Qwen3-8B, or "+
			"--config Qwen3-8B/config.json", Elsewhere(name))
	}
	require.NoError(t, os.Mkdir("Qwen", 0o777))
	for _, name := range []string{"", "tiny", "./Qwen/Qwen3-8B", "Qwen", "a/b/c", "/a/b", "../a/b", "a/b.json"} {
		require.Empty(t, Elsewhere(name), name)
	}
}

// GGUF is said of files, of directories with nothing else, and of repositories by their names.
func TestGGUFWantsSafetensors(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.MkdirAll("dir", 0o777))
	require.NoError(t, os.WriteFile("dir/model.Q4_K_M.GGUF", nil, 0o666))
	for name, what := range map[string]string{
		"dir": "a directory of GGUF files", "dir/": "a directory of GGUF files", "dir/model.Q4_K_M.GGUF": "a GGUF file",
		"none.gguf": "a GGUF file", "x/y-GGUF": "a repository of GGUF files",
		"hf.co/x/y-gguf:Q4_K_M": "a repository of GGUF files",
	} {
		require.Equal(t, "found "+name+", "+what+", want safetensors: download the checkpoint that it was made from, "+
			"and give --checkpoint DIRECTORY, or --config DIRECTORY/config.json", Elsewhere(name))
	}
	require.NoError(t, os.WriteFile("dir/config.json", nil, 0o666))
	require.Empty(t, Elsewhere("dir"))
}
