package quant

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/fstest"

	"github.com/mkgen/mkgen/models/half"
	"github.com/stretchr/testify/require"
)

// layouts are the formats whose speed is measured: a configuration, and the tensors of a matrix w of 1024 rows of 4096.
var layouts = map[string]struct {
	config  string
	tensors map[string]wide
}{
	"ct i4g128": {ctConfig("pack-quantized", `"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128`),
		map[string]wide{"weight_packed": {"I32", 1024, 512}, "weight_scale": {"BF16", 1024, 32},
			"weight_shape": {"I64", 2, 0}}},
	"ct i8": {ctConfig("int-quantized", `"num_bits": 8, "type": "int", "strategy": "channel"`),
		map[string]wide{"weight": {"I8", 1024, 4096}, "weight_scale": {"BF16", 1024, 1}}},
	"ct e4m3": {ctConfig("float-quantized", `"num_bits": 8, "type": "float", "strategy": "channel"`),
		map[string]wide{"weight": {"F8_E4M3", 1024, 4096}, "weight_scale": {"BF16", 1024, 1}}},
	"fp8 blocks": {`{"quant_method": "fp8", "weight_block_size": [128, 128]}`,
		map[string]wide{"weight": {"F8_E4M3", 1024, 4096}, "weight_scale_inv": {"F32", 8, 32}}},
	"gptq i4g128": {`{"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": false, "checkpoint_format": "gptq_v2"}`,
		map[string]wide{"qweight": {"I32", 512, 1024}, "qzeros": {"I32", 32, 128}, "scales": {"F16", 32, 1024}}},
	"awq i4g128": {`{"quant_method": "awq", "bits": 4, "group_size": 128}`,
		map[string]wide{"qweight": {"I32", 4096, 128}, "qzeros": {"I32", 32, 128}, "scales": {"F16", 32, 1024}}},
	"ct nvfp4": {ctConfig("nvfp4-pack-quantized",
		`"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16`),
		map[string]wide{"weight_packed": {"U8", 1024, 2048}, "weight_scale": {"F8_E4M3", 1024, 256},
			"weight_global_scale": {"F32", 1, 0}}},
}

// wide is a tensor's type and shape; of a vector only the rows.
type wide struct {
	dtype      string
	rows, cols int
}

func ctConfig(format, weights string) string {
	return fmt.Sprintf(`{"quant_method": "compressed-tensors", "format": %q, "config_groups": {"group_0":
		{"targets": ["Linear"], "weights": {%s, "symmetric": true}}}}`, format, weights)
}

// openWide makes a checkpoint of one of layouts in memory. Bytes are random below 64, of which every type has a finite
// number.
func openWide(t testing.TB, layout string) *Checkpoint {
	l := layouts[layout]
	random := rand.New(rand.NewPCG(1, 2))
	header, data := map[string]any{}, []byte(nil)
	for leaf, w := range l.tensors {
		n, shape := w.rows*max(w.cols, 1), []int{w.rows, w.cols}
		if w.cols == 0 {
			shape = shape[:1]
		}
		bytes := n * map[string]int{"I64": 8, "I32": 4, "F32": 4, "BF16": 2, "F16": 2, "I8": 1, "U8": 1,
			"F8_E4M3": 1}[w.dtype]
		header["w."+leaf] = map[string]any{"dtype": w.dtype, "shape": shape,
			"data_offsets": []int{len(data), len(data) + bytes}}
		if leaf == "weight_shape" {
			data = binary.LittleEndian.AppendUint64(data, 1024)
			data = binary.LittleEndian.AppendUint64(data, 4096)
			continue
		}
		for range bytes {
			data = append(data, byte(random.Uint32()&63)|1)
		}
	}
	text, err := json.Marshal(header)
	require.NoError(t, err)
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	c, err := OpenFS(fstest.MapFS{"config.json": {Data: []byte(`{"quantization_config": ` + l.config + `}`)},
		"model.safetensors": {Data: append(file, data...)}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// BenchmarkRow reads a matrix of 4 Mi weights row by row as bf16, as it is loaded.
func BenchmarkRow(b *testing.B) {
	for layout := range layouts {
		b.Run(layout, func(b *testing.B) {
			m := &Model{Checkpoint: openWide(b, layout)}
			row := make([]half.BF16, 4096)
			for b.Loop() {
				for r := range 1024 {
					require.NoError(b, m.Row("w.weight", r, row))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(1024*4096), "ns/weight")
		})
	}
}
