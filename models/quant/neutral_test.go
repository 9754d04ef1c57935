package quant_test

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/quant"
	"github.com/stretchr/testify/require"
)

// TestCodesScalesAndZerosMakeTheWeights computes each weight from the neutral form in float64: Row may differ by the
// roundings of its type only.
func TestCodesScalesAndZerosMakeTheWeights(t *testing.T) {
	for _, dir := range fixtures(t) {
		c := open(t, dir)
		for _, name := range c.Names() {
			if m := c.Matrix(name); m.Format.Quantised() {
				requireNeutral(t, filepath.Base(dir), m)
			}
		}
	}
}

func requireNeutral(t *testing.T, fixture string, m *quant.Matrix) {
	bits := map[models.DType]float64{models.BF16: 8, models.F16: 11, models.F32: 24}[m.DType]
	codes, weights := make([]int8, m.Cols), make([]float32, m.Cols)
	scales, zeros := make([]float32, m.Blocks()), make([]int8, m.Blocks())
	for row := range m.Rows {
		require.NoError(t, errors.Join(m.Codes(row, codes), m.Scales(row, scales), m.Zeros(row, zeros), m.Row(row, weights)))
		for c, code := range codes {
			g := 0
			if m.Groups() != nil {
				g = int(m.Groups()[c])
			} else if m.Format.Cols > 0 {
				g = c / m.Format.Cols
			}
			want := (number(m.Format.Code, code) - float64(zeros[g])) * float64(scales[g])
			switch m.Format.Global {
			case quant.Multiplies:
				want *= float64(m.Factor())
			case quant.Divides:
				want /= float64(m.Factor())
			}
			// Three roundings at most, each by half a unit in the last place, and the smallest numbers of binary16.
			slack := 3*math.Abs(want)*math.Exp2(-bits) + 0x1p-25
			if math.Abs(want-float64(weights[c])) > slack {
				t.Fatalf("%s %s: row %d column %d: found %v, want %v", fixture, m.Name, row, c, weights[c], want)
			}
		}
	}
}

// number is what a code stands for.
func number(code quant.Code, c int8) float64 {
	sign := 1.0
	switch code {
	case quant.E2M1:
		if c&8 != 0 {
			sign = -1
		}
		return sign * []float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}[c&7]
	case quant.E4M3:
		if c < 0 {
			sign = -1
		}
		exponent, fraction := int(c>>3&15), float64(c&7)/8
		if exponent == 0 {
			return sign * math.Ldexp(fraction, -6)
		}
		return sign * math.Ldexp(1+fraction, exponent-7)
	}
	return float64(c)
}

func TestShardsDoNotMatter(t *testing.T) {
	for _, dir := range fixtures(t) {
		shards, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
		require.NoError(t, err)
		require.Equal(t, strings.HasSuffix(dir, "_sharded"), len(shards) > 1, dir)
	}
}

func TestWrongArgumentsAreErrors(t *testing.T) {
	c := open(t, "testdata/ct_i4g32")
	require.Nil(t, c.Matrix("model.layers.0.mlp.up_proj.weight_packed"))
	up, norm := c.Matrix("model.layers.0.mlp.up_proj.weight"), c.Matrix("model.norm.weight")
	require.EqualError(t, up.Row(96, make([]float32, 64)),
		"quant: model.layers.0.mlp.up_proj.weight: found row 96 asked for, want 0 to 95")
	require.EqualError(t, up.Row(-1, make([]float32, 64)),
		"quant: model.layers.0.mlp.up_proj.weight: found row -1 asked for, want 0 to 95")
	require.EqualError(t, up.Codes(0, nil),
		"quant: model.layers.0.mlp.up_proj.weight: found a destination of 0 elements, want 64")
	require.EqualError(t, up.Scales(0, make([]float32, 3)),
		"quant: model.layers.0.mlp.up_proj.weight: found a destination of 3 elements, want 2")
	require.EqualError(t, up.Zeros(0, make([]int8, 3)),
		"quant: model.layers.0.mlp.up_proj.weight: found a destination of 3 elements, want 2")
	require.EqualError(t, norm.Codes(0, make([]int8, 64)),
		"quant: model.norm.weight: found codes asked for, want a quantised matrix: it is bf16")
	require.Equal(t, 0, norm.Blocks())
	require.Equal(t, float32(1), up.Factor())
}

func TestReadingAfterCloseIsAnError(t *testing.T) {
	c, err := quant.Open("testdata/ct_i4g32")
	require.NoError(t, err)
	m := c.Matrix("model.norm.weight")
	require.NoError(t, c.Close())
	require.ErrorIs(t, m.Row(0, make([]float32, 64)), checkpoint.ErrClosed)
}

func TestOpenFSReadsTheSame(t *testing.T) {
	dir := "testdata/gptq_i4g32_act_order_sharded"
	c, err := quant.OpenFS(os.DirFS(dir))
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	mapped := open(t, dir)
	require.Equal(t, mapped.Names(), c.Names())
	for _, name := range c.Names() {
		require.Equal(t, rows(t, mapped.Matrix(name)), rows(t, c.Matrix(name)))
	}
}

// TestConfigurationsBesideTheModels reads configurations where older tools put them.
func TestConfigurationsBesideTheModels(t *testing.T) {
	files := load(t, "testdata/gptq_i4g32")
	require.NotNil(t, files["quantize_config.json"])
	files["config.json"] = &fstest.MapFile{Data: []byte("{}")}
	c, err := quant.OpenFS(files)
	require.NoError(t, err)
	require.Equal(t, "gptq", c.Method())
	require.NoError(t, c.Close())
}

// load reads a fixture into a file system that a test may change.
func load(t testing.TB, dir string) fstest.MapFS {
	files := fstest.MapFS{}
	entries, err := fs.ReadDir(os.DirFS(dir), ".")
	require.NoError(t, err)
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		files[e.Name()] = &fstest.MapFile{Data: data}
	}
	return files
}

// TestGroupsWithoutWeightsQuantiseNothing: a group of config_groups may be about inputs only.
func TestGroupsWithoutWeightsQuantiseNothing(t *testing.T) {
	files := load(t, "testdata/ct_i4g32")
	text := strings.Replace(string(files["config.json"].Data), `"config_groups": {`,
		`"config_groups": {"inputs": {"targets": ["re:.*"], "weights": null, "format": "dense"}, `, 1)
	files["config.json"].Data = []byte(text)
	c, err := quant.OpenFS(files)
	require.NoError(t, err)
	require.Equal(t, "i4g32 with bf16 scales", c.Matrix("model.layers.0.mlp.up_proj.weight").Format.String())
	require.NoError(t, c.Close())
}
