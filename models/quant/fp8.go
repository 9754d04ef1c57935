package quant

import (
	"strings"

	"github.com/mkgen/mkgen/models"
)

// fp8 reads the format of DeepSeek-V3, which transformers writes as FineGrainedFP8Config, and plain float8 with
// a scale a tensor.
type fp8 struct {
	dtype   models.DType // of the dequantised weights
	blocks  bool
	block   [2]int
	skipped []exception
	notDone
}

// exception is a name in modules_to_not_convert, or a pattern of it.
type exception struct {
	text string
	pattern
}

// newFP8 reads the configuration.
func newFP8(f *fields, dtype models.DType) importer {
	q := &fp8{dtype: dtype}
	if f.raw("weight_scale_semantics") != nil {
		f.refuse("weight_scale_semantics", "no such field",
			"GPTQModel's own float8 is not supported: export it with transformers or llm-compressor")
		return q
	}
	q.block, q.blocks = f.pair("weight_block_size")
	f.only("fmt", "only e4m3 is supported", `"e4m3"`, `"float8_e4m3fn"`)
	f.only("scale_fmt", "", `"float"`, `"ue8m0"`)
	f.only("expert_dtype", "", `"fp8"`)
	f.only("activation_scheme", "", `"dynamic"`, `"static"`)
	f.raw("modules_to_convert")
	for _, field := range []string{"modules_to_not_convert", "ignored_layers"} {
		for _, text := range f.texts(field) {
			p, no := matchWhole(text)
			if no != nil {
				f.refusePattern(field, text, no)
				continue
			}
			q.skipped = append(q.skipped, exception{text, p})
		}
	}
	q.add("inputs of products in 8-bit floats")
	q.cache(f, "kv_cache_scheme")
	f.others("dequantize is_checkpoint_fp8_serialized")
	return q
}

// quantised follows transformers: an exception matches a name from its start up to a dot or its end, or the name ends
// with it.
func (q *fp8) quantised(module string) (bool, string) {
	for _, e := range q.skipped {
		for i := range len(module) + 1 {
			boundary := i == len(module) || module[i] == '.' || i > 0 && module[i-1] == '.'
			if boundary && e.MatchString(module[:i]) || strings.HasSuffix(module, e.text) {
				return false, "modules_to_not_convert lists it"
			}
		}
	}
	return true, ""
}

// weight reads weight and weight_scale_inv, which despite its name is a factor; in files without blocks it may
// be called weight_scale.
func (q *fp8) weight(m *module) (*Matrix, error) {
	w := m.e4m3()
	if w == nil {
		return nil, nil
	}
	leaf := "weight_scale_inv"
	if !m.has(leaf) && m.has("weight_scale") {
		leaf = "weight_scale"
	}
	down, across := w.setBlocks(q.block[0], q.block[1])
	shapes := [][]int64{{int64(down), int64(across)}}
	if !q.blocks {
		shapes = [][]int64{nil, {1}, {1, 1}}
	}
	if t, ok := m.shaped(leaf, floats+" F8_E8M0", shapes...); ok {
		w.setScales(t.Name, t.DType, across, 1)
	}
	w.DType, w.steps = q.dtype, steps{result: q.dtype}
	return w, nil
}
