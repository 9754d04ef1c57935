package jinja

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// FromJSON reads JSON as a value of templates: objects keep the order of their fields, and integers, of up to 64 bits,
// stay integers.
func FromJSON(raw []byte) (any, error) {
	var whole json.RawMessage // checks the syntax, and that it is not too deep
	if err := json.Unmarshal(raw, &whole); err != nil {
		return nil, err
	}
	if !utf8.Valid(raw) {
		return nil, fmt.Errorf("bytes that are not UTF-8; want UTF-8")
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
		if strings.ContainsAny(t.String(), ".eE") {
			return t.Float64()
		}
		n, err := strconv.Atoi(t.String())
		if err != nil {
			return nil, fmt.Errorf("the number %.60s; want an integer of 64 bits", t)
		}
		return n, nil
	}
	return t, nil // string, bool, nil
}

func jsonList(d *json.Decoder) (any, error) {
	list := &List{Items: []any{}}
	for d.More() {
		value, err := jsonValue(d)
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, value)
	}
	_, err := d.Token()
	return list, err
}

func jsonObject(d *json.Decoder) (any, error) {
	object := &Dict{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		value, err := jsonValue(d)
		if err != nil {
			return nil, err
		}
		object.Set(key.(string), value) // of two with one name the last counts, as in Python
	}
	_, err := d.Token()
	return object, err
}

// dumper writes values as Python's json.dumps does.
type dumper struct {
	out       strings.Builder
	item, key string // separators
	lines     bool   // each item on a line of its own,
	indent    string // with this for each level
	ascii     bool   // no other characters
	sort      bool   // objects by key
	level     int
}

// filterJSON is transformers' tojson: json.dumps, without HTML's escapes.
func filterJSON(r *run, value any, a args) (any, error) {
	bound, err := a.bind(0, "ensure_ascii", "indent", "separators", "sort_keys")
	if err != nil {
		return nil, err
	}
	d := &dumper{item: ", ", key: ": ", ascii: truth(bound[0]), sort: truth(bound[3])}
	switch v := bound[1].(type) {
	case int:
		d.indent = strings.Repeat(" ", min(max(v, 0), 64))
	case string:
		d.indent = v
	}
	if bound[1] != absent && bound[1] != nil {
		d.lines, d.item = true, ","
	}
	if l, ok := bound[2].(*List); ok && len(l.Items) == 2 {
		d.item, d.key = text(l.Items[0]), text(l.Items[1])
	}
	if err := r.spend(weigh(value) * (1 + len(d.indent) + len(d.item) + len(d.key))); err != nil {
		return nil, err
	}
	err = d.value(value)
	return d.out.String(), err
}

func (d *dumper) value(value any) error {
	switch v := value.(type) {
	case nil:
		d.out.WriteString("null")
	case bool:
		d.out.WriteString(strconv.FormatBool(v))
	case int:
		d.out.WriteString(strconv.Itoa(v))
	case float64:
		d.out.WriteString(jsonFloat(v))
	case string:
		d.string(v)
	case *List:
		return d.list('[', ']', len(v.Items), func(i int) error { return d.value(v.Items[i]) })
	case *Dict:
		return d.object(v)
	default:
		return fmt.Errorf("%s; want what JSON has", typeName(value))
	}
	return nil
}

func jsonFloat(f float64) string {
	if math.IsNaN(f) {
		return "NaN"
	}
	if math.IsInf(f, 0) {
		return strings.Replace(floatText(f), "inf", "Infinity", 1)
	}
	return floatText(f)
}

func (d *dumper) object(object *Dict) error {
	keys := object.keys
	if d.sort {
		var err error
		if keys, err = sorted(keys, keys, false); err != nil {
			return err
		}
	}
	return d.list('{', '}', len(keys), func(i int) error {
		if s, ok := keys[i].(string); ok {
			d.string(s)
		} else {
			inner := dumper{}
			if err := inner.value(keys[i]); err != nil {
				return err
			}
			d.string(inner.out.String())
		}
		d.out.WriteString(d.key)
		return d.value(object.at(keys[i]))
	})
}

func (d *dumper) list(begin, end byte, n int, write func(i int) error) error {
	d.out.WriteByte(begin)
	d.level++
	for i := range n {
		if i > 0 {
			d.out.WriteString(d.item)
		}
		d.newline()
		if err := write(i); err != nil {
			return err
		}
	}
	d.level--
	if n > 0 {
		d.newline()
	}
	d.out.WriteByte(end)
	return nil
}

func (d *dumper) newline() {
	if d.lines {
		d.out.WriteString("\n" + strings.Repeat(d.indent, d.level))
	}
}

func (d *dumper) string(s string) {
	const short = "\"\\\n\r\t\b\f"
	d.out.WriteByte('"')
	for _, r := range s {
		i := slices.Index([]rune(short), r)
		switch {
		case i >= 0:
			d.out.WriteString([]string{`\"`, `\\`, `\n`, `\r`, `\t`, `\b`, `\f`}[i])
		case r < 0x20 || d.ascii && r >= 0x7f && r < 0x10000:
			fmt.Fprintf(&d.out, `\u%04x`, r)
		case d.ascii && r >= 0x10000:
			fmt.Fprintf(&d.out, `\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		default:
			d.out.WriteRune(r)
		}
	}
	d.out.WriteByte('"')
}
