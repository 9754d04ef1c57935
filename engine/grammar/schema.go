package grammar

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Error says what of a schema is not supported or wrong, and where.
type Error struct {
	At      string // a path such as #/properties/name
	Problem string
}

func (e *Error) Error() string { return e.At + ": " + e.Problem }

// types are what a schema may be of.
var types = []string{"object", "array", "string", "number", "integer", "boolean", "null"}

// notes are keywords that say nothing about values, or are looked at from elsewhere.
var notes = []string{"title", "description", "default", "examples", "example", "$schema", "$id", "$comment", "$anchor",
	"deprecated", "readOnly", "writeOnly", "$defs", "definitions",
	"discriminator"} // OpenAPI's: which property tells the alternatives apart, so that they need not be tried

// of says which types a keyword is about; other keywords stand alone.
var of = map[string]string{"properties": "object", "required": "object", "additionalProperties": "object",
	"items": "array", "prefixItems": "array", "minItems": "array", "maxItems": "array",
	"minLength": "string", "maxLength": "string", "pattern": "string", "format": "string",
	"minimum": "number", "maximum": "number", "exclusiveMinimum": "number", "exclusiveMaximum": "number"}

// schemas compiles a schema.
type schemas struct {
	net
	root  json.RawMessage
	base  string                       // path of the schema that references are relative to
	depth int                          // schemas around the one that is compiled
	err   error                        // the first
	found map[kindsKey]map[string]bool // by kinds
}

type kindsKey struct {
	raw, base string
	depth     int
}

// mostDepth is how many schemas may be within each other.
const mostDepth = 200

// refuse keeps the first problem.
func (c *schemas) refuse(at, format string, args ...any) {
	if c.err == nil {
		c.err = &Error{at, fmt.Sprintf(format, args...)}
	}
}

// compile makes a rule of a schema.
func compile(raw json.RawMessage) (c *schemas, root int32, err error) {
	c = &schemas{net: net{shared: map[string]int32{}}, root: raw, base: "#", found: map[kindsKey]map[string]bool{}}
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(tooLarge); !ok {
				panic(p)
			}
			err = &Error{"#", fmt.Sprintf("it has more than %d states: lengths or numbers of items are too large", maxStates)}
		}
	}()
	if !json.Valid(raw) {
		return nil, 0, &Error{"#", "it is no JSON"}
	}
	root = c.ref(target{raw, "#", "#"})
	if c.err == nil {
		if err := c.prune(root); err != nil {
			c.refuse("#", "%v", err)
		}
		c.markLast()
	}
	return c, root, c.err
}

// ref is the rule of a schema that references lead to.
func (c *schemas) ref(to target) int32 {
	return c.rule("ref "+to.path, func(s int32) int32 {
		defer func(outer string) { c.base = outer }(c.base)
		c.base = to.base
		return c.value(s, to.raw, to.path)
	})
}

// value is a way through any value of a schema.
func (c *schemas) value(from int32, raw json.RawMessage, at string) int32 {
	if c.depth == mostDepth {
		c.refuse("#", "found more than %d schemas within each other", mostDepth)
	}
	if c.err != nil {
		return from
	}
	c.depth++
	defer func() { c.depth-- }()
	if string(raw) == "true" {
		return c.anything(from)
	}
	o, ok := readObject(raw)
	if !ok {
		c.refuse(at, "found %s, want an object or true", short(raw))
		return from
	}
	if o.resource() {
		defer func(outer string) { c.base = outer }(c.base)
		c.base = at
	}
	for _, name := range o.names {
		if slices.Contains(notes, name) {
			delete(o.values, name)
		}
	}
	o.names = keep(o.names, o.has)
	for _, alone := range []string{"$ref", "anyOf", "oneOf", "allOf"} {
		if o.has(alone) {
			return c.combined(from, o, alone, at)
		}
	}
	if o.has("enum") || o.has("const") {
		return c.listed(from, o, at)
	}
	return c.typed(from, o, at)
}

func short(raw json.RawMessage) string {
	if len(raw) > 40 {
		return strings.ToValidUTF8(string(raw[:40]), "") + "…"
	}
	return string(raw)
}

// combined is a schema made of others.
func (c *schemas) combined(from int32, o object, how, at string) int32 {
	for _, name := range o.names {
		if name != how && !(name == "type" && how != "$ref") {
			c.refuse(at, "found %s beside %s, which is not supported", name, how)
			return from
		}
	}
	if how == "$ref" {
		var ref string
		if json.Unmarshal(o.values[how], &ref) != nil {
			c.refuse(at, "$ref: found %s, want a string", short(o.values[how]))
			return from
		}
		to, err := pointed(c.root, c.base, ref)
		if err != nil {
			c.refuse(at, "%v", err)
			return from
		}
		return c.call(from, c.ref(to))
	}
	var all []json.RawMessage
	if json.Unmarshal(o.values[how], &all) != nil || len(all) == 0 {
		c.refuse(at, "%s: found %s, want a list of schemas", how, short(o.values[how]))
		return from
	}
	if o.has("type") {
		c.checkTypes(o, all, how, at)
	}
	switch {
	case how == "allOf" && len(all) > 1:
		c.refuse(at, "allOf: found %d schemas, want one: more are not supported", len(all))
	case how == "oneOf":
		c.exclusive(all, at)
	}
	var ways []func(int32) int32
	for i, one := range all {
		ways = append(ways, func(s int32) int32 { return c.value(s, one, fmt.Sprintf("%s/%s/%d", at, how, i)) })
	}
	return c.either(from, ways...)
}

