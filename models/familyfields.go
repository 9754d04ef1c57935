package models

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Fields takes typed fields out of a config.json for a Family's Read. It adds a problem for each field that is missing
// or of the wrong kind, and remembers which names it was asked for: a field that nobody asked for is refused unless it
// is known not to matter. A field that holds null counts as absent, and an absent field has the value that the family's
// Defaults give it, except that null has a meaning of its own in the fields of ownNull.
type Fields struct {
	object
	defaults object
	prefix   string // put before field names in messages, such as "rope_scaling."
	known    map[string]bool
	ignored  []string
	renamed  map[string]string // Family.Fields
	p        *problems

	inRope         bool    // the object is about the rotary embedding
	inThree        bool    // the rotary embedding may be one in three dimensions, which text alone does not show
	partialAllowed bool    // the family may rotate a part of a head
	sliding        *Rope   // of layers with a window, where rope_parameters tells layers apart
	slidingTaken   bool    // the family asked for it
	growth         *Growth // what rope_parameters says of scores that grow with the position
	growthTaken    bool    // the family asked for it
	originalTaken  bool    // a scaling uses original_max_position_embeddings
}

func newFields(o object, prefix string, p *problems) *Fields {
	return &Fields{object: o, prefix: prefix, known: map[string]bool{}, p: p}
}

// has reports whether the file has the field with another value than null.
func (r *Fields) has(field string) bool {
	_, ok := r.object.get(field)
	return ok
}

// ownNull lists the fields in which null is a value that transformers knows: no such token, window, cap or scaling, as
// many KV heads as heads, heads as wide as their number makes them.
func ownNull() []string {
	return strings.Fields(`bos_token_id eos_token_id sliding_window attn_logit_softcapping final_logit_softcapping
		rope_scaling rope_parameters num_key_value_heads head_dim`)
}

// take marks the field as known and returns its value: the file's unless null, else the default, which a null of a
// field of ownNull stands instead of.
func (r *Fields) take(field string) (any, bool) {
	in := r.own(field)
	r.known[in] = true
	isNull := slices.Contains(r.object, member{in, nil})
	if r.has(in) || isNull && slices.Contains(ownNull(), field) {
		return r.get(in)
	}
	return r.defaults.get(field)
}

// own is the field's name in the file: the family's where it has one, unless the file has the shared one alone.
func (r *Fields) own(field string) string {
	if own := r.renamed[field]; own != "" && (r.has(own) || !r.has(field)) {
		return own
	}
	return field
}

// Pass marks fields that do not matter, or that another field has made superfluous.
func (r *Fields) Pass(fields ...string) {
	for _, field := range fields {
		r.known[field] = true
	}
}

// Refuse reports that a field holds what the family does not accept: want says what it would, why gives the reason.
func (r *Fields) Refuse(field, want, why string) {
	value, _ := r.take(field)
	r.refuse(field, value, want, why)
}

func (r *Fields) refuse(field string, value any, want, why string) {
	r.p.add(r.prefix+r.own(field), show(value), want, why)
}

func (r *Fields) missing(field, want string) {
	r.p.add(r.prefix+r.own(field), "nothing", want, "")
}

// Integer reads a required integer from low to high, and returns low after reporting another value or none.
func (r *Fields) Integer(field string, low, high int) int {
	value, ok := r.take(field)
	if !ok {
		r.missing(field, wantInt(low, high))
		return low
	}
	return r.asInteger(field, value, low, high)
}

// Optional is Integer of a field that may be absent: then it returns 0.
func (r *Fields) Optional(field string, low, high int) int {
	value, ok := r.take(field)
	if !ok {
		return 0
	}
	return r.asInteger(field, value, low, high)
}

// asInteger returns low after reporting a value that is not an integer literal
// in range.
func (r *Fields) asInteger(field string, value any, low, high int) int {
	number, ok := value.(json.Number)
	n, err := strconv.ParseInt(number.String(), 10, 64)
	if !ok || err != nil || n < int64(low) || n > int64(high) {
		r.refuse(field, value, wantInt(low, high), "")
		return low
	}
	return int(n)
}

// Float reads a number and reports whether the field is there.
func (r *Fields) Float(field string) (x float64, ok bool) {
	value, present := r.take(field)
	if !present {
		return 0, false
	}
	x, ok = toFloat(value)
	if !ok {
		r.refuse(field, value, "a number", "")
	}
	return x, true
}

