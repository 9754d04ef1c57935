package quant_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/models"
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

// computed is what the package computed of a matrix or vector.
type computed struct {
	DType  string
	Shape  []int
	SHA256 string // of its numbers as little-endian float32
}

// expected reads what the package computed of the fixture in dir, by name.
func expected(t testing.TB, dir string) (all map[string]computed) {
	text, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &all))
	return all
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
			for name, want := range want {
				got := c.Matrix(name)
				require.NotNil(t, got, name)
				shape := append([]int{1, 1}[:2-len(want.Shape)], want.Shape...)
				require.Equal(t, shape, []int{got.Rows, got.Cols}, name)
				require.Equal(t, want.DType, got.DType.String(), name)
				hash := sha256.New()
				require.NoError(t, binary.Write(hash, binary.LittleEndian, rows(t, got)))
				require.Equal(t, want.SHA256, hex.EncodeToString(hash.Sum(nil)), "%s, %s", name, got.Format)
				if got.Format.Quantised() {
					quantised++
				}
			}
			require.GreaterOrEqual(t, quantised, 3)
			for _, name := range c.Names() {
				if _, ok := want[name]; !ok {
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

// TestOneMatrixIsNoMatrices in the summary.
func TestOneMatrixIsNoMatrices(t *testing.T) {
	m, err := quant.OpenModel("testdata/gptq_i4g128", models.Reading{})
	require.NoError(t, err)
	defer m.Close()
	require.Equal(t, "gptq: 1 matrix of i4g128 with f16 scales, 6 matrices of i4 a row with f16 scales", m.Summary())
}

// TestVersionsOfGPTQStoreZeroPointsOneApart has the same model in both versions: the files differ in their zero points,
// and read as the other version every quantised tensor is another.
func TestVersionsOfGPTQStoreZeroPointsOneApart(t *testing.T) {
	first, second := "testdata/gptq_i4g32_zero", "testdata/gptq_v2_i4g32_zero_in_order"
	require.Equal(t, expected(t, first), expected(t, second))
	a, b := open(t, first), open(t, second)
	require.Equal(t, a.Names(), b.Names())
	for _, name := range a.Names() {
		zeros, same := make([]int8, a.Matrix(name).Blocks()), make([]int8, b.Matrix(name).Blocks())
		if a.Matrix(name).Format.Quantised() {
			require.NoError(t, a.Matrix(name).Zeros(0, zeros))
			require.NoError(t, b.Matrix(name).Zeros(0, same))
		}
		require.Equal(t, zeros, same, name)
	}
	for dir, other := range map[string][2]string{first: {`"gptq"`, `"gptq_v2"`}, second: {`"gptq_v2"`, `"gptq"`}} {
		files := load(t, dir)
		const field = `"checkpoint_format": `
		text := string(files["config.json"].Data)
		require.Contains(t, text, field+other[0])
		files["config.json"].Data = []byte(strings.Replace(text, field+other[0], field+other[1], 1))
		c, err := quant.OpenFS(files)
		require.NoError(t, err)
		require.Len(t, missed(t, c, expected(t, dir)), 7, dir)
		require.NoError(t, c.Close())
	}
}
