package grammar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// object is a JSON object in its own order.
type object struct {
	names  []string
	values map[string]json.RawMessage
}

// readObject reads an object; ok is false for any other value. Of names that come twice the last counts.
func readObject(raw json.RawMessage) (o object, ok bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return o, false
	}
	o.values = map[string]json.RawMessage{}
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return o, false
		}
		if _, twice := o.values[name.(string)]; !twice {
			o.names = append(o.names, name.(string))
		}
		o.values[name.(string)] = value
	}
	return o, true
}

// has reports whether there is a member of this name.
func (o object) has(name string) bool { return o.values[name] != nil }

// resource reports whether references in a schema are relative to it: it has an $id, which is no anchor.
func (o object) resource() bool {
	var id string
	return o.has("$id") && json.Unmarshal(o.values["$id"], &id) == nil && !strings.HasPrefix(id, "#")
}

// step is a member's name as a step of a path.
func step(name string) string {
	return "/" + strings.NewReplacer("~", "~0", "/", "~1", "%", "%25").Replace(name)
}

// target is a schema that a reference leads to.
type target struct {
	raw  json.RawMessage
	path string // from the root, its steps written as step does
	base string // path of the schema around it that references in it are relative to
}

// pointed follows a reference from the schema at base: "#", or "#/" and a JSON pointer, which may lead into a schema
// with an $id of its own.
func pointed(root json.RawMessage, base, ref string) (target, error) {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok || pointer != "" && pointer[0] != '/' {
		return target{}, fmt.Errorf("$ref: found %q, want # or #/ and a path within the schema", ref)
	}
	to := target{raw: root, path: "#", base: "#"}
	for _, name := range strings.Split(base+pointer, "/")[1:] {
		if plain, err := url.PathUnescape(name); err == nil {
			name = plain
		}
		name = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
		var list []json.RawMessage
		var next json.RawMessage
		if o, ok := readObject(to.raw); ok {
			if next = o.values[name]; o.resource() {
				to.base = to.path
			}
		} else if json.Unmarshal(to.raw, &list) == nil {
			if i, err := strconv.Atoi(name); err == nil && 0 <= i && i < len(list) {
				next = list[i]
			}
		}
		if next == nil {
			return target{}, fmt.Errorf("$ref: %q is not in the schema", ref)
		}
		to.raw, to.path = next, to.path+step(name)
	}
	return to, nil
}

// texts reads a string or a list of strings.
func texts(raw json.RawMessage) (all []string, ok bool) {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}, true
	}
	return all, json.Unmarshal(raw, &all) == nil
}

// compact is a JSON value without white space, its strings with nothing escaped that need not be.
func compact(raw json.RawMessage) (string, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return "", err
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", err
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

// typeOf is the type of a JSON value as schemas call it; whole numbers are integers.
func typeOf(raw json.RawMessage) string {
	switch trimmed := bytes.TrimSpace(raw); trimmed[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	default:
		if slices.ContainsFunc(trimmed, func(b byte) bool { return b == '.' || b == 'e' || b == 'E' }) {
			return "number"
		}
		return "integer"
	}
}
