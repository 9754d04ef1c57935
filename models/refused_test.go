package models

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite testdata/refused.txt with the messages as they are")

// changed returns tiny's config.json with fields set to JSON texts; an empty
// text removes the field. New fields come last, in order.
func changed(t testing.TB, edits [][2]string) string {
	text, err := os.ReadFile("testdata/configs/tiny.json")
	require.NoError(t, err)
	o, err := readObject(bytes.NewReader(text))
	require.NoError(t, err)
	var sub map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(text, &sub))
	var names []string
	values := map[string]string{}
	for _, m := range o {
		names = append(names, m.name)
		values[m.name] = string(sub[m.name])
	}
	for _, e := range edits {
		if _, ok := values[e[0]]; !ok {
			names = append(names, e[0])
		}
		values[e[0]] = e[1]
	}
	var fields []string
	for _, name := range names {
		if values[name] != "" {
			fields = append(fields, fmt.Sprintf("%q: %s", name, values[name]))
		}
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

// refusedCase is one block of testdata/refused.txt: lines "with FIELD JSON" and
// "without FIELD", then the message.
type refusedCase struct {
	input, message []string
	edits          [][2]string
}

func readRefused(t testing.TB) []refusedCase {
	text, err := os.ReadFile("testdata/refused.txt")
	require.NoError(t, err)
	var cases []refusedCase
	for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		var c refusedCase
		for line := range strings.SplitSeq(block, "\n") {
			words := strings.SplitN(line, " ", 3)
			switch {
			case words[0] == "with":
				c.edits = append(c.edits, [2]string{words[1], words[2]})
				c.input = append(c.input, line)
			case words[0] == "without":
				c.edits = append(c.edits, [2]string{words[1], ""})
				c.input = append(c.input, line)
			default:
				c.message = append(c.message, line)
			}
		}
		cases = append(cases, c)
	}
	return cases
}

func TestRefusalsSayWhatTheGoldenSays(t *testing.T) {
	var rewritten []string
	for _, c := range readRefused(t) {
		got, err := Parse(strings.NewReader(changed(t, c.edits)))
		require.Error(t, err, c.input)
		require.Equal(t, Config{}, got)
		if *update {
			rewritten = append(rewritten, strings.Join(c.input, "\n")+"\n"+err.Error()+"\n")
			continue
		}
		require.Equal(t, strings.Join(c.message, "\n"), err.Error(), c.input)
	}
	if *update {
		require.NoError(t, os.WriteFile("testdata/refused.txt", []byte(strings.Join(rewritten, "\n")), 0o644))
	}
}

func TestEveryRefusedFieldHasAGolden(t *testing.T) {
	outer, inner := map[string]bool{}, map[string]bool{}
	for _, c := range readRefused(t) {
		for _, line := range c.message {
			field, _, _ := strings.Cut(line, ": found")
			if after, ok := strings.CutPrefix(field, "rope_scaling."); ok {
				inner[after] = true
			}
			outer[field] = true
		}
	}
	for _, f := range refusedFields() {
		require.True(t, outer[f.name], "no case refuses %s", f.name)
	}
	for _, f := range refusedRopeFields() {
		require.True(t, inner[f.name], "no case refuses rope_scaling.%s", f.name)
	}
}

// neutralText returns a JSON text that holds the neutral value.
func neutralText(n neutral) string {
	return [...]string{"null", "false", "true", "0", "1.0", "[]", `["full_attention", "full_attention"]`, `"swiglu"`}[n]
}

func TestNeutralValuesOfRefusedFieldsAreAccepted(t *testing.T) {
	want, err := Parse(strings.NewReader(changed(t, nil)))
	require.NoError(t, err)
	for _, f := range refusedFields() {
		for _, text := range []string{"null", neutralText(f.neutral)} {
			got, err := Parse(strings.NewReader(changed(t, [][2]string{{f.name, text}})))
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	}
}

// null means absent: a name that nobody knows says nothing with it, inside the rotary embedding's object either.
func TestUnknownFieldsThatHoldNullArePassedOver(t *testing.T) {
	want, err := Parse(strings.NewReader(changed(t, nil)))
	require.NoError(t, err)
	text := changed(t, [][2]string{{"frobnicate", "null"}})
	got, err := Parse(strings.NewReader(strings.Replace(text, `"factor":`, `"frobnicate": null, "factor":`, 1)))
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestHarmlessFieldsMayHoldAnything(t *testing.T) {
	want, err := Parse(strings.NewReader(changed(t, nil)))
	require.NoError(t, err)
	for _, name := range harmlessFields() {
		for _, text := range []string{"null", "true", "-1e999", `"x"`, `{"a": [1]}`} {
			got, err := Parse(strings.NewReader(changed(t, [][2]string{{name, text}})))
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	}
}

func TestNoFieldIsOnTwoLists(t *testing.T) {
	seen := map[string]bool{}
	names := harmlessFields()
	for _, f := range refusedFields() {
		names = append(names, f.name)
	}
	for _, name := range names {
		require.False(t, seen[name], name)
		seen[name] = true
	}
}
