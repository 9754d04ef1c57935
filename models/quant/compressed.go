package quant

import (
	"fmt"
	"slices"
	"strings"
)

// compressed reads what compressed-tensors writes.
type compressed struct {
	groups []*scheme
	ignore []target
	notDone
}

// target names modules: by their full name, by a pattern, or by their class.
type target struct {
	text string
	pattern
	isPattern bool
}

// scheme is one of config_groups.
type scheme struct {
	targets   []target
	format    string
	bits      int
	float     bool
	symmetric bool
	strategy  string
	none      bool // the group's weights are not quantised
	rows      int  // of a block that shares a scale, 0 for all
	cols      int
}

// newCompressed reads the configuration. How inputs are quantised does not change the weights.
func newCompressed(f *fields) importer {
	c := &compressed{ignore: targets(f, "ignore")}
	format := f.text("format", "")
	groups := f.object("config_groups")
	for _, name := range groups.names {
		group := groups.object(name)
		c.inputs(group.object("input_activations"))
		c.groups = append(c.groups, newScheme(group, format))
	}
	if len(groups.names) == 0 && len(f.object("kv_cache_scheme").names) == 0 {
		f.refuse("config_groups", "at least one group", "")
	}
	sparsity := f.object("sparsity_config")
	sparsity.only("format", "sparse weights are not supported: decompress and save it with compressed-tensors", `"dense"`)
	f.only("transform_config", "rotated inputs are not supported: choose a recipe without transforms", "{}")
	f.only("moe_sparsity_config", "experts are not supported", "{}")
	c.cache(f, "kv_cache_scheme")
	f.others("quantization_status global_compression_ratio version")
	return c
}

// targets reads a list of modules; "re:" begins a pattern.
func targets(f *fields, field string) []target {
	var list []target
	for _, text := range f.texts(field) {
		t := target{text: text}
		if pattern, ok := strings.CutPrefix(text, "re:"); ok {
			var no *notPattern
			if t.pattern, no = matchStart(pattern); no != nil {
				f.refusePattern(field, text, no)
				continue
			}
			t.isPattern = true
		}
		list = append(list, t)
	}
	return list
}

// matches reports whether t names a module by its name.
func (t target) matches(module string) bool {
	if t.isPattern {
		return t.MatchString(module)
	}
	return t.text == module
}

// readable are the formats of one group, by the type of their codes.
var readable = []string{"pack-quantized", "int-quantized", "float-quantized", "naive-quantized",
	"nvfp4-pack-quantized", "mxfp4-pack-quantized"}

// newScheme reads a group; format is that of the whole.
func newScheme(f *fields, format string) *scheme {
	s := &scheme{targets: targets(f, "targets"), format: f.text("format", format)}
	f.only("output_activations", "quantised outputs are not supported")
	w := f.object("weights")
	if s.none = len(w.names) == 0; s.none {
		return s
	}
	s.bits, s.symmetric = w.integer("num_bits", 8), w.boolean("symmetric", true)
	switch kind := w.text("type", "int"); kind {
	case "int", "float":
		s.float = kind == "float"
	default:
		w.refuse("type", `"int" or "float"`, "")
	}
	w.only("dynamic", "weights have fixed scales", "false")
	w.only("actorder", "", "false", `"weight"`, `"static"`, `"group"`, `"dynamic"`)
	s.readStrategy(w)
	w.others("observer observer_kwargs scale_dtype zp_dtype")
	f.others("")
	if !slices.Contains(readable, s.format) {
		f.problem(f.path+"format", fmt.Sprintf("%q", s.format), strings.Join(readable, ", "),
			"save it in one of these with compressed-tensors")
		return s
	}
	s.check(w)
	return s
}

// readStrategy reads which weights share a scale.
func (s *scheme) readStrategy(w *fields) {
	group := w.integer("group_size", -1)
	absent := "tensor"
	if w.values["group_size"] != nil && !isNull(w.values["group_size"]) {
		absent = "channel"
		if group > 0 {
			absent = "group"
		}
	}
	block, hasBlock := w.pair("block_structure")
	switch s.strategy = w.text("strategy", absent); s.strategy {
	case "tensor":
	case "channel":
		s.rows = 1
	case "group", "tensor_group":
		s.rows, s.cols = 1, group
		if group < 1 || group > mostColumns {
			w.refuse("group_size", wantColumns, "")
			s.cols = 1
		}
	case "block":
		s.rows, s.cols = block[0], block[1]
		if !hasBlock {
			w.refuse("block_structure", "rows and columns of a block", "")
		}
	default:
		w.refuse("strategy", `"tensor", "channel", "group", "tensor_group" or "block"`, "")
	}
}

// check refuses combinations of a format and a type of weights that the format does not have.
func (s *scheme) check(w *fields) {
	integers := func() {
		if s.float {
			w.refuse("type", `"int"`, "format is "+s.format)
		}
	}
	floats := func() {
		if !s.float {
			w.refuse("type", `"float"`, "format is "+s.format)
		}
	}
	width := func(bits ...int) {
		if !slices.Contains(bits, s.bits) {
			want := strings.ReplaceAll(strings.Trim(fmt.Sprint(bits), "[]"), " ", " or ")
			w.refuse("num_bits", want, "format is "+s.format)
		}
	}
	fp4 := func(group int, strategy string) {
		width(4)
		floats()
		switch {
		case s.strategy != strategy:
			w.refuse("strategy", fmt.Sprintf("%q", strategy), "format is "+s.format)
		case s.cols != group:
			w.refuse("group_size", fmt.Sprint(group), "format is "+s.format)
		}
	}
	switch s.format {
	case "pack-quantized":
		integers()
		width(4, 8)
		if s.strategy == "block" || s.strategy == "tensor" && !s.symmetric {
			w.refuse("strategy", "channel or group", "format is "+s.format)
		}
	case "int-quantized":
		integers()
		width(4, 8)
	case "float-quantized", "naive-quantized":
		if s.format == "float-quantized" {
			floats()
		}
		width(8)
	case "nvfp4-pack-quantized":
		fp4(16, "tensor_group")
	case "mxfp4-pack-quantized":
		fp4(32, "group")
	}
	if s.float && !s.symmetric {
		w.refuse("symmetric", "true", "type is float")
	}
}

// of returns the group of a module: one that names it, or else one with a pattern, or else one of its class.
// Modules of other classes than Linear are not quantised by anybody.
func (c *compressed) of(module string) *scheme {
	for _, by := range []func(target) bool{
		func(t target) bool { return !t.isPattern && t.text == module },
		func(t target) bool { return t.isPattern && t.matches(module) },
		func(t target) bool { return t.text == "Linear" },
	} {
		for _, s := range c.groups {
			if !s.none && slices.ContainsFunc(s.targets, by) {
				return s
			}
		}
	}
	return nil
}

func (c *compressed) quantised(module string) (bool, string) {
	for _, t := range c.ignore {
		if t.matches(module) {
			return false, "ignore lists it"
		}
	}
	if c.of(module) == nil {
		return false, "no group of config_groups has it as target"
	}
	return true, ""
}

func (c *compressed) weight(m *module) (*Matrix, error) {
	s := c.of(m.name)
	switch s.format {
	case "pack-quantized":
		return s.packed(m)
	case "nvfp4-pack-quantized", "mxfp4-pack-quantized":
		return s.fp4(m)
	}
	return s.naive(m)
}
