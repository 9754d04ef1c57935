package quant

import (
	"fmt"
	"strings"
)

// gptq reads what GPTQModel, AutoGPTQ and optimum write.
type gptq struct {
	bits, group int // group is -1 for one of all columns
	symmetric   bool
	add         int // 1 where a zero point is stored less one, the first version of the format
	dynamic     []override
	notDone
}

// override is a rule for modules whose names match.
type override struct {
	pattern
	exclude bool
	bits    int
	group   int
	sym     bool
}

// newGPTQ reads the configuration. Only some fields matter: the others say how the quantiser worked.
func newGPTQ(f *fields) importer {
	g := &gptq{bits: f.integer("bits", 0), group: f.integer("group_size", -1), symmetric: f.boolean("sym", true)}
	checkBits(f, "bits", g.bits)
	checkGroup(f, "group_size", g.group)
	f.boolean("desc_act", false)
	f.boolean("lm_head", false)
	switch format := f.text("checkpoint_format", f.text("format", "gptq")); format {
	case "gptq":
		g.add = 1
	case "gptq_v2":
	default:
		field := "checkpoint_format"
		if f.values[field] == nil {
			field = "format"
		}
		f.refuse(field, `"gptq" or "gptq_v2"`,
			"it is packed for one kernel: quantise again, or take the files it was made from")
	}
	f.only("format", "", `"gptq"`, `"gptq_v2"`)
	f.only("method", "", `"gptq"`)
	f.only("packing_format", "it is packed for one kernel: export it as auto_gptq", `"auto_round:auto_gptq"`)
	f.only("is_marlin_format", "it is packed for one kernel", "false")
	changesProducts(f)
	g.readDynamic(f)
	f.others(`damp_percent damp_auto_increment static_groups true_sequential mse model_name_or_path model_file_base_name
		quantizer meta tokenizer dataset batch_size pad_token_id use_exllama exllama_config disable_exllama max_input_length
		use_cuda_fp16 model_seqlen block_name_to_quantize module_name_preceding_first_block modules_in_block_to_quantize
		cache_block_outputs backend act_group_aware hyb_act v2 v2_alpha pack_impl` + autoRound(f))
	return g
}

// changesProducts refuses what GPTQModel may have done beside quantising weights, in words of 32 bits.
func changesProducts(f *fields) {
	f.only("pack_dtype", "", `"int32"`)
	for _, field := range []string{"activation", "adapter", "rotation"} {
		f.only(field, "it changes what a product computes", "{}")
	}
}

// readDynamic reads rules in their order: "-:" before a pattern excludes modules, "+:" or nothing gives other
// numbers.
func (g *gptq) readDynamic(f *fields) {
	rules := f.object("dynamic")
	for _, name := range rules.names {
		o := override{exclude: strings.HasPrefix(name, "-:")}
		var no *notPattern
		if o.pattern, no = matchStart(strings.TrimPrefix(strings.TrimPrefix(name, "-:"), "+:")); no != nil {
			f.refusePattern("dynamic", name, no)
			continue
		}
		r := rules.object(name)
		o.bits, o.group, o.sym = r.integer("bits", g.bits), r.integer("group_size", g.group), r.boolean("sym", g.symmetric)
		checkBits(r, "bits", o.bits)
		checkGroup(r, "group_size", o.group)
		r.boolean("desc_act", false)
		r.others("mse damp_percent damp_auto_increment static_groups act_group_aware true_sequential v2 v2_alpha meta")
		g.dynamic = append(g.dynamic, o)
	}
}

// checkBits refuses widths that are not read.
func checkBits(f *fields, field string, bits int) {
	if bits != 4 && bits != 8 {
		f.refuse(field, "4 or 8", "")
	}
}

// mostColumns is how many columns a group has at most, and wantColumns the same for messages.
const (
	mostColumns = 1 << 20
	wantColumns = "1 to 2^20 columns"
)

// checkGroup refuses group sizes that none of the methods has.
func checkGroup(f *fields, field string, group int) {
	if group != -1 && (group < 1 || group > mostColumns) {
		f.refuse(field, "-1 or "+wantColumns, "")
	}
}

