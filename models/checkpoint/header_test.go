package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/models"
)

// headerCase is one entry of testdata/headers.json.
type headerCase struct {
	Name    string
	Content []byte `json:"base64"`
	Refused bool   // by the reference implementation
}

func headerCases(t testing.TB) []headerCase {
	text, err := os.ReadFile("testdata/headers.json")
	require.NoError(t, err)
	var cases []headerCase
	require.NoError(t, json.Unmarshal(text, &cases))
	return cases
}

// stricter maps the cases that the reference implementation reads and that are
// refused here to the message.
func stricter() map[string]string {
	return map[string]string{
		"space before":     `f: found a header that does not begin with {, want a JSON object`,
		"identical twice":  `f: found a second "a", want each name once`,
		"metadata null":    `f: __metadata__: found null, want an object`,
		"another field":    `f: a: found a field "x", want dtype, shape and data_offsets only`,
		"tensor is a list": `f: a: found a list, want an object`,
	}
}

func TestHeadersAreRefusedWhereTheReferenceImplementationRefusesThem(t *testing.T) {
	for _, c := range headerCases(t) {
		_, _, err := parseHeader("f", c.Content)
		if message, ok := stricter()[c.Name]; ok {
			require.False(t, c.Refused, c.Name)
			require.EqualError(t, err, message, c.Name)
			continue
		}
		if c.Refused {
			require.Error(t, err, c.Name)
		} else {
			require.NoError(t, err, c.Name)
		}
	}
}

func TestRefusedHeadersSayWhatIsWrong(t *testing.T) {
	want := map[string]string{
		"same name twice":        `f: found a second "a", want each name once`,
		"same name, escaped":     `f: found a second "a", want each name once`,
		"metadata number":        `f: __metadata__: found x 1, want a string`,
		"truncated":              `f: a: found 7 bytes of data, want 8 bytes; the file is truncated`,
		"trailing data":          `f: found 9 bytes of data, want 8 bytes; no tensor claims the rest`,
		"overlap":                `f: b: found data from byte 4, want from byte 8 on, where a ends; they overlap`,
		"same place":             `f: b: found data from byte 0, want from byte 8 on, where a ends; they overlap`,
		"hole":                   `f: b: found data from byte 12, want from byte 8 on, where a ends; the format has no holes`,
		"hole before":            `f: a: found data from byte 4, want from byte 0 on, where the header ends; the format has no holes`,
		"backwards":              `f: a: found bytes 8 to 0, want an end that is not before the beginning`,
		"negative":               `f: a: found data_offsets with -8, want a list of at most 2 integers from 0 to 2^63-1`,
		"fraction":               `f: a: found data_offsets with 8.0, want a list of at most 2 integers from 0 to 2^63-1`,
		"text offsets":           `f: a: found "0,8", want data_offsets as a list of at most 2 integers from 0 to 2^63-1`,
		"one offset":             `f: a: found 1 data_offsets, want dtype, shape and two data_offsets`,
		"three offsets":          `f: a: found data_offsets of 3 or more entries, want a list of at most 2 integers from 0 to 2^63-1`,
		"wrong size":             `f: a: found bytes 0 to 8, which are 8, want 12 for F32 of shape [3]`,
		"zero elements inside":   `f: b: found data from byte 4, want from byte 8 on, where a ends; they overlap`,
		"overflowing shape":      `f: a: found shape [4294967296, 4294967296], want a whole number of bytes below 2^63`,
		"overflow to size":       `f: a: found shape [4611686018427387906, 4], want a whole number of bytes below 2^63`,
		"unknown dtype":          `f: a: found dtype "F31", want BF16, F16 or F32`,
		"half a byte":            `f: a: found shape [15], want a whole number of bytes below 2^63`,
		"no dtype":               `f: a: found no dtype, want dtype, shape and two data_offsets`,
		"no shape":               `f: a: found no shape, want dtype, shape and two data_offsets`,
		"no offsets":             `f: a: found no data_offsets, want dtype, shape and two data_offsets`,
		"field twice":            `f: a: found a second "shape", want each name once`,
		"comma at the end":       `f: found text that is not JSON at byte 54, want one JSON object; invalid character '}' looking for beginning of object key string`,
		"nested deeply":          `f: a: found a list, want an object`,
		"seven bytes":            `f: found 7 bytes, want a safetensors file of 8 bytes or more`,
		"header beyond the file": `f: found a file of 70 bytes, want the 1008 of its header or more; it is truncated`,
		"greatest header":        `f: found a header of 18446744073709551615 bytes, want at most 100000000`,
		"not UTF-8":              `f: found bytes that are not UTF-8, want UTF-8 text`,
		"Git LFS pointer":        `f: found a Git LFS pointer, want the file itself; fetch it with git lfs pull`,
	}
	seen := 0
	for _, c := range headerCases(t) {
		if message, ok := want[c.Name]; ok {
			seen++
			_, _, err := parseHeader("f", c.Content)
			require.EqualError(t, err, message, c.Name)
		}
	}
	require.Equal(t, len(want), seen)
}

