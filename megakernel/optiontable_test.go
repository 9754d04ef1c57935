package megakernel_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// Every field that files have is an option with a flag, and the other way around: one row says all of it.
func TestEveryOptionInFilesHasARow(t *testing.T) {
	of := reflect.TypeFor[megakernel.Options]()
	rows := map[string]bool{}
	for _, row := range megakernel.OptionTable() {
		f, ok := of.FieldByName(row.Field)
		require.True(t, ok, row.Field)
		require.False(t, rows[row.Field], "%s has two rows", row.Field)
		rows[row.Field] = true
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		require.Equal(t, "omitempty", rest, row.Field)
		if row.Flag != "rows" { // tokens of a step in files
			require.Equal(t, strings.ReplaceAll(row.Flag, "-", "_"), name)
		}
		require.NotEmpty(t, row.Usage, row.Flag)
		require.Equal(t, row.Searched != 0, row.Values != nil, row.Flag)
		require.Equal(t, row.Flag, megakernel.FlagOf(row.Field))
	}
	for i := range of.NumField() {
		if f := of.Field(i); f.Tag.Get("json") != "-" {
			require.True(t, rows[f.Name], "%s is in files and has no row", f.Name)
		}
	}
}

func TestOptionsAreSetAndReadAsText(t *testing.T) {
	var o megakernel.Options
	set := func(flag, text string) error {
		row, ok := megakernel.OptionOf(flag)
		require.True(t, ok, flag)
		err := row.Set(&o, text)
		if err == nil {
			require.True(t, row.Given(o))
			require.Equal(t, text, row.Get(o))
		}
		return err
	}
	for flag, text := range map[string]string{"sms": "7", "held": "0", "unsplit": "0", "kv": "e4m3", "queries": "words",
		"selection": "true", "rows": "16"} {
		require.NoError(t, set(flag, text))
	}
	require.Equal(t, megakernel.Options{SMs: 7, Held: megakernel.HeldNone, Unsplit: megakernel.UnsplitNone, KV: "e4m3",
		Queries: megakernel.SyncWords, Selection: true, Tokens: 16}, o)
	for flag, text := range map[string]string{"sms": "0", "stages": "-1", "held": "9", "rows": "17", "page": "x",
		"selection": "perhaps", "splits": "4294967297"} {
		require.Error(t, set(flag, text), flag)
	}
	_, ok := megakernel.OptionOf("speed")
	require.False(t, ok)
}

func TestWhatFilesLeaveOutIsADefault(t *testing.T) {
	config, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(config, megakernel.Options{})
	require.NoError(t, err)
	recorded := mk.Options.Recorded()
	require.Zero(t, recorded.Tokens)
	require.Empty(t, recorded.KV)
	require.Empty(t, recorded.Weights)
	again, err := megakernel.Build(config, recorded)
	require.NoError(t, err)
	require.Equal(t, mk.Options, again.Options)
}