// of returns the first rule for a module, nil for none.
func (g *gptq) of(module string) *override {
	for i := range g.dynamic {
		if g.dynamic[i].MatchString(module) {
			return &g.dynamic[i]
		}
	}
	return nil
}

func (g *gptq) quantised(module string) (bool, string) {
	if o := g.of(module); o != nil && o.exclude {
		return false, "dynamic excludes the module"
	}
	return true, ""
}

// weight reads qweight [columns packed, rows], scales [groups, rows], qzeros [groups, rows packed] and g_idx
// [columns].
func (g *gptq) weight(m *module) (*Matrix, error) {
	bits, group, symmetric := g.bits, g.group, g.symmetric
	if o := g.of(m.name); o != nil {
		bits, group, symmetric = o.bits, o.group, o.sym
	}
	pack := 32 / bits
	down, rows, ok := m.matrixOf("qweight", "I32")
	if !ok {
		return nil, nil
	}
	w := &Matrix{Rows: rows, Cols: down * pack}
	w.codes = ints{tensor: m.full("qweight"), bits: bits, perWord: pack, width: rows,
		down: true, transposed: true, offset: -1 << (bits - 1)}
	groups := w.setGroup(group)
	words := int64((rows + pack - 1) / pack)
	m.shaped("qzeros", "I32", []int64{int64(groups), words})
	w.zeros = ints{tensor: m.full("qzeros"), bits: bits, perWord: pack, width: int(words),
		transposed: true, offset: g.add - 1<<(bits-1)}
	if t, ok := m.shaped("scales", floats, []int64{int64(groups), int64(rows)}); ok {
		w.setScales(t.Name, t.DType, 1, rows)
	}
	w.Format.Code, w.Format.Zeros = codeOf(bits), !symmetric
	if m.has("g_idx") {
		m.shaped("g_idx", "I32", []int64{int64(w.Cols)})
	}
	if m.bad {
		return nil, nil
	}
	why := ""
	if symmetric {
		why = "sym is true"
	}
	if err := m.checkZeros("qzeros", w, groups, why); err != nil || m.bad {
		return nil, err
	}
	if m.has("g_idx") {
		return w, m.readOrder("g_idx", w, groups)
	}
	return w, nil
}

// checkZeros refuses zero points that do not fit their bits: a first version's writer may have carried into the
// neighbour, and its readers differ in what they make of it. It also refuses those that are not the middle where the
// matrix is symmetric: then symmetric is what says so in the configuration, else it is empty.
func (m *module) checkZeros(leaf string, w *Matrix, groups int, symmetric string) error {
	return m.read(leaf, func(data []byte) {
		for row := range w.Rows {
			for g := range groups {
				switch zero := w.zeros.at(data, row, g); {
				case symmetric != "" && zero != 0:
					found := fmt.Sprintf("a zero point of %d from the middle (row %d, group %d)", zero, row, g)
					m.problem(leaf, found, "0", symmetric)
					return
				case zero == 1<<(w.zeros.bits-1):
					most := 1<<w.zeros.bits - 1
					m.problem(leaf, fmt.Sprintf("a zero point of %d (row %d, group %d)", most+1, row, g),
						fmt.Sprintf("at most %d", most), "the zero points overflowed when it was written: write it as gptq_v2")
					return
				}
			}
		}
	})
}

// readOrder reads the group of each column, and forgets it where columns are in the order of their groups.
func (m *module) readOrder(leaf string, w *Matrix, groups int) error {
	return m.read(leaf, func(data []byte) {
		order, plain := make([]int32, w.Cols), true
		for c := range order {
			order[c] = int32(leUint32(data[4*c:]))
			if order[c] < 0 || int(order[c]) >= groups {
				m.problem(leaf, fmt.Sprintf("group %d of column %d", order[c], c), fmt.Sprintf("0 to %d", groups-1), "")
				return
			}
			plain = plain && int(order[c]) == c/w.scales.columns
		}
		if !plain {
			w.groups = order
		}
	})
}
