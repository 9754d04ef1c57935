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

// pointed follows a reference from the schema at base: "#", or "#/" and a JSON pointer. It returns the path from the
// root, too.
func pointed(root json.RawMessage, base, ref string) (at json.RawMessage, path string, err error) {
	path, ok := strings.CutPrefix(ref, "#")
	if !ok || path != "" && path[0] != '/' {
		return nil, "", fmt.Errorf("$ref: found %q, want # or #/ and a path within the schema", ref)
	}
	path, at = base+path, root
	for _, step := range strings.Split(path, "/")[1:] {
		if plain, err := url.PathUnescape(step); err == nil {
			step = plain
		}
		step = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
		var list []json.RawMessage
		if o, ok := readObject(at); ok {
			at = o.values[step]
		} else if i, err := strconv.Atoi(step); err == nil && json.Unmarshal(at, &list) == nil && i >= 0 && i < len(list) {
			at = list[i]
		} else {
			at = nil
		}
		if at == nil {
			return nil, "", fmt.Errorf("$ref: %q is not in the schema", ref)
		}
	}
	return at, path, nil
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
