package models

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
)

// ParseFile reads the Hugging Face config.json at path as Parse does; the error
// begins with the path.
func ParseFile(path string) (Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, err
	}
	c, err := Parse(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// ParseQuantisedFile is ParseQuantised of a file.
func ParseQuantisedFile(path string) (c Config, quantised bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, false, err
	}
	c, quantised, err = ParseQuantised(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return Config{}, quantised, fmt.Errorf("%s: %w", path, err)
	}
	return c, quantised, nil
}

// Parse reads one Hugging Face config.json of model_type "llama", in the layout
// of transformers 4 (rope_theta, rope_scaling) or 5 (rope_parameters). The result
// is named "custom" and passes Validate. On error the Config is zero.
//
// Every size, rms_norm_eps and model_type must be there, except that
// num_key_value_heads defaults to num_attention_heads and head_dim to
// hidden_size/num_attention_heads. As in transformers, an absent hidden_act is
// silu, an absent rope_theta 10000, an absent tie_word_embeddings false, and
// absent bos_token_id and eos_token_id are 1 and 2; null for those means none.
//
// Refused by name, each with what was found: fields that change the mathematics
// beyond Config (unless they hold the value that changes nothing), and fields
// that are on no list. All such problems come back together; text that is not
// one JSON object within MaxFileBytes and MaxDepth, with unique names, is
// refused by itself.
func Parse(r io.Reader) (Config, error) {
	o, err := readObject(r)
	if err != nil {
		return Config{}, err
	}
	return parse(o)
}

// ParseQuantised is Parse of a config.json that may say how weights are quantised, which is left to
// its reader (package quant). quantised is whether it does.
func ParseQuantised(r io.Reader) (c Config, quantised bool, err error) {
	o, err := readObject(r)
	if err != nil {
		return Config{}, false, err
	}
	plain := slices.DeleteFunc(slices.Clone(o), func(m member) bool {
		return m.value != nil && (m.name == "quantization_config" || m.name == "compression_config")
	})
	c, err = parse(plain)
	return c, len(plain) < len(o), err
}

func parse(o object) (Config, error) {
	var p problems
	in := newReader(o, "", &p)
	in.architecture()
	c := Config{Name: "custom", DType: BF16}
	in.sizes(&c)
	c.NormEps = in.required("rms_norm_eps")
	c.TieEmbeddings = in.boolean("tie_word_embeddings")
	in.rope(&c.Rope)
	in.tokens(&c)
	c.CheckpointDType = in.dtype()
	in.others()
	if err := p.Err(); err != nil {
		return Config{}, err
	}
	if err := c.Validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// architecture checks the fields that say which mathematics the file is about.
func (r *reader) architecture() {
	const llama, class = `"llama"`, `["LlamaForCausalLM"]`
	if value, ok := r.take("model_type"); !ok {
		r.missing("model_type", llama)
	} else if value != "llama" {
		r.refuse("model_type", value, llama, "other architectures are not supported")
	}
	if value, ok := r.take("architectures"); ok {
		classes, isList := value.(list)
		if !isList || len(classes) != 1 || classes[0] != "LlamaForCausalLM" {
			r.refuse("architectures", value, class, "other architectures are not supported")
		}
	}
	if value, ok := r.take("hidden_act"); ok && value != "silu" {
		r.refuse("hidden_act", value, `"silu"`, "other activations are not supported")
	}
}

func (r *reader) sizes(c *Config) {
	before := r.p.Len()
	for _, s := range c.sizes() {
		_, present := r.take(s.field)
		optional := s.field == "num_key_value_heads" || s.field == "head_dim"
		if present || !optional {
			*s.value = r.integer(s.field, 1, s.max)
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

func (r *reader) tokens(c *Config) {
	c.BOS = NoToken
	switch ids := r.tokenIDs("bos_token_id", 1); len(ids) {
	case 0:
	case 1:
		c.BOS = ids[0]
	default:
		r.p.add("bos_token_id", fmt.Sprintf("%d ids", len(ids)), "one id", "")
	}
	c.EOS = r.tokenIDs("eos_token_id", 2)
}

// tokenIDs reads null, one id or a list of ids.
func (r *reader) tokenIDs(field string, absent int) []int {
	value, ok := r.take(field)
	if !ok {
		if slices.ContainsFunc(r.object, func(m member) bool { return m.name == field }) {
			return nil
		}
		return []int{absent}
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
func (r *reader) dtype() DType {
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
