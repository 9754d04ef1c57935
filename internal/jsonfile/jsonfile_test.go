package jsonfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mkgen/mkgen/internal/jsonfile"
	"github.com/stretchr/testify/require"
)

type thing struct {
	Name  string `json:"name"`
	Sizes []int  `json:"sizes,omitempty"`
}

func TestAFileIsReadAsItWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "a.json")
	want := thing{"x", []int{1, 2}}
	require.NoError(t, jsonfile.Write(path, thing{Name: "before"}))
	require.NoError(t, jsonfile.Write(path, want), "a file that is there is replaced")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var got thing
	require.NoError(t, jsonfile.Parse(data, &got))
	require.Equal(t, want, got)
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing half-written stays")
}

func TestWhatCannotBeWrittenLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	require.Error(t, jsonfile.Write(filepath.Join(dir, "a.json"), make(chan int)))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "b.json"), 0o777))
	require.Error(t, jsonfile.Write(filepath.Join(dir, "b.json"), 1), "a directory is in its place")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

func TestReadingIsStrict(t *testing.T) {
	for text, want := range map[string]string{`{"nome":"x"}`: `unknown field "nome"`, `{"name":"x"}{}`: "something follows the object", `{"name":`: "unexpected EOF", `{"name":1}`: "cannot unmarshal"} {
		require.ErrorContains(t, jsonfile.Parse([]byte(text), &thing{}), want)
	}
}

func TestTheFirstDifferenceIsNamed(t *testing.T) {
	a := thing{"x", []int{1}}
	require.NoError(t, jsonfile.Differs(a, thing{"x", []int{1}}))
	require.EqualError(t, jsonfile.Differs(a, thing{"y", nil}), `name is "x", want "y"`)
	require.EqualError(t, jsonfile.Differs(a, thing{"x", []int{2}}), `sizes is [1], want [2]`)
}
