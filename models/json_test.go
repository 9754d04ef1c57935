package models

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMalformedTextIsRefusedWithItsPlace(t *testing.T) {
	cases := []struct{ text, message string }{
		{"", "config: line 1 column 1: unexpected end of JSON input"},
		{" \n ", "config: line 2 column 1: unexpected end of JSON input"},
		{"{", "config: line 1 column 1: unexpected end of JSON input"},
		{"{\"a\": 1,\n\"b\": }", "config: line 2 column 6: invalid character '}' looking for beginning of value"},
		{"{\"a\": 1} {}", "config: line 1 column 10: invalid character '{' after top-level value"},
		{"{} x", "config: line 1 column 4: invalid character 'x' after top-level value"},
		{`{"a": NaN}`, "config: line 1 column 7: invalid character 'N' looking for beginning of value"},
		{`{"a": -Infinity}`, "config: line 1 column 8: invalid character 'I' in numeric literal"},
		{`{"a": 01}`, "config: line 1 column 8: invalid character '1' after object key:value pair"},
		{`{'a': 1}`, `config: line 1 column 2: invalid character '\'' looking for beginning of object key string`},
		{`[1 2]`, "config: line 1 column 4: invalid character '2' after array element"},
		{"[]", "config: found [], want an object"},
		{"3", "config: found 3, want an object"},
		{"null", "config: found null, want an object"},
		{`"{}"`, `config: found "{}", want an object`},
		{"{\"a\": \"\xff\"}", "config: found bytes that are not UTF-8, want UTF-8 text"},
		{"{\"a\": 1,\n \"a\": 1}", `config: line 2 column 4: found a second "a" in one object, want each name once`},
		{`{"a": 1, "\u0061": 1}`, `config: line 1 column 17: found a second "a" in one object, want each name once`},
		{`{"x": [{"b": 1, "b": null}]}`, `config: line 1 column 19: found a second "b" in one object, want each name once`},
	}
	for _, c := range cases {
		_, err := Parse(strings.NewReader(c.text))
		require.EqualError(t, err, c.message, "%q", c.text)
	}
}

func TestDepthIsBounded(t *testing.T) {
	nested := func(n int) string {
		return changed(t, [][2]string{{"id2label", strings.Repeat("[", n) + strings.Repeat("]", n)}})
	}
	_, err := Parse(strings.NewReader(nested(MaxDepth - 1)))
	require.NoError(t, err)
	_, err = Parse(strings.NewReader(nested(MaxDepth)))
	require.ErrorContains(t, err, "found more than 16 nested objects and lists, want at most that many")
	_, err = Parse(strings.NewReader(strings.Repeat("[", MaxFileBytes)))
	require.Error(t, err)
	_, err = Parse(strings.NewReader(nested(MaxFileBytes / 3)))
	require.Error(t, err)
}

func TestLengthIsBounded(t *testing.T) {
	text := changed(t, nil)
	_, err := Parse(strings.NewReader(text + strings.Repeat(" ", MaxFileBytes-len(text))))
	require.NoError(t, err)
	_, err = Parse(strings.NewReader(text + strings.Repeat(" ", MaxFileBytes-len(text)+1)))
	require.EqualError(t, err, "config: found more than 1048576 bytes, want at most that many")
}

func TestReadErrorIsReturned(t *testing.T) {
	broken := errors.New("the disk is gone")
	_, err := Parse(iotest.ErrReader(broken))
	require.ErrorIs(t, err, broken)
}

func TestHostileTextMakesAShortMessageInShortTime(t *testing.T) {
	long := strings.Repeat("9", MaxFileBytes-1000)
	var many []string
	for i := range 50_000 {
		many = append(many, fmt.Sprintf(`"x%d": 1`, i))
	}
	cases := map[string]string{
		"long integer":     changed(t, [][2]string{{"hidden_size", long}}),
		"long float":       changed(t, [][2]string{{"rms_norm_eps", "-0." + long}}),
		"long exponent":    changed(t, [][2]string{{"rope_theta", "1e" + long}}),
		"long string":      changed(t, [][2]string{{"model_type", `"` + long + `"`}}),
		"long name":        `{"` + long + `": 1}`,
		"control bytes":    changed(t, [][2]string{{"model_type", `"\u001b[31m\n\r"`}}),
		"many fields":      `{"model_type": "llama", ` + strings.Join(many, ",") + "}",
		"many list values": changed(t, [][2]string{{"eos_token_id", "[" + strings.Repeat("1,", 400_000) + "1]"}}),
	}
	for name, text := range cases {
		start := time.Now()
		_, err := Parse(strings.NewReader(text))
		require.Error(t, err, name)
		require.Less(t, len(err.Error()), 10_000, name)
		require.NotContains(t, err.Error(), "\x1b", name)
		require.Less(t, time.Since(start), 10*time.Second, name)
	}
	_, err := Parse(strings.NewReader(cases["many fields"]))
	require.ErrorContains(t, err, "\nand 49975 more problems")
}
