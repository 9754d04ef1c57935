package jinja

import (
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
)

// Values of templates are nil (None), bool, int, float64, string, *List, *Dict, and these that only templates make:
// undefined, *namespace, *loop, *cycler and function.

// List is a Python list, or a tuple. Templates do not change one.
type List struct {
	Items []any
	Tuple bool
	group bool // a tuple of groupby, whose items have the names grouper and list

	weight int // see weigh; 0 where it was not needed yet
}

// Dict is a Python dict: it keeps the order of its keys. Templates do not change one. The zero value is empty and
// ready.
type Dict struct {
	keys   []any
	values map[any]any
	weight int // see weigh; 0 where it was not needed yet
}

// undefined is a name, attribute or item that is not there; what is says which.
type undefined struct{ what string }

// namespace is what namespace() makes: the only thing with fields that templates set.
type namespace struct{ fields Dict }

// function is what templates can call.
type function func(r *run, a args) (any, error)

// Set puts value under key, which must be a string, a number, a bool or nil: at the end when key is new, in its place
// otherwise.
func (d *Dict) Set(key, value any) {
	if d.values == nil {
		d.values = map[any]any{}
	}
	if _, ok := d.Get(key); !ok {
		d.keys = append(d.keys, key)
	}
	d.values[hashed(key)] = value
}

// Get is the value under key; false when there is none.
func (d *Dict) Get(key any) (any, bool) {
	value, ok := d.values[hashed(key)]
	return value, ok
}

// All yields the keys and values in order.
func (d *Dict) All() iter.Seq2[any, any] {
	return func(yield func(key, value any) bool) {
		for _, key := range d.keys {
			if !yield(key, d.at(key)) {
				return
			}
		}
	}
}

// at is the value under a key that is there.
func (d *Dict) at(key any) any { return d.values[hashed(key)] }

// hashed makes numbers that are equal in Python the same key: 1, 1.0 and true.
func hashed(key any) any {
	i, f, isInt, ok := number(key)
	switch {
	case ok && isInt:
		return i
	case ok && f == math.Trunc(f) && math.Abs(f) < 1<<53:
		return int(f)
	}
	return key
}

func hashable(key any) bool {
	switch key.(type) {
	case nil, bool, int, float64, string:
		return true
	}
	return false
}

// items are the entries as tuples of key and value.
func (d *Dict) items() []any {
	out := make([]any, len(d.keys))
	for i, key := range d.keys {
		out[i] = &List{Items: []any{key, d.at(key)}, Tuple: true}
	}
	return out
}

// weigh is about how many bytes v has as text. Values that a template puts together remember theirs: [a, a] doubles a's
// at no cost.
func weigh(v any) int {
	total := 16
	switch v := v.(type) {
	case string:
		return total + len(v)
	case *List:
		if v.weight > 0 {
			return v.weight
		}
		for _, item := range v.Items {
			total += weigh(item)
		}
	case *Dict:
		if v.weight > 0 {
			return v.weight
		}
		for key, value := range v.values {
			total += weigh(key) + weigh(value)
		}
	}
	return total
}

// typeName is Python's name of a value's type, for errors.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "bool"
	case int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case *List:
		if v.Tuple {
			return "tuple"
		}
		return "list"
	case *Dict:
		return "dict"
	case undefined:
		return v.what + " is undefined"
	case *namespace:
		return "namespace"
	case *loop:
		return "loop"
	case *cycler:
		return "cycler"
	case function:
		return "function"
	}
	panic(fmt.Sprintf("BUG: a value of type %T", v))
}

// truth is Python's bool().
func truth(v any) bool {
	switch v := v.(type) {
	case nil, undefined:
		return false
	case bool:
		return v
	case int:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case *List:
		return len(v.Items) > 0
	case *Dict:
		return len(v.keys) > 0
	}
	return true
}

// text is Python's str(): what {{ }} prints.
func text(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	if _, ok := v.(undefined); ok {
		return ""
	}
	return repr(v)
}

// repr is Python's repr().
func repr(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int:
		return strconv.Itoa(v)
	case float64:
		return floatText(v)
	case string:
		return quoted(v)
	case undefined:
		return "Undefined"
	case *List:
		return listText(v)
	case *Dict:
		parts := make([]string, len(v.keys))
		for i, key := range v.keys {
			parts[i] = repr(key) + ": " + repr(v.at(key))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return "<" + typeName(v) + ">"
}

func listText(l *List) string {
	parts := make([]string, len(l.Items))
	for i, item := range l.Items {
		parts[i] = repr(item)
	}
	joined := strings.Join(parts, ", ")
	switch {
	case !l.Tuple:
		return "[" + joined + "]"
	case len(parts) == 1:
		return "(" + joined + ",)"
	}
	return "(" + joined + ")"
}

// quoted is Python's repr of a string.
func quoted(s string) string {
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	var out strings.Builder
	out.WriteRune(quote)
	for _, r := range s {
		switch {
		case r == quote || r == '\\':
			out.WriteString(`\` + string(r))
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\r':
			out.WriteString(`\r`)
		case r == '\t':
			out.WriteString(`\t`)
		case strconv.IsPrint(r):
			out.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&out, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			fmt.Fprintf(&out, `\U%08x`, r)
		}
	}
	out.WriteRune(quote)
	return out.String()
}

// floatText writes f as Python's repr does: the shortest digits that read back, an exponent below 1e-4 and from 1e16
// on.
func floatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 0):
		return strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(f, 'f', -1, 64)), "+")
	}
	if size := math.Abs(f); size != 0 && (size < 1e-4 || size >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
