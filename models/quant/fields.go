package quant

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/problem"
)

// fields reads one object of a configuration. Every field must be asked for, or be on a list of harmless ones:
// what is on no list is refused, since nobody knows what it changes.
type fields struct {
	path   string // names of the objects around it, with a dot after each
	names  []string
	values map[string]json.RawMessage
	asked  map[string]bool
	p      *problems
}

// problems are those of a configuration, and the fields, by their full names, that have one: it is enough.
type problems struct {
	problem.List
	of map[string]bool
}

// newFields reads an object. Problems go to p, under path and the field's name. raw may be no object, or null.
func newFields(path string, raw json.RawMessage, p *problems) *fields {
	f := &fields{path: path, values: map[string]json.RawMessage{}, asked: map[string]bool{}, p: p}
	if len(raw) == 0 || isNull(raw) {
		return f
	}
	name := strings.TrimSuffix(path, ".")
	d := json.NewDecoder(bytes.NewReader(raw))
	if open, err := d.Token(); err != nil || open != json.Delim('{') || !utf8.Valid(raw) {
		f.problem(name, show(raw), "an object of UTF-8 text", "")
		return f
	}
	for d.More() {
		token, err := d.Token()
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		if err != nil {
			f.problem(name, "text that is not JSON", "an object", err.Error())
			return f
		}
		field := token.(string)
		if _, twice := f.values[field]; twice {
			f.problem(path+field, "it twice", "each name once", "")
		}
		f.names = append(f.names, field)
		f.values[field] = value
	}
	if _, err := d.Token(); err != nil {
		f.problem(name, "text that is not JSON", "an object", err.Error())
	}
	return f
}

func (f *fields) problem(field, found, want, why string) {
	if f.p.of == nil {
		f.p.of = map[string]bool{}
	}
	f.p.of[field] = true
	f.p.Add(&models.FieldError{Field: problem.Shorten(field, maxShown), Found: found, Want: want, Why: why})
}

// refuse adds a problem with one field, unless it has one.
func (f *fields) refuse(field, want, why string) {
	if f.p.of[f.path+field] {
		return
	}
	found := "nothing"
	if raw, ok := f.values[field]; ok {
		found = show(raw)
	}
	f.problem(f.path+field, found, want, why)
}

// raw returns a field, nil where it is absent or null.
func (f *fields) raw(field string) json.RawMessage {
	f.asked[field] = true
	if raw := f.values[field]; !isNull(raw) {
		return raw
	}
	return nil
}

// text returns a string in lower case, absent where there is none.
func (f *fields) text(field, absent string) string {
	raw := f.raw(field)
	if raw == nil {
		return absent
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		f.refuse(field, "a string", "")
		return absent
	}
	return strings.ToLower(s)
}

// boolean returns a boolean, absent where there is none.
func (f *fields) boolean(field string, absent bool) bool {
	raw := f.raw(field)
	if raw == nil {
		return absent
	}
	var b bool
	if json.Unmarshal(raw, &b) != nil {
		f.refuse(field, "true or false", "")
		return absent
	}
	return b
}

// integer returns an integer of at most 2^30, absent where there is none.
func (f *fields) integer(field string, absent int) int {
	raw := f.raw(field)
	if raw == nil {
		return absent
	}
	n, err := strconv.Atoi(string(raw))
	if err != nil || n > 1<<30 || n < -1<<30 {
		f.refuse(field, "an integer", "")
		return absent
	}
	return n
}

// texts returns a list of strings.
func (f *fields) texts(field string) []string {
	raw := f.raw(field)
	if raw == nil {
		return nil
	}
	var list []string
	if json.Unmarshal(raw, &list) != nil {
		f.refuse(field, "a list of strings", "")
	}
	return list
}

// pair returns a list of two positive integers; ok is false where there is none.
func (f *fields) pair(field string) (pair [2]int, ok bool) {
	raw := f.raw(field)
	if raw == nil {
		return pair, false
	}
	var list []int
	if json.Unmarshal(raw, &list) != nil || len(list) != 2 || min(list[0], list[1]) < 1 || max(list[0], list[1]) > 1<<30 {
		f.refuse(field, "a list of two positive integers", "")
		return pair, false
	}
	return [2]int(list), true
}

// object returns an object, which is empty where there is none.
func (f *fields) object(field string) *fields { return newFields(f.path+field+".", f.raw(field), f.p) }

// only refuses a field unless it is absent, null, or one of the values, as JSON.
func (f *fields) only(field, why string, values ...string) {
	raw := f.raw(field)
	if raw == nil || slices.Contains(values, string(raw)) {
		return
	}
	f.refuse(field, strings.Join(append([]string{"nothing"}, values...), " or "), why)
}

// others refuses the fields that nobody asked for, except those named, in one string, as harmless.
func (f *fields) others(harmless string) {
	for _, name := range f.names {
		if !f.asked[name] && !slices.Contains(strings.Fields(harmless), name) {
			f.refuse(name, "no such field", "it is not known what it changes")
		}
	}
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(bytes.TrimSpace(raw)) == "null" }

// maxShown is how many bytes of a text from a file a message repeats.
const maxShown = 96

// show repeats a value from a file, shortened.
func show(raw json.RawMessage) string {
	s := strings.Join(strings.Fields(string(raw)), " ")
	if len(s) > maxShown {
		return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(s[:maxShown], ""), len(raw))
	}
	return strings.ToValidUTF8(s, "?")
}
