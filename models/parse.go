package models

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Reading is how config.json files are read. The zero value reads the built-in families strictly.
type Reading struct {
	Families []Family // that may be named, nil for Families()
	Ignore   []string // fields of the file that are passed over where they are unknown
}

// Parse is Reading.Parse of the built-in families.
func Parse(r io.Reader) (Config, error) { return Reading{}.Parse(r) }

// ParseQuantised is Reading.ParseQuantised of the built-in families.
func ParseQuantised(r io.Reader) (c Config, quantised bool, err error) {
	return Reading{}.ParseQuantised(r)
}

// ParseFile is Parse of the file at path, with which its errors begin.
func (how Reading) ParseFile(path string) (Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, err
	}
	c, err := how.Parse(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// ParseQuantisedFile is ParseQuantised of a file.
func (how Reading) ParseQuantisedFile(path string) (c Config, quantised bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, false, err
	}
	c, quantised, err = how.ParseQuantised(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return Config{}, quantised, fmt.Errorf("%s: %w", path, err)
	}
	return c, quantised, nil
}

// Parse reads one Hugging Face config.json of a family that model_type names, in the layout
// of transformers 4 (rope_theta, rope_scaling) or 5 (rope_parameters). Of a multimodal model it reads the text part:
// text_config, llm_config or language_config. The result is named "custom" and passes Validate. On error the Config is
// zero.
//
// null means absent, but for the few fields in which it is a value of its own, such as sliding_window. Every size,
// rms_norm_eps and model_type must be there, except that num_key_value_heads defaults to num_attention_heads and
// head_dim to hidden_size/num_attention_heads, and what else a family has defaults for. As in transformers, an absent
// rope_theta is 10000 and an absent tie_word_embeddings false, unless the family says otherwise.
//
// Refused by name, each with what was found: fields that change the mathematics
// beyond the family's (unless they hold the value that changes nothing), and fields
// that are on no list. All such problems come back together; text that is not
// one JSON object within MaxFileBytes and MaxDepth, with unique names, is
// refused by itself.
func (how Reading) Parse(r io.Reader) (Config, error) {
	o, err := how.readObject(r)
	if err != nil {
		return Config{}, err
	}
	return how.parse(o)
}

// readObject reads one JSON object, and refuses names to be passed over that neither it nor its text part has.
func (how Reading) readObject(r io.Reader) (object, error) {
	o, err := readObject(r)
	if err != nil {
		return nil, err
	}
	text, _ := textPart(o)
	var p problems
	for _, name := range how.Ignore {
		if !slices.ContainsFunc(slices.Concat(o, text), func(m member) bool { return m.name == name }) {
			p.add("--ignore-field", show(name), "a field of the file", "")
		}
	}
	return o, p.Err()
}

// ParseQuantised is Parse of a config.json that may say how weights are quantised, which is left to
// its reader (package quant). quantised is whether it does.
func (how Reading) ParseQuantised(r io.Reader) (c Config, quantised bool, err error) {
	o, err := how.readObject(r)
	if err != nil {
		return Config{}, false, err
	}
	plain, quantised := unquantised(o)
	for i, m := range plain {
		if part, ok := m.value.(object); ok && slices.Contains(TextParts(), m.name) {
			inner, too := unquantised(part)
			plain[i].value, quantised = inner, quantised || too
		}
	}
	c, err = how.parse(plain)
	return c, quantised, err
}

// unquantised is an object without what says how weights are quantised, and whether that was there.
func unquantised(o object) (plain object, was bool) {
	plain = slices.DeleteFunc(slices.Clone(o), func(m member) bool {
		return m.value != nil && (m.name == "quantization_config" || m.name == "compression_config")
	})
	return plain, len(plain) < len(o)
}

// TextParts are the fields of config.json, of which a multimodal model has one, that hold its text part: text_config as
// transformers writes it, llm_config or language_config of models with code of their own (InternVL, DeepSeek-VL).
func TextParts() []string { return []string{"text_config", "llm_config", "language_config"} }

