package grammar

import (
	"encoding/json"
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// object is an object: the properties that are named, in their order, or any.
func (c *schemas) object(from int32, o object, at string) int32 {
	properties, ok := readObject(o.values["properties"])
	if o.has("properties") && !ok {
		c.refuse(at, "properties: found %s, want an object", short(o.values["properties"]))
		return from
	}
	required, ok := texts(o.values["required"])
	if o.has("required") && !ok {
		c.refuse(at, "required: found %s, want a list of names", short(o.values["required"]))
	}
	for _, name := range required {
		if !properties.has(name) {
			c.refuse(at, "required: %q is not among the properties, which is not supported", name)
		}
	}
	more := string(o.values["additionalProperties"])
	switch {
	case len(properties.names) > 0 && more != "" && more != "true" && more != "false":
		c.refuse(at, "additionalProperties: found a schema beside properties, which is not supported; want false")
	case len(properties.names) == 0 && more == "false":
		return c.list(from, '{', '}', 0, 0, nil)
	case len(properties.names) == 0 && (more == "" || more == "true"):
		return c.anyObject(from)
	case len(properties.names) == 0:
		rest := c.rule("more "+at,
			func(s int32) int32 { return c.value(s, o.values["additionalProperties"], at+"/additionalProperties") })
		return c.dictionary(from, func(s int32) int32 { return c.call(s, rest) })
	}
	if c.err != nil {
		return from
	}
	return c.named(from, properties, required, at)
}

// literal is a value of the schema's own, valid JSON.
func (c *schemas) literal(from int32, raw json.RawMessage) int32 {
	var list []json.RawMessage
	if o, ok := readObject(raw); ok && len(o.names) > 0 {
		s := c.white(c.byte(from, '{', '{'))
		for i, name := range o.names {
			if i > 0 {
				s = c.white(c.byte(s, ',', ','))
			}
			s = c.literal(c.white(c.text(s, key(name))), o.values[name])
		}
		return c.byte(c.white(s), '}', '}')
	}
	if json.Unmarshal(raw, &list) == nil && len(list) > 0 {
		s := c.white(c.byte(from, '[', '['))
		for i, one := range list {
			if i > 0 {
				s = c.white(c.byte(s, ',', ','))
			}
			s = c.literal(s, one)
		}
		return c.byte(c.white(s), ']', ']')
	}
	text, err := compact(raw)
	if err != nil {
		panic("BUG: JSON that was read before: " + err.Error())
	}
	return c.text(from, text)
}

// key is a property's name as JSON, and a colon.
func key(name string) string {
	raw, err := json.Marshal(name)
	if err == nil {
		if text, err := compact(raw); err == nil {
			return text + ":"
		}
	}
	panic("BUG: a name that is no JSON: " + name)
}

// named is an object of properties. none is where no property has been yet, some where one has: there a comma comes
// first.
func (c *schemas) named(from int32, properties object, required []string, at string) int32 {
	none, some := c.white(c.byte(from, '{', '{')), c.add()
	for _, name := range properties.names {
		begin := c.add()
		c.also(none, begin)
		c.also(c.white(c.byte(some, ',', ',')), begin)
		value := c.white(c.text(begin, key(name)))
		end := c.value(value, properties.values[name], at+"/properties"+step(name))
		thenNone, thenSome := c.add(), c.add()
		c.also(end, thenSome)
		if !slices.Contains(required, name) {
			c.also(none, thenNone)
			c.also(some, thenSome)
		}
		none, some = thenNone, thenSome
	}
	to := c.add()
	c.byteTo(none, '}', '}', to)
	c.byteTo(c.white(some), '}', '}', to)
	return to
}

// array is a list of n items, or one of certain items.
func (c *schemas) array(from int32, o object, at string) int32 {
	lo, hi := c.range2(o, "minItems", "maxItems", at)
	item := c.anything
	more := !o.has("items") || string(o.values["items"]) != "false"
	if o.has("items") && more && string(o.values["items"]) != "true" {
		rule := c.rule("items "+at, func(s int32) int32 { return c.value(s, o.values["items"], at+"/items") })
		item = func(s int32) int32 { return c.call(s, rule) }
	}
	if !o.has("prefixItems") {
		if !more {
			hi = 0
		}
		if hi == 0 && lo > 0 {
			c.refuse(at, "minItems is %d, and items are not allowed", lo)
		}
		return c.list(from, '[', ']', lo, hi, item)
	}
	var prefix []json.RawMessage
	if json.Unmarshal(o.values["prefixItems"], &prefix) != nil || len(prefix) == 0 {
		c.refuse(at, "prefixItems: found %s, want a list of schemas", short(o.values["prefixItems"]))
		return from
	}
	if hi >= 0 && hi < len(prefix) || lo > len(prefix) && !more {
		c.refuse(at, "minItems or maxItems: found %d and %d with %d prefixItems, which is not supported", lo, hi, len(prefix))
		return from
	}
	s := c.white(c.byte(from, '[', '['))
	for i, one := range prefix {
		if i > 0 {
			s = c.white(c.byte(s, ',', ','))
		}
		s = c.value(s, one, fmt.Sprintf("%s/prefixItems/%d", at, i))
	}
	if o.has("items") && more || lo > len(prefix) {
		s = c.times(s, max(0, lo-len(prefix)), max(-1, hi-len(prefix)),
			func(s int32) int32 { return item(c.white(c.byte(s, ',', ','))) })
	}
	return c.byte(c.white(s), ']', ']')
}

func (c *schemas) integers(from int32, o object, at string) int32 {
	lo, hi, _ := c.limits(o, at)
	switch {
	case lo > hi:
		c.refuse(at, "no integer is within its bounds")
		return from
	case o.has("minimum") || o.has("maximum") || o.has("exclusiveMinimum") || o.has("exclusiveMaximum"):
		return c.between(from, lo, hi)
	}
	return c.integer(from)
}

func (c *schemas) numbers(from int32, o object, at string) int32 {
	lo, hi, err := c.limits(o, at)
	for _, name := range []string{"exclusiveMinimum", "exclusiveMaximum"} {
		if o.has(name) {
			c.refuse(at, "%s of a number is not supported; want minimum and maximum, or type integer", name)
			return from
		}
	}
	switch {
	case err != nil:
		c.refuse(at, "minimum or maximum: found %v, which is not supported of type number", err)
		return from
	case lo > hi:
		c.refuse(at, "no number is within its bounds")
		return from
	case o.has("minimum") || o.has("maximum"):
		return c.decimals(from, lo, hi)
	}
	return c.number(from)
}

// days are months and days that every year has.
const days = `((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))`

const clock = `([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])`

// formats are those that are patterns.
var formats = map[string]string{
	"date":      `[0-9]{4}-` + days,
	"time":      clock,
	"date-time": `[0-9]{4}-` + days + `T` + clock,
	"uuid":      `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`,
}

func (c *schemas) string(from int32, o object, at string) int32 {
	lo, hi := c.range2(o, "minLength", "maxLength", at)
	given, pattern := 0, ""
	for _, name := range []string{"pattern", "format"} {
		if !o.has(name) {
			continue
		}
		given++
		if json.Unmarshal(o.values[name], &pattern) != nil {
			c.refuse(at, "%s: found %s, want a string", name, short(o.values[name]))
			return from
		}
		if name == "format" {
			format := pattern
			if pattern = formats[format]; pattern == "" {
				c.refuse(at, "format %q is not supported; want date, time, date-time or uuid", format)
				return from
			}
		}
	}
	switch {
	case given == 2 || given == 1 && (o.has("minLength") || o.has("maxLength")):
		c.refuse(at, "pattern, format and lengths together are not supported")
		return from
	case given == 1:
		return c.pattern(from, pattern, at)
	case o.has("minLength") || o.has("maxLength"):
		return c.quoted(from, lo, hi)
	}
	return c.anyString(from)
}

// pattern is a string that matches a regular expression.
func (c *schemas) pattern(from int32, pattern, at string) int32 {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		c.refuse(at, "pattern: %v", err)
		return from
	}
	begin := c.byte(from, '"', '"')
	s := c.regex(begin, re.Simplify(), true, true, at)
	if n := c.widest(begin); n > mostAtOnce {
		c.refuse(at, "pattern: too many ways to go on, over %d at once; x{0,n} has fewer than (x?){n}", mostAtOnce)
	}
	return c.byte(s, '"', '"')
}

