package quant

import "strings"

// awq reads what AutoAWQ writes for its "gemm" kernel, and what GPTQModel and auto-round write like it.
type awq struct {
	group     int
	symmetric bool // all zero points are stored, as the middle; AutoAWQ itself has no such form
	skip      []string
	notDone
}

// newAWQ reads the configuration.
func newAWQ(f *fields) importer {
	a := &awq{group: f.integer("group_size", f.integer("q_group_size", 128)), skip: f.texts("modules_to_not_convert")}
	for _, field := range []string{"bits", "w_bit"} {
		if f.integer(field, 4) != 4 {
			f.refuse(field, "4", "")
		}
	}
	group := "group_size"
	if f.raw(group) == nil && f.raw("q_group_size") != nil {
		group = "q_group_size"
	}
	checkGroup(f, group, a.group)
	a.symmetric = !f.boolean("zero_point", true)
	for _, field := range []string{"version", "format", "checkpoint_format"} {
		if f.text(field, "gemm") != "gemm" {
			f.refuse(field, `"gemm"`, "it is packed for another kernel: quantise with version gemm")
		}
	}
	f.boolean("lm_head", false)
	f.only("method", "", `"awq"`)
	f.only("packing_format", "", `"auto_round:auto_awq"`)
	f.only("dynamic", "rules for single modules are read in GPTQ: quantise with modules_to_not_convert", "{}")
	changesProducts(f)
	f.others(`do_fuse fuse_max_seq_len modules_to_fuse exllama_config backend model_seqlen sym desc_act meta` +
		autoRound(f))
	return a
}

// quantised looks for names of skipped modules anywhere in a module's name, as AutoAWQ does.
func (a *awq) quantised(module string) (bool, string) {
	for _, s := range a.skip {
		if strings.Contains(module, s) {
			return false, "modules_to_not_convert lists it"
		}
	}
	return true, ""
}

// awqOrder is the slot of each of eight columns in their word.
var awqOrder = [8]uint8{0, 4, 1, 5, 2, 6, 3, 7}

// weight reads qweight [columns, rows packed], scales [groups, rows] and qzeros [groups, rows packed].
func (a *awq) weight(m *module) (*Matrix, error) {
	cols, words, ok := m.matrixOf("qweight", "I32")
	if !ok {
		return nil, nil
	}
	w := &Matrix{Rows: 8 * words, Cols: cols}
	groups := w.setGroup(a.group)
	w.codes = ints{tensor: m.full("qweight"), bits: 4, perWord: 8, width: words,
		transposed: true, order: &awqOrder, offset: -8}
	w.zeros = w.codes
	w.zeros.tensor = m.full("qzeros")
	m.shaped("qzeros", "I32", []int64{int64(groups), int64(words)})
	if t, ok := m.shaped("scales", floats, []int64{int64(groups), int64(w.Rows)}); ok {
		w.setScales(t.Name, t.DType, 1, w.Rows)
	}
	w.Format.Code, w.Format.Zeros = I4, !a.symmetric
	if cols%w.scales.columns != 0 {
		m.problem("qweight", shape(int64(cols), int64(words)), "a multiple of group_size rows", "")
	}
	if m.bad || !a.symmetric {
		return w, nil
	}
	return w, m.checkZeros("qzeros", w, groups, "zero_point is false")
}