func (how Reading) parse(o object) (Config, error) {
	var p problems
	text, part := textPart(o)
	isPart := part != ""
	in := newFields(text, "", &p)
	if isPart {
		in.prefix = part + "."
	}
	in.ignored = how.Ignore
	families := how.Families
	if families == nil {
		families = Families()
	}
	if isPart {
		if in.aroundPart(o); p.Len() > 0 {
			return Config{}, p.Err()
		}
	}
	family := in.familyOf(families)
	if family == nil {
		return Config{}, p.Err()
	}
	if in.inThree = family.Name != in.modelType(); in.inThree && !isPart {
		isPart = true // Qwen 2 VL and 2.5 VL of transformers 4: the text part's fields lie beside vision_config
		in.Pass("vision_config")
	}
	c := in.config(family, isPart)
	if err := p.Err(); err != nil {
		return Config{}, err
	}
	if err := c.Validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// config reads all fields; problems are in r.p.
func (r *Fields) config(family *Family, isPart bool) Config {
	defaults := []string{family.Defaults}
	if isPart {
		defaults = append(defaults, family.PartDefaults)
	}
	for _, text := range defaults {
		more, err := readObject(strings.NewReader(cmp.Or(text, "{}")))
		if err != nil {
			panic("BUG: models: defaults of " + family.Name + ": " + err.Error())
		}
		r.defaults = append(r.defaults, more...)
	}
	c := Config{Name: "custom", DType: BF16, Family: family.Name, Names: family.Names, ByKVHead: family.ByKVHead,
		TextPart: isPart}
	r.partialAllowed, r.renamed = family.PartialRotary, family.Fields
	r.class(family, isPart)
	r.sizes(&c)
	c.NormEps = r.required("rms_norm_eps")
	c.TieEmbeddings = r.Bool("tie_word_embeddings")
	r.rope(&c)
	r.tokens(&c)
	c.CheckpointDType = r.dtype()
	family.Read(r, &c)
	r.unusedOriginal(&c)
	if r.sliding != nil && !r.slidingTaken {
		r.p.add(r.prefix+"rope_parameters.sliding_attention", "an object", "null",
			"in this family all layers share a rotary embedding")
	}
	if r.growth != nil && !r.growthTaken {
		r.p.add(r.prefix+"rope_parameters.llama_4_scaling_beta", formatFloat(r.growth.Beta), "null",
			"in this family scores do not grow with the position")
	}
	c.stretch()
	r.others()
	return c
}

// textPart returns the text part of a multimodal model with what its surroundings say about it, and the field that
// holds it. Where there is none it returns o and "".
func textPart(o object) (text object, field string) {
	for _, name := range TextParts() {
		if value, _ := o.get(name); field == "" {
			if part, ok := value.(object); ok {
				text, field = slices.Clone(part), name
			}
		}
	}
	if field == "" {
		return o, ""
	}
	for _, m := range o {
		switch m.name {
		case "torch_dtype", "dtype", "tie_word_embeddings", "bos_token_id", "eos_token_id", "quantization_config",
			"compression_config":
			// Embeddings are tied by the whole model, whatever its text part would do alone.
			if _, has := text.get(m.name); m.value != nil && (!has || m.name == "tie_word_embeddings") {
				text = append(slices.DeleteFunc(text, func(t member) bool { return t.name == m.name }), m)
			}
		}
	}
	return text, field
}

// class checks architectures, which a text part may have or not.
func (r *Fields) class(family *Family, isPart bool) {
	value, ok := r.take("architectures")
	if !ok || isPart {
		return
	}
	classes, isList := value.(list)
	if !isList || len(classes) != 1 || classes[0] != family.Class && (family.Also == "" || classes[0] != family.Also) {
		r.refuse("architectures", value, `["`+family.Class+`"]`, "only causal language models are supported")
	}
}

func (r *Fields) sizes(c *Config) {
	before := r.p.Len()
	for _, s := range c.sizes() {
		_, present := r.take(s.field)
		optional := s.field == "num_key_value_heads" || s.field == "head_dim"
		if present || !optional {
			*s.value = r.Integer(s.field, 1, s.max)
		}
	}
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	if c.HeadDim == 0 {
		c.HeadDim = c.Hidden / c.Heads
		if c.Hidden%c.Heads != 0 && r.p.Len() == before {
			r.missing("head_dim", fmt.Sprintf("an even number, because hidden_size %d is no multiple of num_attention_heads %d",
				c.Hidden, c.Heads))
		}
	}
}

func (r *Fields) tokens(c *Config) {
	c.BOS = NoToken
	switch ids := r.tokenIDs("bos_token_id"); len(ids) {
	case 0:
	case 1:
		c.BOS = ids[0]
	default:
		r.p.add("bos_token_id", fmt.Sprintf("%d ids", len(ids)), "one id", "")
	}
	c.EOS = r.tokenIDs("eos_token_id")
}

// tokenIDs reads null, one id or a list of ids.
func (r *Fields) tokenIDs(field string) []int {
	value, ok := r.take(field)
	if !ok {
		return nil
	}
	values, ok := value.(list)
	if !ok {
		values = list{value}
	}
	if len(values) > MaxEOS {
		r.p.add(field, strconv.Itoa(len(values))+" ids", fmt.Sprintf("at most %d", MaxEOS), "")
		return nil
	}
	var ids []int
	for _, v := range values {
		ids = append(ids, r.asInteger(field, v, 0, MaxVocab-1))
	}
	return ids
}

// dtype reads torch_dtype or its new name dtype.
func (r *Fields) dtype() DType {
	found := DTypeUnstated
	for _, field := range []string{"torch_dtype", "dtype"} {
		value, ok := r.take(field)
		if !ok {
			continue
		}
		name, _ := value.(string)
		d, ok := dtypeByName(name)
		if !ok {
			r.refuse(field, value, wantDType, "other weight types are not supported")
		} else if found != DTypeUnstated && d != found {
			r.refuse(field, value, `"`+found.String()+`" as in torch_dtype`, "")
		}
		found = d
	}
	return found
}
