package quant

import (
	"fmt"

	"github.com/mkgen/mkgen/models"
)

// modelOpt reads what NVIDIA's Model Optimizer exports for Hugging Face.
type modelOpt struct {
	dtype models.DType // of the dequantised weights
	algo  string
	skip  []pattern
	notDone
}

// newModelOpt reads the configuration, from config.json or from hf_quant_config.json, which name some fields
// differently.
func newModelOpt(f *fields, dtype models.DType) importer {
	q := &modelOpt{dtype: dtype}
	switch q.algo = f.text("quant_algo", ""); q.algo {
	case "fp8", "fp8_per_channel_per_token", "nvfp4", "w4a16_nvfp4":
	default:
		f.refuse("quant_algo", `"FP8", "FP8_PER_CHANNEL_PER_TOKEN", "NVFP4" or "W4A16_NVFP4"`, "export it with one of these")
	}
	if f.integer("group_size", 16) != 16 {
		f.refuse("group_size", "16", "")
	}
	for _, field := range []string{"ignore", "exclude_modules"} {
		for _, text := range f.texts(field) {
			q.skip = append(q.skip, matchGlob(text))
		}
	}
	f.only("has_zero_point", "", "false")
	f.only("pre_quant_scale", "scaled inputs are not supported", "false")
	switch q.algo {
	case "fp8", "fp8_per_channel_per_token":
		q.add("inputs of products in 8-bit floats")
	case "nvfp4":
		q.add("inputs of products in 4-bit floats")
	}
	q.cache(f, "kv_cache_scheme")
	q.cache(f, "kv_cache_quant_algo")
	f.others("config_groups producer quantized_layers")
	return q
}

func (q *modelOpt) quantised(module string) (bool, string) {
	for _, p := range q.skip {
		if p.MatchString(module) {
			return false, "ignore or exclude_modules lists it"
		}
	}
	return true, ""
}

func (q *modelOpt) weight(m *module) (*Matrix, error) {
	for _, leaf := range []string{"pre_quant_scale", "svdquant_lora_a", "svdquant_lora_b"} {
		if m.has(leaf) {
			m.problem(leaf, "it", "no such tensor",
				"inputs scaled or products corrected beside the weight are not supported: export without AWQ and SVDQuant")
			return nil, nil
		}
	}
	if q.algo == "nvfp4" || q.algo == "w4a16_nvfp4" {
		return q.nvfp4(m)
	}
	return q.fp8(m)
}

// nvfp4 reads weight [rows, columns / 2], weight_scale [rows, columns / 16] and weight_scale_2, a factor.
func (q *modelOpt) nvfp4(m *module) (*Matrix, error) {
	rows, half, ok := m.matrixOf("weight", "U8")
	if !ok {
		return nil, nil
	}
	w := &Matrix{Rows: rows, Cols: 2 * half}
	w.nibbles(m.full("weight"))
	if w.Cols%16 != 0 {
		m.problem("weight", fmt.Sprintf("%d columns", w.Cols), "a multiple of 16", "")
	}
	groups := w.setGroup(16)
	if t, ok := m.shaped("weight_scale", "F8_E4M3", []int64{int64(w.Rows), int64(groups)}); ok {
		w.setScales(t.Name, t.DType, groups, 1)
	}
	var err error
	w.factor, err = m.scalar("weight_scale_2")
	w.Format.Code, w.Format.Global = E2M1, Multiplies
	w.DType, w.steps = q.dtype, steps{result: q.dtype}
	return w, err
}

// fp8 reads weight and weight_scale, one number or one a row.
func (q *modelOpt) fp8(m *module) (*Matrix, error) {
	w := m.e4m3()
	if w == nil {
		return nil, nil
	}
	shapes := [][]int64{nil, {1}}
	w.setBlocks(0, 0)
	if q.algo != "fp8" {
		w.setGroup(-1)
		shapes = [][]int64{{int64(w.Rows)}, {int64(w.Rows), 1}}
	}
	if t, ok := m.shaped("weight_scale", floats, shapes...); ok {
		w.setScales(t.Name, t.DType, 1, 1)
	}
	w.DType, w.steps = q.dtype, steps{scale: q.dtype, product: q.dtype}
	return w, nil
}
