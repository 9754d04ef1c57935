package grammar

import (
	"encoding/json"
	"slices"
)

// mostExclusive bounds the alternatives of oneOf, each two of which are compared.
const mostExclusive = 500

// alternative is what is known of the values of a schema of oneOf.
type alternative struct {
	kinds    map[string]bool
	values   map[string]bool            // listed ones; nil for a schema without a list
	required map[string]map[string]bool // of required properties that list theirs
}

// exclusive refuses alternatives that a value could fit two of: they must differ in type, or be objects of which a
// required property has different values.
func (c *schemas) exclusive(all []json.RawMessage, at string) {
	if len(all) > mostExclusive {
		c.refuse(at, "oneOf: found %d schemas, want at most %d, or anyOf", len(all), mostExclusive)
		return
	}
	known := make([]alternative, len(all))
	for i, raw := range all {
		known[i] = c.alternative(raw)
		for j := range i {
			a, b := &known[i], &known[j]
			both := func(kind string) bool { return a.kinds[kind] && b.kinds[kind] }
			switch {
			case !slices.ContainsFunc(types, both) && !(a.kinds["number"] && b.kinds["integer"]) &&
				!(a.kinds["integer"] && b.kinds["number"]):
			case len(a.kinds) == 1 && len(b.kinds) == 1 && both("object") && differ(a, b):
			case apart(a.values, b.values):
			default:
				c.refuse(at, "oneOf: schemas %d and %d may fit the same value, which is not supported; want anyOf", j, i)
				return
			}
		}
	}
}

// alternative reads what exclusive asks of a schema.
func (c *schemas) alternative(raw json.RawMessage) alternative {
	o, _ := readObject(c.resolved(raw))
	properties, _ := readObject(o.values["properties"])
	names, _ := texts(o.values["required"])
	a := alternative{kinds: c.kinds(raw, 0), values: c.values(raw), required: map[string]map[string]bool{}}
	for _, name := range names {
		if properties.has(name) {
			a.required[name] = c.values(properties.values[name])
		}
	}
	return a
}

// apart reports whether two schemas list different values.
func apart(a, b map[string]bool) bool {
	for v := range a {
		if b[v] {
			return false
		}
	}
	return a != nil && b != nil
}

// differ reports whether two object schemas require a property that tells them apart.
func differ(a, b *alternative) bool {
	for name, values := range a.required {
		if apart(values, b.required[name]) {
			return true
		}
	}
	return false
}

// values are what enum or const list; nil for other schemas.
func (c *schemas) values(raw json.RawMessage) map[string]bool {
	o, _ := readObject(c.resolved(raw))
	list, ok := c.listedValues(o)
	if !ok {
		return nil
	}
	all := map[string]bool{}
	for _, one := range list {
		text, err := compact(one)
		if err != nil {
			return nil
		}
		all[text] = true
	}
	return all
}