// checkTypes refuses a type beside alternatives that not all are of.
func (c *schemas) checkTypes(o object, all []json.RawMessage, how, at string) {
	want, _ := texts(o.values["type"])
	for i, one := range all {
		for kind := range c.kinds(one, 0) {
			if !slices.Contains(want, kind) && !(kind == "integer" && slices.Contains(want, "number")) {
				c.refuse(at, "%s: schema %d allows %s beside type %s", how, i, kind, short(o.values["type"]))
			}
		}
	}
}

// resolved is what a schema refers to, if it does and references there are relative to the same schema.
func (c *schemas) resolved(raw json.RawMessage) json.RawMessage {
	for range 10 {
		o, _ := readObject(raw)
		var ref string
		if !o.has("$ref") || o.resource() || json.Unmarshal(o.values["$ref"], &ref) != nil {
			return raw
		}
		to, err := pointed(c.root, c.base, ref)
		if err != nil || to.base != c.base {
			return raw
		}
		raw = to.raw
	}
	return raw
}

// kinds are the types that values of a schema may have; all where it is not known.
func (c *schemas) kinds(raw json.RawMessage, depth int) map[string]bool {
	key := kindsKey{string(raw), c.base, depth}
	if _, ok := c.found[key]; !ok {
		c.found[key] = c.findKinds(raw, depth)
	}
	return c.found[key]
}

func (c *schemas) findKinds(raw json.RawMessage, depth int) map[string]bool {
	found := map[string]bool{}
	o, ok := readObject(c.resolved(raw))
	if list, listed := c.listedValues(o); listed {
		for _, one := range list {
			found[typeOf(one)] = true
		}
		return found
	}
	for _, how := range []string{"anyOf", "oneOf", "allOf"} {
		var all []json.RawMessage
		if o.has(how) && !o.resource() && depth < 10 && json.Unmarshal(o.values[how], &all) == nil {
			for _, one := range all {
				for kind := range c.kinds(one, depth+1) {
					found[kind] = true
				}
			}
			return found
		}
	}
	named := types
	if ok {
		named = c.typesOf(o)
	}
	for _, kind := range named {
		found[kind] = true
	}
	return found
}

func (c *schemas) listedValues(o object) (list []json.RawMessage, ok bool) {
	if o.has("const") {
		return []json.RawMessage{o.values["const"]}, true
	}
	return list, o.has("enum") && json.Unmarshal(o.values["enum"], &list) == nil
}

// listed is one of some values.
func (c *schemas) listed(from int32, o object, at string) int32 {
	for _, name := range o.names {
		if !slices.Contains([]string{"enum", "const", "type"}, name) {
			c.refuse(at, "found %s beside enum or const, which is not supported", name)
			return from
		}
	}
	list, ok := c.listedValues(o)
	switch {
	case o.has("enum") && o.has("const"):
		c.refuse(at, "found both enum and const, want one of them")
		return from
	case !ok || len(list) == 0:
		c.refuse(at, "enum: found %s, want a list of values", short(o.values["enum"]))
		return from
	}
	var ways []func(int32) int32
	for _, one := range list {
		kinds, _ := texts(o.values["type"])
		kind := typeOf(one)
		if o.has("type") && !slices.Contains(kinds, kind) && !(kind == "integer" && slices.Contains(kinds, "number")) {
			continue // it fits enum and not type
		}
		ways = append(ways, func(s int32) int32 { return c.literal(s, one) })
	}
	if len(ways) == 0 {
		c.refuse(at, "no value of enum or const is of type %s", short(o.values["type"]))
		return from
	}
	return c.either(from, ways...)
}

// typesOf is a schema's type, or the ones that its keywords are about, or all.
func (c *schemas) typesOf(o object) []string {
	if all, ok := texts(o.values["type"]); ok {
		return all
	}
	var all []string
	for _, name := range o.names {
		if kind := of[name]; kind != "" && !slices.Contains(all, kind) {
			all = append(all, kind)
		}
	}
	if len(all) == 0 {
		return []string{"object", "array", "string", "number", "boolean", "null"}
	}
	return all
}

// typed is a value of a type, or of one of several.
func (c *schemas) typed(from int32, o object, at string) int32 {
	kinds := c.typesOf(o)
	for _, name := range o.names {
		about := of[name]
		switch {
		case name == "type":
		case about == "":
			c.refuse(at, "%s is not supported", name)
		case !slices.Contains(kinds, about) && !(about == "number" && slices.Contains(kinds, "integer")):
			c.refuse(at, "found %s with type %s, which it is not about", name, short(o.values["type"]))
		}
	}
	ways := map[string]func(int32) int32{
		"object":  func(s int32) int32 { return c.object(s, o, at) },
		"array":   func(s int32) int32 { return c.array(s, o, at) },
		"string":  func(s int32) int32 { return c.string(s, o, at) },
		"number":  func(s int32) int32 { return c.numbers(s, o, at) },
		"integer": func(s int32) int32 { return c.integers(s, o, at) },
		"boolean": c.boolean,
		"null":    c.null,
	}
	var all []func(int32) int32
	for _, kind := range kinds {
		if ways[kind] == nil {
			c.refuse(at, "type: found %s, want %s", short(o.values["type"]), strings.Join(types, ", "))
			return from
		}
		all = append(all, ways[kind])
	}
	if c.err != nil || len(all) == 0 {
		c.refuse(at, "type: found an empty list")
		return from
	}
	return c.either(from, all...)
}