// required reads a number that must be there.
func (r *Fields) required(field string) float64 {
	x, ok := r.Float(field)
	if !ok {
		r.missing(field, "a number")
	}
	return x
}

// Positive reads a number above 0 and below 1e30; what an absent one means is the caller's affair: it is 0.
func (r *Fields) Positive(field string) float64 {
	before := r.p.Len()
	x, ok := r.Float(field)
	if ok && r.p.Len() == before && (x < 1e-30 || x > 1e30) {
		r.Refuse(field, "a number from 1e-30 to 1e30", "")
		return 0
	}
	return x
}

// unlessZero is Positive of a field of which 0 says what null does.
func (r *Fields) unlessZero(field string) float64 {
	if value, ok := r.take(field); ok && whenZero.holds(value) {
		return 0
	}
	return r.Positive(field)
}

// toFloat converts a JSON number; ok is false for other values and for numbers
// beyond float64.
func toFloat(value any) (x float64, ok bool) {
	number, ok := value.(json.Number)
	if !ok {
		return 0, false
	}
	x, err := strconv.ParseFloat(number.String(), 64)
	return x, err == nil && !math.IsInf(x, 0)
}

// Bool reads true or false, absent being false.
func (r *Fields) Bool(field string) bool {
	value, ok := r.take(field)
	if !ok {
		return false
	}
	b, ok := value.(bool)
	if !ok {
		r.refuse(field, value, "true or false", "")
	}
	return b
}

// Word reads one of the given strings, and returns "" where the field is absent or, after reporting it, another value.
func (r *Fields) Word(field string, words ...string) string {
	value, ok := r.take(field)
	if !ok {
		return ""
	}
	word, _ := value.(string)
	if !slices.Contains(words, word) {
		r.refuse(field, value, `"`+strings.Join(words, `" or "`)+`"`, "")
		return ""
	}
	return word
}

// Activation reads the MLP's activation from the first of the fields that is there; the others do not count.
func (r *Fields) Activation(fields ...string) Act {
	act, found := SiLU, false
	for _, field := range fields {
		value, ok := r.take(field)
		if !ok || found {
			continue
		}
		found = true
		switch value {
		case "silu", "swish":
		case "gelu_pytorch_tanh", "gelu_new":
			act = GELUTanh
		default:
			r.refuse(field, value, `"silu" or "gelu_pytorch_tanh"`, "other activations are not supported")
		}
	}
	return act
}

// flags reads a list with one entry for each of the layers, which is(entry) turns into a flag; nil where it is absent.
func (r *Fields) flags(field string, layers int, want string, is func(entry any) (flag, ok bool)) []bool {
	value, ok := r.take(field)
	if !ok {
		return nil
	}
	entries, ok := value.(list)
	flags := make([]bool, 0, len(entries))
	for _, e := range entries {
		flag, good := is(e)
		ok = ok && good
		flags = append(flags, flag)
	}
	if !ok || len(flags) != layers {
		r.refuse(field, value, fmt.Sprintf("a list of %d, %s", layers, want), "")
		return nil
	}
	return flags
}

// passOver marks every field as known, where an earlier problem makes it
// pointless to name each.
func (r *Fields) passOver() {
	for _, m := range r.object {
		r.known[m.name] = true
	}
}

// others refuses, in the order of the text, the fields that nobody took, are not
// harmless and hold something that changes the mathematics or may do so.
func (r *Fields) others() {
	harmless, refused := harmlessFields(), refusedFields()
	if r.inRope {
		harmless, refused = nil, refusedRopeFields()
	}
	for _, m := range r.object {
		if m.value == nil || r.known[m.name] || slices.Contains(harmless, m.name) {
			continue
		}
		i := slices.IndexFunc(refused, func(f refusal) bool { return f.name == m.name })
		switch {
		case i < 0 && slices.Contains(r.ignored, m.name):
		case i < 0:
			r.p.add(r.prefix+m.name, show(m.value), "a field known to this program",
				"if it does not change the mathematics, go on with --ignore-field "+shorten(m.name))
		case !refused[i].neutral.holds(m.value):
			r.p.add(r.prefix+m.name, show(m.value), refused[i].neutral.String(), refused[i].why)
		}
	}
}
