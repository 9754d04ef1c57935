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

// Templates in files go before those of tokenizer_config.json, the one for tools is in a folder, and what
// transformers 4 writes of a multimodal model's processor counts where there is no other.
func TestChatTemplatesInFiles(t *testing.T) {
	source, _ := files(t)
	const config = `{"chat_template": [{"name": "default", "template": "old"}, {"name": "tool_use", "template": "old tools"}]}`
	const images = `{"chat_template": "of images"}`
	named := func(name string) string { return templateDir + "/" + name + ".jinja" }
	for _, c := range []struct {
		files                        map[string]string
		plain, tools, rag, wantError string
	}{
		{files: map[string]string{configFile: config}, plain: "old", tools: "old tools"},
		{files: map[string]string{configFile: config, templateFile: "new"}, plain: "new", tools: "new"},
		{files: map[string]string{configFile: config, templateFile: "new", named("tool_use"): "new tools",
			named("rag"): "rag"}, plain: "new", tools: "new tools", rag: "rag"},
		{files: map[string]string{named("default"): "other", templateFile: "new"}, plain: "new", tools: "new"},
		{files: map[string]string{processorFile: images}, plain: "of images", tools: "of images"},
		{files: map[string]string{processorFile: images, templateFile: "new"}, plain: "new", tools: "new"},
		{files: map[string]string{processorFile: images, configFile: config}, plain: "old", tools: "old tools"},
		{files: map[string]string{processorFile: `{"chat_template": 1}`},
			wantError: `chat_template.json: chat_template: "1"; want a string or a list`},
		{files: map[string]string{configFile: config, templateDir: "no folder"}, plain: "old", tools: "old tools"},
	} {
		fsys := fstest.MapFS{tokenizerFile: {Data: []byte(source)}}
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, tokenizerFile), []byte(source), 0o600))
		for name, text := range c.files {
			fsys[name] = &fstest.MapFile{Data: []byte(text)}
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		for _, open := range []func() (*Tokenizer, error){func() (*Tokenizer, error) { return OpenFS(fsys) },
			func() (*Tokenizer, error) { return Open(dir) }} {
			tok, err := open()
			if c.wantError != "" {
				require.ErrorContains(t, err, c.wantError)
				continue
			}
			require.NoError(t, err)
			template, err := tok.ChatTemplate("")
			require.NoError(t, err)
			for tools, want := range map[string]string{"": c.plain, `[{}]`: c.tools} {
				text, err := template.Render(nil, ChatOptions{Tools: []byte(tools)})
				require.NoError(t, err)
				require.Equal(t, want, text, c.files)
			}
			_, err = tok.ChatTemplate("rag")
			require.Equal(t, c.rag != "", err == nil)
		}
	}
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
