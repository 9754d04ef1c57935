package quant_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/mkgen/mkgen/models/quant"
)

// readAll opens what may be anything, and reads the first and the last row of every matrix: errors are fine,
// panics not.
func readAll(t *testing.T, files fstest.MapFS) {
	c, err := quant.OpenFS(files)
	if err != nil {
		return
	}
	for _, name := range c.Names() {
		m := c.Matrix(name)
		if m == nil || m.Name != name {
			t.Fatalf("%q is not there", name)
		}
		if m.Rows == 0 || m.Cols == 0 {
			continue // of any other dimension, in no bytes
		}
		if m.Cols > 1<<20 {
			t.Fatalf("%q has %d columns in a file of a few kilobytes", name, m.Cols)
		}
		for _, row := range []int{0, m.Rows - 1} {
			if err := m.Row(row, make([]float32, m.Cols)); err != nil {
				t.Fatal(err)
			}
			if m.Format.Quantised() {
				if err := m.Zeros(row, make([]int8, m.Blocks())); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// one of each method, with one file.
var methods = []string{"gptq_dynamic", "gptq_v2_i4g32_zero", "awq_i4g32", "ct_i4_row_i8_mixed", "ct_nvfp4",
	"fp8_block_exponents", "modelopt_nvfp4"}

// seed is the configuration and the weights of one of methods.
func seed(f *testing.F, i int) (config, content []byte) {
	dir := filepath.Join("testdata", methods[i])
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		f.Fatal(err)
	}
	if content, err = os.ReadFile(filepath.Join(dir, "model.safetensors")); err != nil {
		f.Fatal(err)
	}
	return config, content
}

// FuzzConfig changes config.json beside the weights of each method.
func FuzzConfig(f *testing.F) {
	var weights [][]byte
	for i := range methods {
		config, content := seed(f, i)
		weights = append(weights, content)
		f.Add(uint8(i), config)
	}
	f.Fuzz(func(t *testing.T, which uint8, config []byte) {
		readAll(t, fstest.MapFS{"config.json": {Data: config}, "model.safetensors": {Data: weights[int(which)%len(weights)]}})
	})
}

// FuzzTensors changes the header of the weights of each method, and a byte and the length of their data.
func FuzzTensors(f *testing.F) {
	var configs, data [][]byte
	for i := range methods {
		config, content := seed(f, i)
		n := 8 + int(binary.LittleEndian.Uint64(content))
		configs, data = append(configs, config), append(data, content[n:])
		f.Add(uint8(i), content[8:n], uint16(0), byte(255), uint16(0))
	}
	f.Fuzz(func(t *testing.T, which uint8, header []byte, at uint16, value byte, cut uint16) {
		i := int(which) % len(methods)
		content := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
		content = append(append(content, header...), data[i]...)
		content[len(content)-1-int(at)%len(data[i])] ^= value
		content = content[:len(content)-int(cut)%len(data[i])]
		readAll(t, fstest.MapFS{"config.json": {Data: configs[i]}, "model.safetensors": {Data: content}})
	})
}
