package checkpoint_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/stretchr/testify/require"
)

func TestTensorsAreTheBytesOfTheFiles(t *testing.T) {
	tensors, err := checkpoint.OpenTensors("testdata/sharded_f16")
	require.NoError(t, err)
	memory, err := checkpoint.OpenTensorsFS(os.DirFS("testdata/sharded_f16"))
	require.NoError(t, err)
	require.Equal(t, tensors.List(), memory.List())
	files := map[string]int64{}
	for _, info := range tensors.List() {
		require.Equal(t, "F16", info.DType)
		require.NoError(t, tensors.Reading(func(data func(string) []byte) error {
			n := int64(2)
			for _, d := range info.Shape {
				n *= d
			}
			require.Len(t, data(info.Name), int(n))
			files[info.File] += n
			return memory.Reading(func(same func(string) []byte) error {
				require.Equal(t, same(info.Name), data(info.Name))
				return nil
			})
		}))
	}
	require.Len(t, files, 3)
	for name, n := range files {
		info, err := os.Stat(filepath.Join("testdata/sharded_f16", name))
		require.NoError(t, err)
		require.Less(t, n, info.Size())
	}
	require.NoError(t, tensors.Reading(func(data func(string) []byte) error {
		require.Nil(t, data("nobody"))
		return nil
	}))
	text, err := tensors.Text(checkpoint.ConfigFile)
	require.NoError(t, err)
	require.Contains(t, string(text), "vocab_size")
	_, err = tensors.Text("nothing.json")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, tensors.Close())
	require.NoError(t, memory.Close())
	require.ErrorIs(t, tensors.Reading(func(func(string) []byte) error { return nil }), checkpoint.ErrClosed)
}

func TestTensorsOfBrokenFilesAreRefused(t *testing.T) {
	_, err := checkpoint.OpenTensorsFS(fstest.MapFS{})
	require.ErrorContains(t, err, "found neither model.safetensors nor model.safetensors.index.json")
	index, err := os.ReadFile("testdata/sharded_f16/model.safetensors.index.json")
	require.NoError(t, err)
	_, err = checkpoint.OpenTensorsFS(fstest.MapFS{checkpoint.IndexFile: {Data: index}})
	require.ErrorContains(t, err, "model-00001-of-00003.safetensors: found no such file")
	single, err := os.ReadFile("testdata/single_bf16/model.safetensors")
	require.NoError(t, err)
	_, err = checkpoint.OpenTensorsFS(fstest.MapFS{checkpoint.SingleFile: {Data: single[:len(single)-1]}})
	require.ErrorContains(t, err, "the file is truncated")
}
