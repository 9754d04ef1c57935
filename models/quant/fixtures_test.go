package quant_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/mkgen/mkgen/models/quant"
	"github.com/stretchr/testify/require"
)

// fixtures are the directories of testdata, each written and dequantised by a format's own package.
func fixtures(t testing.TB) []string {
	dirs, err := filepath.Glob("testdata/*/config.json")
	require.NoError(t, err)
	require.NotEmpty(t, dirs)
	for i, dir := range dirs {
		dirs[i] = filepath.Dir(dir)
	}
	return dirs
}

// expected opens what the package computed of the fixture in dir.
func expected(t testing.TB, dir string) *quant.Checkpoint {
	packed, err := os.ReadFile(filepath.Join(dir, "expected.safetensors.gz"))
	require.NoError(t, err)
	unzip, err := gzip.NewReader(bytes.NewReader(packed))
	require.NoError(t, err)
	content, err := io.ReadAll(unzip)
	require.NoError(t, err)
	c, err := quant.OpenFS(fstest.MapFS{"config.json": {Data: []byte("{}")}, "model.safetensors": {Data: content}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func open(t testing.TB, dir string) *quant.Checkpoint {
	c, err := quant.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// rows returns all numbers of a matrix.
func rows(t testing.TB, m *quant.Matrix) []float32 {
	all := make([]float32, 0, m.Rows*m.Cols)
	row := make([]float32, m.Cols)
	for r := range m.Rows {
		require.NoError(t, m.Row(r, row))
		all = append(all, row...)
	}
	return all
}

func TestWeightsEqualThoseOfTheFormatsPackage(t *testing.T) {
	for _, dir := range fixtures(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			c, want := open(t, dir), expected(t, dir)
			quantised := 0
			for _, name := range want.Names() {
				got, want := c.Matrix(name), want.Matrix(name)
				require.NotNil(t, got, name)
				require.Equal(t, []int{want.Rows, want.Cols}, []int{got.Rows, got.Cols}, name)
				require.Equal(t, want.DType, got.DType, name)
				a, b := rows(t, got), rows(t, want)
				for i := range a {
					if math.Float32bits(b[i]) != math.Float32bits(a[i]) {
						t.Fatalf("%s: row %d column %d: found %v, want %v (%s)", name, i/got.Cols, i%got.Cols, a[i], b[i], got.Format)
					}
				}
				if got.Format.Quantised() {
					quantised++
				}
			}
			require.GreaterOrEqual(t, quantised, 3)
			for _, name := range c.Names() {
				if want.Matrix(name) == nil {
					require.Regexp(t, `input_(global_)?scale$`, name, "the package does not know it")
				}
			}
		})
	}
}

// TestFormats shows what the fixtures hold: each format that is read is in one of them.
func TestFormats(t *testing.T) {
	text, err := os.ReadFile("testdata/formats.json")
	require.NoError(t, err)
	var want map[string]string
	require.NoError(t, json.Unmarshal(text, &want))
	got := map[string]string{}
	for _, dir := range fixtures(t) {
		c := open(t, dir)
		var formats []string
		for _, name := range c.Names() {
			m := c.Matrix(name)
			format := m.Format.String()
			if m.Groups() != nil {
				format += " in any order"
			}
			if m.Format.Quantised() && !strings.Contains("; "+strings.Join(formats, "; ")+"; ", "; "+format+"; ") {
				formats = append(formats, format)
			}
		}
		got[filepath.Base(dir)] = c.Method() + ": " + strings.Join(formats, "; ")
	}
	if os.Getenv("UPDATE") != "" {
		text, err := json.MarshalIndent(got, "", "  ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile("testdata/formats.json", append(text, '\n'), 0o644))
		return
	}
	require.Equal(t, want, got)
}
