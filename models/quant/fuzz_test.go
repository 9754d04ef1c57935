package quant_test

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/quant"
	"github.com/mkgen/mkgen/pipeline"
)

// readAll opens what may be anything, and reads the first and the last row of every matrix, and its codes as a kernel
// gets them: errors are fine, panics not.
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
	packAll(t, files)
}

// packAll packs the matrices of what may be anything that have codes for a kernel: in the form of all, in those of
// single matrices, and the LM head. What has a form must fit its format.
func packAll(t *testing.T, files fstest.MapFS) {
	m, err := quant.OpenModelFS(files)
	if err != nil {
		return
	}
	defer m.Close()
	all, why := m.Coded()
	if all == nil && why == "" {
		t.Fatal("no codes, and no reason")
	}
	forms, _ := m.Mixed()
	head, _ := m.CodedHead()
	joined := m.Join(forms)
	for _, stored := range m.Config().Stored() {
		switch {
		case stored.First.Vector:
		case stored.First.Layer < 0:
			if head != nil && stored.First.Role == models.RoleHead {
				packEnds(t, head, head, m.Matrix(stored.Name))
			}
		default:
			if all != nil {
				packEnds(t, all, all, m.Matrix(stored.Name))
			}
			if form := forms[quant.MatrixOf(stored.First.Role)]; form != nil {
				packEnds(t, joined, form, m.Matrix(stored.Name))
			}
		}
	}
}

// packEnds packs the first and the last rows of a matrix of which c delivers the codes in a form.
func packEnds(t *testing.T, c, form *quant.Coded, w *quant.Matrix) {
	format, ok := pipeline.OwnFloats(form.Bits, form.Group), true
	if !form.Float {
		format, ok = pipeline.Own(form.Bits, form.Group, form.Zeros, form.F16)
	}
	if !ok {
		return // 8 bits of single rows with zero points: widened
	}
	plan, err := pipeline.New(pipeline.Request{SMs: 1, Layers: 1, SharedLimit: 1 << 17,
		Layer: []pipeline.Matrix{{Name: "w", Rows: w.Rows, K: w.Cols, Format: format}}})
	if err != nil {
		return // nor is there a kernel of such a matrix
	}
	p, own := &plan.Layer[0], make([]int8, w.Cols)
	for _, first := range []int{0, (w.Rows - 1) / pipeline.TileRows * pipeline.TileRows} {
		var rows [pipeline.TileRows]*pipeline.Int4Row
		for r := range min(pipeline.TileRows, w.Rows-first) {
			n := format.Scales(w.Cols)
			v := &pipeline.Int4Row{Codes: make([]int8, w.Cols), Scales: make([]float32, n), Zeros: make([]int8, n)}
			if err := c.Int4Row(w.Name, first+r, v.Codes, v.Scales, v.Zeros); err != nil {
				t.Fatal(err)
			}
			if err := w.Codes(first+r, own); err != nil {
				t.Fatal(err)
			}
			if w.Format.Code != quant.E2M1 && !slices.Equal(own, v.Codes) {
				t.Fatalf("%s, row %d: the kernel's codes are others than the checkpoint's", w.Name, first+r)
			}
			format.NotFinite(v)
			rows[r] = v
		}
		if err := p.PackCoded(make([]byte, p.TileBytes()), &rows); err != nil {
			t.Fatalf("%s in %s: %v", w.Name, format, err)
		}
	}
}

// one of each method, with one file, and those that a kernel has formats of their own for.
var methods = []string{"gptq_dynamic", "gptq_v2_i4g32_zero", "awq_i4g32", "ct_i4_row_i8_mixed", "ct_nvfp4",
	"fp8_block_exponents", "modelopt_nvfp4", "ct_mxfp4", "ct_e4m3_block", "modelopt_fp8", "gptq_i4g32_zero",
	"gptq_v2_i8g32_zero", "gptq_i8g32_act_order"}

// seed is the configuration and the weights of one of methods.
func seed(f *testing.F, i int) (config, content []byte) {
	return read(f, i, "config.json"), read(f, i, "model.safetensors")
}

func read(f *testing.F, i int, name string) []byte {
	content, err := os.ReadFile(filepath.Join("testdata", methods[i], name))
	if err != nil {
		f.Fatal(err)
	}
	return content
}

// besides are the names of configurations beside config.json, and methods that have one.
var besides = map[string][]string{"quantize_config.json": {"gptq_dynamic", "gptq_v2_i4g32_zero"},
	"hf_quant_config.json": {"modelopt_fp8"}}

// unquantised is a config.json without what it says of the quantisation, which a file beside it then does.
func unquantised(f *testing.F, config []byte) []byte {
	var members map[string]json.RawMessage
	err := json.Unmarshal(config, &members)
	delete(members, "quantization_config")
	left, again := json.Marshal(members)
	if err != nil || again != nil {
		f.Fatal(err, again)
	}
	return left
}

// FuzzConfig changes config.json beside the weights of each method, and where there is one the configuration beside
// it.
func FuzzConfig(f *testing.F) {
	var weights [][]byte
	for i, method := range methods {
		config, content := seed(f, i)
		weights = append(weights, content)
		f.Add(uint8(i), config, false, []byte(nil))
		for name, of := range besides {
			if slices.Contains(of, method) {
				f.Add(uint8(i), unquantised(f, config), name == "hf_quant_config.json", read(f, i, name))
			}
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, config []byte, modelopt bool, beside []byte) {
		files := fstest.MapFS{"config.json": {Data: config}, "model.safetensors": {Data: weights[int(which)%len(weights)]}}
		name := "quantize_config.json"
		if modelopt {
			name = "hf_quant_config.json"
		}
		if len(beside) > 0 {
			files[name] = &fstest.MapFile{Data: beside}
		}
		readAll(t, files)
	})
}

// lastScale returns where the last scale of the first matrix by name lies in the data that a header describes.
func lastScale(f *testing.F, header []byte) int {
	var tensors map[string]struct {
		At [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(header, &tensors); err != nil {
		f.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		if strings.HasSuffix(name, ".weight_scale") {
			return tensors[name].At[1] - 1
		}
	}
	f.Fatal("no scales")
	return 0
}

// FuzzTensors changes the header of the weights of each method, and a byte and the length of their data.
func FuzzTensors(f *testing.F) {
	var configs, data [][]byte
	for i := range methods {
		config, content := seed(f, i)
		n := 8 + int(binary.LittleEndian.Uint64(content))
		configs, data = append(configs, config), append(data, content[n:])
		f.Add(uint8(i), content[8:n], uint16(0), byte(255), uint16(0))
		if methods[i] != "ct_mxfp4" {
			continue
		}
		at := lastScale(f, content[8:n])
		for _, exponent := range []byte{0, 1, 254, 255} {
			f.Add(uint8(i), content[8:n], uint16(len(content)-n-1-at), content[n+at]^exponent, uint16(0))
		}
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
