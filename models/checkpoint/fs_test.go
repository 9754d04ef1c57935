package checkpoint

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
)

// rowsOf reads every row of every tensor.
func rowsOf(t testing.TB, c *Checkpoint) map[string][][]half.BF16 {
	rows := map[string][][]half.BF16{}
	for name, tensor := range c.tensors {
		for i := range tensor.rows {
			row := make([]half.BF16, tensor.cols)
			require.NoError(t, c.Row(name, i, row))
			rows[name] = append(rows[name], row)
		}
	}
	return rows
}

func TestAFileSystemGivesWhatItsDirectoryGives(t *testing.T) {
	for _, name := range fixtures() {
		dir := filepath.Join("testdata", name)
		fromFS, err := OpenFS(os.DirFS(dir))
		require.NoError(t, err, name)
		require.NoError(t, fromFS.Check(context.Background(), nil), name)
		mapped := open(t, dir)
		require.Equal(t, mapped.Config(), fromFS.Config(), name)
		require.Equal(t, mapped.EndTokens(), fromFS.EndTokens(), name)
		require.Equal(t, mapped.Bytes(), fromFS.Bytes(), name)
		require.Equal(t, rowsOf(t, mapped), rowsOf(t, fromFS), name)
		require.NoError(t, fromFS.Close())
		require.ErrorIs(t, fromFS.Row("model.norm.weight", 0, make([]half.BF16, fromFS.Config().Hidden)), ErrClosed)
	}
}

// memory reads a fixture into a file system in memory.
func memory(t testing.TB, fixture string) fstest.MapFS {
	fsys := fstest.MapFS{}
	entries, err := os.ReadDir(filepath.Join("testdata", fixture))
	require.NoError(t, err)
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join("testdata", fixture, e.Name()))
		require.NoError(t, err)
		fsys[e.Name()] = &fstest.MapFile{Data: data}
	}
	return fsys
}

func TestAFileSystemIsCheckedAsADirectoryIs(t *testing.T) {
	refused := func(change func(fsys fstest.MapFS)) string {
		fsys := memory(t, "single_bf16")
		change(fsys)
		c, err := OpenFS(fsys)
		require.Error(t, err)
		require.Nil(t, c)
		return err.Error()
	}
	weights := func(fsys fstest.MapFS) *fstest.MapFile { return fsys[SingleFile] }
	require.Equal(t, "checkpoint: model.safetensors: found 5 bytes, want a safetensors file of 8 bytes or more",
		refused(func(fsys fstest.MapFS) { weights(fsys).Data = weights(fsys).Data[:5] }))
	require.Contains(t, refused(func(fsys fstest.MapFS) {
		weights(fsys).Data = weights(fsys).
			Data[:len(weights(fsys).Data)-2]
	}),
		"the file is truncated")
	require.Contains(t, refused(func(fsys fstest.MapFS) { weights(fsys).Mode = fs.ModeDir }), "want a regular file")
	require.Equal(t, "checkpoint: found neither model.safetensors nor model.safetensors.index.json, want one of them",
		refused(func(fsys fstest.MapFS) { delete(fsys, SingleFile) }))
	require.Contains(t, refused(func(fsys fstest.MapFS) { fsys[ConfigFile].Data = []byte(`{"model_type":"gpt2"}`) }),
		"config.json: ")
	_, err := OpenFS(fstest.MapFS{})
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, ConfigFile)
}

// The fixture's config.json says 2; its vocabulary has 40 tokens.
func TestEndTokensAreThoseOfBothFiles(t *testing.T) {
	for text, want := range map[string][]int{
		`{}`: {2}, `{"eos_token_id":null}`: {2}, `{"eos_token_id":2}`: {2},
		`{"eos_token_id":39,"bos_token_id":[{"x":"y"}],"top_p":0.9}`: {2, 39},
		`{"eos_token_id":[7,2,0,7]}`:                                 {2, 7, 0}, `{"eos_token_id":[]}`: {2},
	} {
		fsys := memory(t, "single_bf16")
		fsys[GenerationFile] = &fstest.MapFile{Data: []byte(text)}
		c, err := OpenFS(fsys)
		require.NoError(t, err, text)
		require.Equal(t, want, c.EndTokens(), text)
		c.EndTokens()[0] = -1
		require.Equal(t, want, c.EndTokens(), text)
		require.Equal(t, []int{2}, c.Config().EOS, text)
	}
	fsys := memory(t, "single_bf16")
	delete(fsys, GenerationFile)
	c, err := OpenFS(fsys)
	require.NoError(t, err)
	require.Equal(t, []int{2}, c.EndTokens())
}

func TestWrongEndTokensAreRefused(t *testing.T) {
	const want = ", want null, or one to 64 ids from 0 to 39"
	for text, message := range map[string]string{
		`{"eos_token_id":40}`: "eos_token_id: found 40" + want, `{"eos_token_id":[1,-1]}`: "eos_token_id: found -1" + want,
		`{"eos_token_id":1.5}`: "eos_token_id: found 1.5" + want, `{"eos_token_id":"2"}`: `eos_token_id: found \"2\"` + want,
		`{"eos_token_id":[[1]]}`:                "eos_token_id: found [1]" + want,
		`{"eos_token_id":true}`:                 "eos_token_id: found true" + want,
		`{"eos_token_id":["1"]}`:                `eos_token_id: found \"1\"` + want,
		`{"eos_token_id":99999999999999999999}`: "found 99999999999999999999" + want,
		`[]`:                                    "found a list, want an object", `{`: "found text that is not JSON",
		`{"eos_token_id":1,"eos_token_id":2}`: `found a second "eos_token_id"`,
	} {
		_, err := parseGeneration([]byte(text), 40)
		require.ErrorContains(t, err, message, text)
		var problem *Problem
		require.True(t, errors.As(err, &problem) && problem.File == GenerationFile, text)
	}
	_, err := parseGeneration([]byte(`{"eos_token_id":[`+string(make65())+`]}`), 40)
	require.ErrorContains(t, err, "found 65 ids")
	require.Equal(t, 64, models.MaxEOS)

	dir := single(t, "single_bf16", full(t, "single_bf16", models.BF16))
	require.NoError(t, os.WriteFile(filepath.Join(dir, GenerationFile), []byte(`{"eos_token_id":41}`), 0o600))
	require.Equal(t, "generation_config.json: eos_token_id: found 41"+want, refusal(t, dir))
}

func make65() []byte {
	text := []byte("0")
	for range 64 {
		text = append(text, ",0"...)
	}
	return text
}
