package jinja

import (
	"fmt"
	"strconv"
	"strings"
)

const maxWidth = 1000 // characters that a formatted value is filled up to

// filterFormat is Jinja's filter format: Python's % with the arguments as a tuple, or those with names as a dict.
func filterFormat(r *run, value any, a args) (any, error) {
	if len(a.names) == 0 {
		return percent(r, text(value), &List{Items: a.values, Tuple: true})
	}
	if len(a.values) > 0 {
		return nil, fmt.Errorf("arguments with and without names; want one of both")
	}
	d, err := dictOf(a)
	if err != nil {
		return nil, err
	}
	return percent(r, text(value), d)
}

// percent is Python's template % value, with %s, %r, %d, %i, %f, %x and %X, the flags - and 0, a width and a precision.
func percent(r *run, template string, value any) (any, error) {
	values := []any{value}
	if l, ok := value.(*List); ok && l.Tuple {
		values = l.Items
	}
	var out strings.Builder
	named := false
	for {
		before, after, found := strings.Cut(template, "%")
		out.WriteString(before)
		if !found {
			break
		}
		if after, found = strings.CutPrefix(after, "%"); found {
			out.WriteByte('%')
			template = after
			continue
		}
		next := any(nil)
		if name, rest, ok := strings.Cut(strings.TrimPrefix(after, "("), ")"); ok && strings.HasPrefix(after, "(") {
			d, isDict := value.(*Dict)
			if !isDict {
				return nil, fmt.Errorf("format: %%(%s) of %s; want a dict", name, typeName(value))
			}
			if next, ok = d.Get(name); !ok {
				return nil, fmt.Errorf("format: no value %s; want one", name)
			}
			named, after = true, rest
		} else if len(values) == 0 {
			return nil, fmt.Errorf("format: fewer values than directives; want as many")
		} else {
			next, values = values[0], values[1:]
		}
		template = strings.TrimLeft(after, "-0123456789.")
		directive := after[:len(after)-len(template)]
		if template == "" {
			return nil, fmt.Errorf("format: %%%s at the end; want a letter after it", directive)
		}
		part, err := directed(directive, template[0], next)
		if err != nil {
			return nil, err
		}
		template = template[1:]
		out.WriteString(part)
		if err := r.spend(len(part)); err != nil {
			return nil, err
		}
	}
	if _, isDict := value.(*Dict); len(values) > 0 && !named && !isDict {
		return nil, fmt.Errorf("format: more values than directives; want as many")
	}
	return out.String(), nil
}

// directed is one value by a directive: its flags, width and precision, and its letter.
func directed(directive string, letter byte, value any) (string, error) {
	width, precision, _ := strings.Cut(strings.TrimLeft(directive, "-0"), ".")
	for _, n := range []string{width, precision} {
		if size, err := strconv.Atoi(n); n != "" && (err != nil || size > maxWidth) {
			return "", fmt.Errorf("format: %%%s; want up to %d characters", directive, maxWidth)
		}
	}
	if (letter == 's' || letter == 'r') && strings.HasPrefix(directive, "0") {
		directive = strings.TrimLeft(directive, "0") // Go fills texts up with zeros, Python does not
	}
	i, f, isInt, ok := number(value)
	switch {
	case letter == 's':
		return fmt.Sprintf("%"+directive+"s", text(value)), nil
	case letter == 'r':
		return fmt.Sprintf("%"+directive+"s", repr(value)), nil
	case !ok:
	case letter == 'f':
		return fmt.Sprintf("%"+directive+"f", f), nil
	case letter == 'd' || letter == 'i':
		if !isInt {
			i = int(f)
		}
		return fmt.Sprintf("%"+directive+"d", i), nil
	case (letter == 'x' || letter == 'X') && isInt:
		return fmt.Sprintf("%"+directive+string(letter), i), nil
	}
	return "", fmt.Errorf("format: %%%s%c of %s; want %%s, %%r, or %%d, %%f or %%x of a number", directive, letter,
		typeName(value))
}

// formatMethod is Python's template.format, with fields {}, {0} and {name}.
func formatMethod(template string, a args) (any, error) {
	var out strings.Builder
	next := 0 // of the fields without a number
	for template != "" {
		n := strings.IndexAny(template, "{}")
		if n < 0 {
			break
		}
		out.WriteString(template[:n])
		rest := template[n+1:]
		if strings.HasPrefix(rest, template[n:n+1]) { // doubled
			out.WriteByte(template[n])
			template = rest[1:]
			continue
		}
		field, after, closed := strings.Cut(rest, "}")
		if template[n] == '}' || !closed {
			return nil, fmt.Errorf("a single %c; want it doubled, or a field in {}", template[n])
		}
		number, err := strconv.ParseUint(field, 10, 16)
		at := int(number)
		switch {
		case field == "":
			at, next = next, next+1
		case err != nil:
			at = len(a.values)
			for i, name := range a.names {
				if name == field {
					out.WriteString(text(a.named[i]))
					at = -1
				}
			}
		}
		if at >= len(a.values) {
			return nil, fmt.Errorf("the field {%s}; want {}, {0} or {name} of an argument", field)
		}
		if at >= 0 {
			out.WriteString(text(a.values[at]))
		}
		if out.Len() > maxOutput {
			return nil, fmt.Errorf("a text of more than %d bytes; want a shorter one", maxOutput)
		}
		template = after
	}
	return out.String() + template, nil
}
