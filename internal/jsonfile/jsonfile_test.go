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

var aThing = jsonfile.Kind{Name: "a thing of theirs"}

func TestAFileIsReadAsItWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "a.json")
	want := thing{Name: "x", Sizes: []int{1, 2}}
	require.NoError(t, jsonfile.Write(path, thing{Name: "before"}))
	require.NoError(t, jsonfile.Write(path, want), "a file that is there is replaced")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var got thing
	require.NoError(t, jsonfile.Parse(data, &got, aThing))
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
	for text, want := range map[string]string{
		`{"nome":"x"}`:               `unknown field "nome"`,
		`{"name":"x"}{}`:             "something follows the object",
		`{"name":"x"}]`:              "something follows the object",
		`{"name":"x"} }`:             "something follows the object",
		`{"name":"x"} x`:             "something follows the object",
		`{"name":`:                   "it ends within the JSON, want a thing of theirs",
		` `:                          "it is empty, want a thing of theirs",
		`PK`:                         "it is no JSON (invalid character 'P' looking for beginning of value), want a thing of theirs",
		`[{"name":"x"}]`:             "it is JSON of a list, want a thing of theirs",
		`null`:                       "it is JSON of null, want a thing of theirs",
		`"x"`:                        "it is JSON of text, want a thing of theirs",
		`{"name":1}`:                 "name is a number, want text",
		`{"name":"x","sizes":"4"}`:   "sizes is text, want a list",
		`{"name":"x","sizes":[1.5]}`: "sizes is 1.5, want a whole number",
	} {
		require.EqualError(t, jsonfile.Parse([]byte(text), &thing{}, aThing), want, text)
	}
	require.NoError(t, jsonfile.Parse([]byte(" {\"name\":\"x\"}\n\n"), &thing{}, aThing))
}

func TestALongFileIsNotReadToItsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "long.json")
	for size, want := range map[int64]string{
		jsonfile.MaxFileBytes:     "it is no JSON",
		jsonfile.MaxFileBytes + 1: "it has more than 67108864 bytes, want at most that many",
	} {
		require.NoError(t, os.WriteFile(path, nil, 0o666))
		require.NoError(t, os.Truncate(path, size)) // a file of zeros that takes no room
		require.ErrorContains(t, jsonfile.Read(path, &thing{}, aThing), path+": "+want)
	}
}

func TestAnotherKindOfFileIsCalledSo(t *testing.T) {
	type file struct {
		What   string `json:"what"`
		Format int    `json:"format"`
		Parts  []int  `json:"parts"`
	}
	kind := jsonfile.Kind{Name: "a file of theirs", What: "parts", Format: 2}
	for text, want := range map[string]string{
		`{"what":"other","format":2,"parts":[]}`:         `what is "other", want "parts": a file of theirs`,
		`{"format":2,"parts":[]}`:                        "it has no field what, want a file of theirs",
		`{"what":"parts","format":3,"parts":[],"new":1}`: "format is 3, want 2",
		`{"what":"parts","format":"3","parts":[]}`:       `format is "3", want 2`,
		`{"what":"parts","parts":[]}`:                    "it has no field format, want 2",
	} {
		require.EqualError(t, jsonfile.Parse([]byte(text), &file{}, kind), want, text)
	}
	require.NoError(t, jsonfile.Parse([]byte(`{"what":"parts","format":2,"parts":[]}`), &file{}, kind))
	kind = jsonfile.Kind{Name: "a file of theirs", Mark: "parts", Format: 2}
	require.EqualError(t, jsonfile.Parse([]byte(`{"format":2,"cases":[]}`), &file{}, kind),
		"it has no field parts, want a file of theirs")
}

func TestTheFirstDifferenceIsNamed(t *testing.T) {
	a := thing{"x", []int{1, 2}}
	require.NoError(t, jsonfile.Differs(a, thing{"x", []int{1, 2}}))
	require.EqualError(t, jsonfile.Differs(a, thing{"y", nil}), `name is "x", want "y"`)
	require.EqualError(t, jsonfile.Differs(a, thing{"x", []int{2}}), `sizes is 1,2, want 2`)
	require.EqualError(t, jsonfile.Differs(a, thing{"x", nil}), `sizes is 1,2, want empty`)
	type one struct {
		How string `json:"how,omitempty" absent:"plain"`
	}
	require.EqualError(t, jsonfile.Differs(one{}, one{"odd"}), `how is "plain", want "odd"`)
}