// regex is a match of an expression; first and last say whether the text begins or ends with it.
func (c *schemas) regex(from int32, re *syntax.Regexp, first, last bool, at string) int32 {
	one := func(s int32) int32 { return c.regex(s, re.Sub[0], false, false, at) }
	switch re.Op {
	case syntax.OpEmptyMatch:
		return from
	case syntax.OpBeginText:
		if !first {
			c.refuse(at, "pattern: ^ within a text never matches")
		}
		return from
	case syntax.OpEndText:
		if !last {
			c.refuse(at, "pattern: $ within a text never matches")
		}
		return from
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			from = c.letter(from, r, re.Flags&syntax.FoldCase != 0)
		}
		return from
	case syntax.OpCharClass:
		return c.class(from, re.Rune, at)
	case syntax.OpAnyChar:
		return c.class(from, []rune{0, utf8.MaxRune}, at)
	case syntax.OpAnyCharNotNL:
		return c.class(from, []rune{0, '\n' - 1, '\n' + 1, utf8.MaxRune}, at)
	case syntax.OpCapture:
		return c.regex(from, re.Sub[0], first, last, at)
	case syntax.OpConcat:
		for i, sub := range re.Sub {
			from = c.regex(from, sub, first && i == 0, last && i == len(re.Sub)-1, at)
		}
		return from
	case syntax.OpAlternate:
		var ways []func(int32) int32
		for _, sub := range re.Sub {
			ways = append(ways, func(s int32) int32 { return c.regex(s, sub, first, last, at) })
		}
		return c.either(from, ways...)
	case syntax.OpStar:
		return c.times(from, 0, -1, one)
	case syntax.OpPlus:
		return c.times(from, 1, -1, one)
	case syntax.OpQuest:
		return c.maybe(from, one)
	}
	c.refuse(at, "pattern: %s is not supported", strings.TrimPrefix(re.Op.String(), "Op"))
	return from
}

func (c *schemas) letter(from int32, r rune, fold bool) int32 {
	all := []rune{r, r}
	for other := unicode.SimpleFold(r); fold && other != r; other = unicode.SimpleFold(other) {
		all = append(all, other, other)
	}
	return c.class(from, all, "")
}

// class is a character of one of some ranges.
func (c *schemas) class(from int32, ranges []rune, at string) int32 {
	if len(ranges) == 0 {
		c.refuse(at, "pattern: a class without a character never matches")
		return from
	}
	var ways []func(int32) int32
	for i := 0; i < len(ranges); i += 2 {
		ways = append(ways, func(s int32) int32 { return c.runes(s, ranges[i], ranges[i+1], true) })
	}
	return c.either(from, ways...)
}
