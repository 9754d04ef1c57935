package quant_test

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/quant"
	"github.com/stretchr/testify/require"
)

// TestWhatIsLeftOutIsSaid has what each package's configuration says of inputs.
func TestWhatIsLeftOutIsSaid(t *testing.T) {
	for fixture, want := range map[string]string{
		"gptq_i4g32": "", "awq_i4g32": "", "ct_i4g128": "", "modelopt_nvfp4_w4a16": "",
		"ct_i8_int4_zero": "inputs of products in 8-bit integers", "ct_e4m3_row": "inputs of products in 8-bit floats",
		"fp8_block_sharded": "inputs of products in 8-bit floats", "modelopt_fp8": "inputs of products in 8-bit floats",
		"modelopt_nvfp4": "inputs of products in 4-bit floats",
	} {
		require.Equal(t, want, strings.Join(open(t, filepath.Join("testdata", fixture)).LeftOut(), ", "), fixture)
	}
	for _, c := range []struct{ fixture, old, new string }{
		{"ct_i4g32", `"kv_cache_scheme": null`, `"kv_cache_scheme": {"num_bits": 8}`},
		// What ModelOpt 0.47.0 writes for its NVFP4_KV_CFG.
		{"modelopt_nvfp4", `"quant_algo": "NVFP4"`, `"quant_algo": "NVFP4", "kv_cache_scheme": "NVFP4"`},
		{"modelopt_nvfp4", `"quant_algo": "NVFP4"`, `"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"`},
	} {
		files := load(t, "testdata/"+c.fixture)
		text := string(files["config.json"].Data)
		require.Contains(t, text, c.old)
		files["config.json"] = &fstest.MapFile{Data: []byte(strings.Replace(text, c.old, c.new, 1))}
		opened, err := quant.OpenFS(files)
		require.NoError(t, err)
		require.Contains(t, opened.LeftOut(), "a quantised KV cache")
		require.NoError(t, opened.Close())
	}
}

// TestReadingDeliversWhatRowDoes reads rows of all tensors in turn, in an order that no block of rows survives.
func TestReadingDeliversWhatRowDoes(t *testing.T) {
	for _, dir := range fixtures(t) {
		m, err := quant.OpenModel(dir, models.Reading{})
		require.NoError(t, err, dir)
		want := map[string][]float32{}
		for _, name := range m.Names() {
			want[name] = rows(t, m.Matrix(name))
		}
		require.NoError(t, m.Reading(func(row func(string, int, []half.BF16) ([]byte, error)) error {
			for i := range 96 {
				for _, name := range m.Names() {
					w := m.Matrix(name)
					r := i * 7 % w.Rows
					got, err := row(name, r, make([]half.BF16, w.Cols))
					if err != nil {
						return err
					}
					requireBF16(t, want[name][r*w.Cols:][:w.Cols], got)
				}
			}
			_, err := row("nobody", 0, nil)
			require.ErrorContains(t, err, "found no tensor nobody")
			return nil
		}))
		require.NoError(t, m.Close())
	}
}

// requireBF16 wants little-endian bf16s within half a unit of their last place of the numbers.
func requireBF16(t *testing.T, want []float32, got []byte) {
	require.Len(t, got, 2*len(want))
	for i, x := range want {
		y := math.Float32frombits(uint32(got[2*i])<<16 | uint32(got[2*i+1])<<24)
		if math.Abs(float64(x-y)) > math.Abs(float64(x))/256 || math.IsNaN(float64(y)) {
			t.Fatalf("found %v, want %v", y, x)
		}
	}
}
