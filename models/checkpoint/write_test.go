package checkpoint

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
)

func TestWrittenFilesAreByteForByteThoseOfHuggingFace(t *testing.T) {
	for _, path := range []string{"single_bf16/" + SingleFile, "single_f32/" + SingleFile,
		"sharded_f16/model-00002-of-00003.safetensors"} {
		want, err := os.ReadFile("testdata/" + path)
		require.NoError(t, err)
		entries, data, err := parseHeader(path, want)
		require.NoError(t, err)
		var list []Tensor
		for _, e := range entries {
			tensor := Tensor{Name: e.name, Data: want[data+e.begin : data+e.end]}
			tensor.DType, _ = dtypeOf(e.dtype)
			for _, d := range e.shape {
				tensor.Shape = append(tensor.Shape, int(d))
			}
			list = append(list, tensor)
		}
		require.Equal(t, want, encode(t, list), path)
	}
}

func TestWritingNothingMakesAnEmptyFile(t *testing.T) {
	content := encode(t, nil)
	entries, data, err := parseHeader("f", content)
	require.NoError(t, err)
	require.Empty(t, entries)
	require.Equal(t, int64(len(content)), data)
	require.Zero(t, data%8)
}

func TestWritingRefusesWhatCannotBeRead(t *testing.T) {
	good := Tensor{Name: "a", DType: models.BF16, Shape: []int{2}, Data: BF16Bytes([]half.BF16{1, 2})}
	change := func(edit func(*Tensor)) []Tensor {
		t := good
		edit(&t)
		return []Tensor{t}
	}
	cases := []struct {
		list    []Tensor
		message string
	}{
		{[]Tensor{good, good}, `checkpoint: writing: found tensor name "a", want UTF-8 that is new, not empty and not __metadata__`},
		{change(func(t *Tensor) { t.Name = "" }),
			`checkpoint: writing: found tensor name "", want UTF-8 that is new, not empty and not __metadata__`},
		{change(func(t *Tensor) { t.Name = "\xff" }),
			`checkpoint: writing: found tensor name "\\xff", want UTF-8 that is new, not empty and not __metadata__`},
		{change(func(t *Tensor) { t.Name = "__metadata__" }),
			`checkpoint: writing: found tensor name "__metadata__", want UTF-8 that is new, not empty and not __metadata__`},
		{change(func(t *Tensor) { t.Shape = []int{3} }),
			"checkpoint: writing a: found 4 bytes of data for bfloat16 of shape [3], want 6"},
		{change(func(t *Tensor) { t.Shape = []int{-2} }),
			"checkpoint: writing a: found shape [-2], want no negative dimension"},
		{change(func(t *Tensor) { t.DType = models.DTypeUnstated }),
			"checkpoint: writing a: found 4 bytes of data for unstated of shape [2], want BF16, F16 or F32"},
	}
	for _, c := range cases {
		var b bytes.Buffer
		require.EqualError(t, WriteSafetensors(&b, c.list), c.message)
		require.Zero(t, b.Len(), "nothing is written before all is checked")
	}
}

func TestWriteErrorIsReturned(t *testing.T) {
	full := errors.New("the disk is full")
	list := []Tensor{{Name: "a", DType: models.BF16, Shape: []int{1}, Data: []byte{1, 2}}}
	require.ErrorIs(t, WriteSafetensors(failing{after: 0, err: full}, list), full)
	require.ErrorIs(t, WriteSafetensors(failing{after: 8, err: full}, list), full)
}

// failing refuses writes of fewer bytes than after.
type failing struct {
	after int
	err   error
}

func (f failing) Write(p []byte) (int, error) {
	if f.after > 0 && len(p) > f.after {
		return len(p), nil
	}
	return 0, f.err
}
