package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// fields reads the fields of a JSON object. Fields that nobody asks for are ignored, null is as
// good as absent. The first wrong one stays in err; after it every getter returns its default.
type fields struct {
	raw   map[string]json.RawMessage
	lists map[string]ids // those of raw that plainIDs has read
	err   *Error
}

// parseFields reads a request's body.
func parseFields(body []byte) (*fields, *Error) {
	f := &fields{}
	if !utf8.Valid(body) { // package encoding/json would read U+FFFD in its place
		return nil, invalid("", "the body is no JSON object: it is not UTF-8")
	}
	if at := loneSurrogate(body); at >= 0 { // likewise
		return nil, invalid("", "the body is no JSON object: %s at byte %d is half of a character", body[at:at+6], at)
	}
	var ok bool
	if f.raw, f.lists, ok = split(body); ok {
		return f, nil
	}
	f.raw = nil
	if err := json.Unmarshal(body, &f.raw); err != nil || f.raw == nil {
		return nil, invalid("", "the body is no JSON object: %s", problem(err))
	}
	return f, nil
}

// loneSurrogate is where JSON has an escape of a surrogate without the other one of its pair, -1 for nowhere.
func loneSurrogate(body []byte) int {
	for at := bytes.IndexByte(body, '\\'); at >= 0 && at+1 < len(body); {
		next := at + 2
		switch r := escaped(body[at:]); {
		case !utf16.IsSurrogate(r):
		case utf16.DecodeRune(r, escaped(body[at+6:])) == utf8.RuneError:
			return at
		default:
			next = at + 12
		}
		step := bytes.IndexByte(body[next:], '\\')
		if step < 0 {
			break
		}
		at = next + step
	}
	return -1
}

// escaped is the UTF-16 code that a text begins with as \uXXXX, -1 for none.
func escaped(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	code, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(code)
}

func problem(err error) string {
	if err == nil {
		return "found null"
	}
	var of *json.UnmarshalTypeError
	if errors.As(err, &of) {
		return "found a value of type " + of.Value
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// has reports whether a field is there and not null.
func (f *fields) has(name string) bool {
	raw, ok := f.raw[name]
	return ok && !bytes.Equal(raw, []byte("null"))
}

// read decodes a field into v, and reports whether it is there and right.
func (f *fields) read(name string, v any, want string) bool {
	if f.err != nil || !f.has(name) {
		return false
	}
	if err := json.Unmarshal(f.raw[name], v); err != nil {
		f.refuse(name, "found %s, want %s", short(f.raw[name]), want)
		return false
	}
	return true
}

// refuse keeps the first error.
func (f *fields) refuse(name, format string, args ...any) {
	if f.err == nil {
		f.err = invalid(name, name+": "+format, args...)
	}
}

// short is a JSON value for a message.
func short(raw json.RawMessage) string {
	const most = 60
	if len(raw) <= most {
		return string(raw)
	}
	return strings.ToValidUTF8(string(raw[:most]), "") + "…"
}

// ids returns a list of whole numbers. ok is false where the field is none.
func (f *fields) ids(name string) (list ids, ok bool) {
	if list, ok = f.lists[name]; ok {
		return list, true
	}
	return idsOf(f.raw[name])
}

// whole returns an integer from lo to hi.
func (f *fields) whole(name string, def, lo, hi int64) int64 {
	v := def
	if f.read(name, &v, "a whole number") && (v < lo || v > hi) {
		if hi == math.MaxInt64 {
			f.refuse(name, "found %d, want at least %d", v, lo)
		} else {
			f.refuse(name, "found %d, want %d to %d", v, lo, hi)
		}
		return def
	}
	return v
}

// number returns a number from lo to hi.
func (f *fields) number(name string, def, lo, hi float64) float64 {
	v := def
	if f.read(name, &v, "a number") && (v < lo || v > hi) {
		f.refuse(name, "found %v, want %v to %v", v, lo, hi)
		return def
	}
	return v
}

func (f *fields) flag(name string, def bool) bool {
	v := def
	f.read(name, &v, "true or false")
	return v
}

func (f *fields) text(name string) string {
	var v string
	f.read(name, &v, "a string")
	return v
}

// object returns the fields of an object, none when it is absent.
func (f *fields) object(name string) *fields {
	in := &fields{}
	f.read(name, &in.raw, "an object")
	return in
}

// empty reports whether a field is absent or says nothing: null, false, "", [] or {}.
func (f *fields) empty(name string) bool {
	raw, ok := f.raw[name]
	if !ok {
		return true
	}
	compact := bytes.Buffer{}
	if err := json.Compact(&compact, raw); err != nil {
		return false
	}
	return slices.Contains([]string{"null", "false", `""`, "[]", "{}"}, compact.String())
}
