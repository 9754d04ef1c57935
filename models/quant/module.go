package quant

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/problem"
)

// module is the tensors that share everything before the last dot of their names.
type module struct {
	name   string   // without the dot behind it
	prefix string   // of the tensors' names, with the dot
	leaves []string // in the order of the files
	found  map[string]checkpoint.TensorInfo
	taken  map[string]bool
	bad    bool // there was a problem with a tensor
	files  *checkpoint.Tensors
	p      *problem.List
}

// full returns the name of a tensor of the module.
func (m *module) full(leaf string) string { return m.prefix + leaf }

// has reports whether there is such a tensor.
func (m *module) has(leaf string) bool { _, ok := m.found[leaf]; return ok }

// quantisedLeaf returns a tensor that only quantised modules have, the codes if they are there, "" for none.
func (m *module) quantisedLeaf() string {
	first := ""
	for _, leaf := range m.leaves {
		switch {
		case oneOf(leaf, "qweight weight_packed") || leaf == "weight" && !isFloat(m.found[leaf].DType):
			return leaf
		case first == "" && reserved(leaf):
			first = leaf
		}
	}
	return first
}

// foreign refuses a module as packages write it that keep no quantization_config in config.json.
func (m *module) foreign() bool {
	for _, of := range []struct{ leaf, name string }{{"W_q", "HQQ"}, {"_data", "Quanto"}} {
		if m.has(of.leaf) {
			m.problem(of.leaf, m.found[of.leaf].DType+" as "+of.name+" writes it", "a quantization_config of "+methods,
				advice(of.name))
		}
	}
	return m.bad
}

// unstated refuses a quantised module.
func (m *module) unstated() bool {
	if leaf := m.quantisedLeaf(); leaf != "" {
		m.problem(leaf, m.found[leaf].DType+" of a quantised weight",
			"a quantization_config in config.json, which says what it means", "")
	}
	return m.bad
}

// problem adds what is wrong with one tensor.
func (m *module) problem(leaf, found, want, why string) {
	m.bad = true
	m.p.Add(&checkpoint.Problem{File: m.found[leaf].File, Tensor: m.full(leaf), Found: found, Want: want, Why: why})
}

// take returns a tensor that must be there and have one of the types, in one string.
func (m *module) take(leaf, dtypes string) (checkpoint.TensorInfo, bool) {
	t, ok := m.found[leaf]
	if !ok {
		m.problem(leaf, "nothing", "it", fmt.Sprintf("%s is quantised: there is %s", orRoot(m.name), m.quantisedLeaf()))
		return t, false
	}
	m.taken[leaf] = true
	if !oneOf(t.DType, dtypes) {
		m.problem(leaf, "dtype "+t.DType, strings.ReplaceAll(dtypes, " ", " or "), "")
		return t, false
	}
	return t, true
}

// matrixOf returns a tensor of two dimensions with one of the types. Both dimensions are positive and fit an int32.
func (m *module) matrixOf(leaf, dtypes string) (rows, cols int, ok bool) {
	t, ok := m.take(leaf, dtypes)
	if !ok {
		return 0, 0, false
	}
	if len(t.Shape) != 2 || min(t.Shape[0], t.Shape[1]) < 1 || max(t.Shape[0], t.Shape[1]) > 1<<30 {
		m.problem(leaf, "shape "+shape(t.Shape...), "two dimensions from 1 to 2^30", "")
		return 0, 0, false
	}
	return int(t.Shape[0]), int(t.Shape[1]), true
}

// shaped takes a tensor that must have one of the shapes.
func (m *module) shaped(leaf, dtypes string, shapes ...[]int64) (checkpoint.TensorInfo, bool) {
	t, ok := m.take(leaf, dtypes)
	if !ok {
		return t, false
	}
	var want []string
	for _, s := range shapes {
		if shape(s...) == shape(t.Shape...) {
			return t, true
		}
		want = append(want, shape(s...))
	}
	m.problem(leaf, "shape "+shape(t.Shape...), strings.Join(want, " or "), "")
	return t, false
}

// read calls f with the bytes of a tensor of the module.
func (m *module) read(leaf string, f func(data []byte)) error {
	return m.files.Reading(func(data func(string) []byte) error {
		f(data(m.full(leaf)))
		return nil
	})
}

// floats are the types of tensors that are not quantised; anyFloat is the same for messages.
const (
	floats   = "BF16 F16 F32"
	anyFloat = "BF16, F16 or F32"
)

func isFloat(dtype string) bool { return oneOf(dtype, floats) }

func oneOf(word, words string) bool { return slices.Contains(strings.Fields(words), word) }

// floatOf returns the type of an unquantised tensor, as models and as this package call it.
func floatOf(dtype string) (models.DType, Code) {
	switch dtype {
	case "BF16":
		return models.BF16, BF16
	case "F16":
		return models.F16, F16
	case "F32":
		return models.F32, F32
	}
	panic("BUG: quant: a float of dtype " + dtype)
}

// scaleOf returns the type of a tensor of scales, and the type of the same name of numbers, if there is one.
func scaleOf(dtype string) (Scale, models.DType) {
	switch dtype {
	case "BF16":
		return ScaleBF16, models.BF16
	case "F16":
		return ScaleF16, models.F16
	case "F32":
		return ScaleF32, models.F32
	case "F8_E4M3":
		return ScaleE4M3, models.DTypeUnstated
	case "U8", "F8_E8M0":
		return ScaleE8M0, models.DTypeUnstated
	}
	panic("BUG: quant: scales of dtype " + dtype)
}

// reserved reports whether only quantised modules have tensors of this name.
func reserved(leaf string) bool {
	return oneOf(leaf, `qweight qzeros scales g_idx weight_packed weight_scale weight_shape weight_zero_point weight_g_idx
		weight_global_scale weight_scale_inv weight_scale_2 pre_quant_scale svdquant_lora_a svdquant_lora_b
		absmax quant_map nested_absmax nested_quant_map SCB compressed bitmask row_offsets`)
}

// shape returns "[2, 3]".
func shape(s ...int64) string { return strings.ReplaceAll(fmt.Sprint(s), " ", ", ") }

// orRoot names a module in a message.
func orRoot(name string) string {
	if name == "" {
		return "the model"
	}
	return problem.Shorten(name, maxShown)
}

// e4m3 is the matrix of the module's weight in float8, without scales; nil where it is not right, which m notes.
func (m *module) e4m3() *Matrix {
	rows, cols, ok := m.matrixOf("weight", "F8_E4M3")
	if !ok {
		return nil
	}
	w := &Matrix{Rows: rows, Cols: cols}
	w.bytes(m.full("weight"), false)
	w.Format.Code = E4M3
	return w
}