func TestOffsetsAreBelowTwoToThe63(t *testing.T) {
	_, _, err := parseHeader("f",
		frame(`{"a":{"dtype":"F32","shape":[0],"data_offsets":[9223372036854775808,9223372036854775808]}}`))
	require.EqualError(t, err,
		"f: a: found data_offsets with 9223372036854775808, want a list of at most 2 integers from 0 to 2^63-1")
}

func TestTruncationNamesTheFirstTensorThatIsCutAndCountsTheRest(t *testing.T) {
	content := encode(t, full(t, "single_bf16", models.BF16))
	_, _, err := parseHeader("f", content[:len(content)-2000])
	require.EqualError(t, err,
		"f: model.layers.1.mlp.down_proj.weight: found 8400 bytes of data, want 10400 bytes; the file is truncated, 2 later tensors are cut off with this one")
	_, _, err = parseHeader("f", content[:len(content)-1296])
	require.ErrorContains(t, err, "the file is truncated, 1 later tensor is cut off with this one")
}

// frame puts the length before a header's text.
func frame(text string) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
}

func TestHostileHeadersAreRefusedInShortTimeAndWords(t *testing.T) {
	const n = 1 << 20
	cases := map[string]string{
		"lists":      `{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}",
		"open lists": `{"a":` + strings.Repeat("[", n),
		"shallow":    `{"a":[` + strings.Repeat("[],", n) + "[]]}",
		"long name":  `{"` + strings.Repeat("x", n) + `":1}`,
		"long rank":  `{"a":{"dtype":"F32","shape":[` + strings.Repeat("1,", n) + `1],"data_offsets":[0,4]}}`,
		"long digit": `{"a":{"dtype":"F32","shape":[` + strings.Repeat("9", n) + `],"data_offsets":[0,4]}}`,
		"long dtype": `{"a":{"dtype":"` + strings.Repeat("F", n) + `","shape":[1],"data_offsets":[0,4]}}`,
		"control":    `{"\u001b[31m\n":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`,
	}
	for name, text := range cases {
		start := time.Now()
		_, _, err := parseHeader("f", frame(text))
		require.Error(t, err, name)
		require.Less(t, len(err.Error()), 500, name)
		require.NotContains(t, err.Error(), "\x1b", name)
		require.Less(t, time.Since(start), 10*time.Second, name)
	}
}

// FuzzHeader: nothing makes parseHeader panic; what it accepts lies in the file,
// each byte of the data once, and survives being written and read again.
func FuzzHeader(f *testing.F) {
	for _, c := range headerCases(f) {
		f.Add(c.Content)
	}
	for _, fixture := range []string{"single_bf16", "single_f32"} {
		content, err := os.ReadFile("testdata/" + fixture + "/" + SingleFile)
		require.NoError(f, err)
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		entries, data, err := parseHeader("f", content)
		if err != nil {
			require.Nil(t, entries)
			require.NotEmpty(t, err.Error())
			return
		}
		checkEntries(t, entries, content[data:])
	})
}

func checkEntries(t *testing.T, entries []entry, data []byte) {
	var again []Tensor
	at := int64(0)
	for _, e := range entries {
		require.Equal(t, at, e.begin)
		require.GreaterOrEqual(t, e.end, e.begin)
		at = e.end
		from, ok := dtypeOf(e.dtype)
		if !ok || e.name == "" {
			return
		}
		tensor := Tensor{Name: e.name, DType: from, Data: data[e.begin:e.end]}
		for _, d := range e.shape {
			tensor.Shape = append(tensor.Shape, int(d))
		}
		again = append(again, tensor)
	}
	require.Equal(t, int64(len(data)), at)
	var b bytes.Buffer
	require.NoError(t, WriteSafetensors(&b, again))
	reread, start, err := parseHeader("f", b.Bytes())
	require.NoError(t, err)
	require.Equal(t, len(entries), len(reread))
	for i := range entries {
		require.Equal(t, entries[i], reread[i])
	}
	require.Equal(t, data, b.Bytes()[start:])
}

// FuzzIndex: nothing makes parseIndex panic; what it accepts names files of the
// directory only, and no tensor twice.
func FuzzIndex(f *testing.F) {
	text, err := os.ReadFile("testdata/sharded_f16/" + IndexFile)
	require.NoError(f, err)
	f.Add(text)
	f.Add([]byte(`{"metadata":[[{}]],"weight_map":{"a":"../x.safetensors","b":"C:x.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"a":"x.safetensors"},"weight_map":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		lines, err := parseIndex(text)
		if err != nil {
			require.Nil(t, lines)
			var problem *Problem
			require.True(t, errors.As(err, &problem))
			return
		}
		seen := map[string]bool{}
		for _, line := range lines {
			require.False(t, seen[line.tensor])
			seen[line.tensor] = true
			require.NotContains(t, line.shard, "/")
		}
		require.NotEmpty(t, shards(lines))
	})
}
