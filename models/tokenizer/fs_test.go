package tokenizer

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestAFileSystemGivesWhatItsDirectoryGives(t *testing.T) {
	const dir = "testdata/llama3-like"
	mapped, err := Open(dir)
	require.NoError(t, err)
	fromFS, err := OpenFS(os.DirFS(dir))
	require.NoError(t, err)
	const text = "It's 12345 texts, \U0001f98a and\n\nall."
	want, err := mapped.Encode(text, true)
	require.NoError(t, err)
	got, err := fromFS.Encode(text, true)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, mapped.config, fromFS.config)
}

func TestAFileSystemsTemplateFileGoesFirst(t *testing.T) {
	source, config := files(t)
	fsys := fstest.MapFS{tokenizerFile: {Data: []byte(source)}, configFile: {Data: []byte(config)},
		templateFile: {Data: []byte("just this")}}
	tok, err := OpenFS(fsys)
	require.NoError(t, err)
	template, err := tok.ChatTemplate("")
	require.NoError(t, err)
	text, err := template.Render(nil, ChatOptions{})
	require.NoError(t, err)
	require.Equal(t, "just this", text)
}

func TestAFileSystemsFilesAreChecked(t *testing.T) {
	_, err := OpenFS(fstest.MapFS{})
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, tokenizerFile)
	_, err = OpenFS(fstest.MapFS{tokenizerFile: {Data: []byte("{}")}})
	require.EqualError(t, err, `tokenizer.json: model: none; want "BPE" or "Unigram"`)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, tokenizerFile), []byte("{}"), 0o600))
	_, err = Open(dir)
	require.EqualError(t, err, dir+`: tokenizer.json: model: none; want "BPE" or "Unigram"`)
}

func TestOtherFormatsAreToldHowToBeConverted(t *testing.T) {
	for _, name := range otherFiles {
		fsys := fstest.MapFS{name: {Data: []byte("x")}, configFile: {Data: []byte("{}")}}
		_, err := OpenFS(fsys)
		require.ErrorContains(t, err, "tokenizer.json: not there, but "+name+" is; want tokenizer.json, which")
		require.NotErrorIs(t, err, fs.ErrNotExist, "a command does not go on as if there were no tokenizer")
		source, _ := files(t)
		fsys[tokenizerFile] = &fstest.MapFile{Data: []byte(source)}
		_, err = OpenFS(fsys)
		require.NoError(t, err)
	}
}
