package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// fromJSON reads JSON as a value of templates: objects keep the order of their fields, integers stay integers.
func fromJSON(raw []byte) (any, error) {
	var whole json.RawMessage // checks the syntax, and that it is not too deep
	if err := json.Unmarshal(raw, &whole); err != nil {
		return nil, fmt.Errorf("JSON: %w", err)
	}
	if !utf8.Valid(raw) {
		return nil, fault("JSON", "bytes that are not UTF-8", "UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return jsonValue(d)
}

func jsonValue(d *json.Decoder) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Delim:
		if t == '[' {
			return jsonList(d)
		}
		return jsonObject(d)
	case json.Number:
		if !strings.ContainsAny(t.String(), ".eE") {
			n, err := strconv.Atoi(t.String())
			if err != nil {
				return nil, fault("JSON", quote(t.String()), "an integer of 64 bits")
			}
			return n, nil
		}
		return t.Float64()
	}
	return t, nil // string, bool, nil
}

func jsonList(d *json.Decoder) (any, error) {
	list := []any{}
	for d.More() {
		value, err := jsonValue(d)
		if err != nil {
			return nil, err
		}
		list = append(list, value)
	}
	_, err := d.Token()
	return list, err
}

func jsonObject(d *json.Decoder) (any, error) {
	object, at := exec.NewDict(), map[string]int{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		value, err := jsonValue(d)
		if err != nil {
			return nil, err
		}
		name := key.(string)
		if i, again := at[name]; again {
			object.Pairs[i].Value = exec.AsValue(value) // the last one counts, as in Python
			continue
		}
		at[name] = len(object.Pairs)
		put(object, name, value)
	}
	_, err := d.Token()
	return object, err
}

func put(d *exec.Dict, name string, value any) {
	d.Pairs = append(d.Pairs, &exec.Pair{Key: exec.AsValue(name), Value: exec.AsValue(value)})
}

// dumper writes values as Python's json.dumps does.
type dumper struct {
	out        strings.Builder
	item, key  string // separators
	indent     string // of one level, when lines is set
	lines      bool
	ascii      bool
	sort       bool
	level      int
	unknownErr error
}

func (d *dumper) value(value any) {
	switch v := value.(type) {
	case nil:
		d.out.WriteString("null")
	case *exec.Value:
		d.value(v.Interface())
	case *exec.Dict:
		d.object(*v)
	case exec.Dict:
		d.object(v)
	case bool:
		fmt.Fprint(&d.out, v)
	case string:
		d.string(v)
	case float64:
		d.out.WriteString(pyFloat(v))
	default:
		d.reflected(reflect.ValueOf(value))
	}
}

func (d *dumper) reflected(v reflect.Value) {
	switch {
	case v.CanInt():
		fmt.Fprint(&d.out, v.Int())
	case v.Kind() == reflect.String:
		d.string(v.String())
	case v.Kind() == reflect.Slice || v.Kind() == reflect.Array:
		d.list('[', ']', v.Len(), func(i int) { d.value(v.Index(i).Interface()) })
	case v.Kind() == reflect.Map && v.Type().Key().Kind() == reflect.String:
		object := exec.NewDict()
		for _, key := range v.MapKeys() {
			put(object, key.String(), v.MapIndex(key).Interface())
		}
		sort.Slice(object.Pairs, func(i, j int) bool { return object.Pairs[i].Key.String() < object.Pairs[j].Key.String() })
		d.object(*object)
	default:
		d.unknownErr = fault("tojson", v.Kind().String(), "a value that JSON has")
	}
}

func (d *dumper) object(object exec.Dict) {
	pairs := object.Pairs
	if d.sort {
		pairs = append([]*exec.Pair(nil), pairs...)
		sort.SliceStable(pairs, func(i, j int) bool { return pairs[i].Key.String() < pairs[j].Key.String() })
	}
	d.list('{', '}', len(pairs), func(i int) {
		if pairs[i].Key.IsString() {
			d.string(pairs[i].Key.String())
		} else {
			d.out.WriteByte('"')
			d.value(pairs[i].Key)
			d.out.WriteByte('"')
		}
		d.out.WriteString(d.key)
		d.value(pairs[i].Value)
	})
}

func (d *dumper) list(open, end byte, n int, write func(i int)) {
	d.out.WriteByte(open)
	d.level++
	for i := range n {
		if i > 0 {
			d.out.WriteString(d.item)
		}
		d.newline()
		write(i)
	}
	d.level--
	if n > 0 {
		d.newline()
	}
	d.out.WriteByte(end)
}

func (d *dumper) newline() {
	if d.lines {
		d.out.WriteString("\n" + strings.Repeat(d.indent, d.level))
	}
}

func (d *dumper) string(s string) {
	d.out.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			d.out.WriteString(`\` + string(r))
		case r == '\n', r == '\r', r == '\t', r == '\b', r == '\f':
			d.out.WriteString(map[rune]string{'\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}[r])
		case r < 0x20 || d.ascii && r > 0x7e && r < 0x10000 && r != 0x7f:
			fmt.Fprintf(&d.out, `\u%04x`, r)
		case d.ascii && r >= 0x10000:
			fmt.Fprintf(&d.out, `\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		default:
			d.out.WriteRune(r)
		}
	}
	d.out.WriteByte('"')
}

// pyFloat writes f as Python's repr does: the shortest digits that read back, an exponent below 1e-4 and from 1e16 on.
func pyFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 0):
		return strings.TrimPrefix(strconv.FormatFloat(f, 'f', -1, 64), "+") + "inity"
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
