package jinja

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// methodOf is the method name of a str, dict or list. Methods that change a list or dict are refused, as transformers'
// sandbox does.
func methodOf(value any, name string) (function, bool) {
	switch v := value.(type) {
	case string:
		m, ok := stringMethods[name]
		return func(r *run, a args) (any, error) {
			result, err := m(v, a)
			if err != nil {
				return nil, fmt.Errorf("method %s of str: %w", name, err)
			}
			return result, r.spend(len(v) + weigh(result))
		}, ok
	case *Dict:
		switch name {
		case "items", "keys", "values", "get", "copy":
			return func(_ *run, a args) (any, error) { return dictMethod(v, name, a) }, true
		case "pop", "popitem", "update", "setdefault", "clear":
			return changes(name), true
		}
	case *List:
		switch name {
		case "append", "extend", "insert", "pop", "remove", "reverse", "sort", "clear":
			return changes(name), !v.Tuple
		case "count", "index":
			return func(r *run, a args) (any, error) { return listMethod(r, v, name, a) }, true
		}
	}
	return nil, false
}

func changes(name string) function {
	return func(*run, args) (any, error) {
		return nil, fmt.Errorf("the method %s, which changes a value; want one that does not", name)
	}
}

func dictMethod(d *Dict, name string, a args) (any, error) {
	if name == "get" {
		bound, err := a.bind(1, "key", "default")
		if err != nil {
			return nil, err
		}
		if hashable(bound[0]) {
			if value, ok := d.Get(bound[0]); ok {
				return value, nil
			}
		}
		if bound[1] == absent {
			return nil, nil
		}
		return bound[1], nil
	}
	if _, err := a.bind(0); err != nil {
		return nil, err
	}
	switch name {
	case "items":
		return &List{Items: d.items()}, nil
	case "keys":
		return &List{Items: d.keys}, nil
	case "values":
		values := make([]any, len(d.keys))
		for i, key := range d.keys {
			values[i] = d.at(key)
		}
		return &List{Items: values}, nil
	}
	return d, nil // copy: nothing changes a dict
}

type stringMethod func(s string, a args) (any, error)

// stringMethods are Python's methods of str, as far as chat templates use them.
var stringMethods = map[string]stringMethod{
	"strip":        strip(strings.TrimFunc),
	"lstrip":       strip(strings.TrimLeftFunc),
	"rstrip":       strip(strings.TrimRightFunc),
	"upper":        plain(strings.ToUpper),
	"lower":        plain(strings.ToLower),
	"capitalize":   plain(capitalize),
	"title":        plain(title),
	"split":        split,
	"rsplit":       rsplit,
	"splitlines":   splitLines,
	"startswith":   affix(strings.HasPrefix),
	"endswith":     affix(strings.HasSuffix),
	"removeprefix": trimAffix(strings.TrimPrefix),
	"removesuffix": trimAffix(strings.TrimSuffix),
	"replace":      replace,
	"find":         find(strings.Index),
	"rfind":        find(strings.LastIndex),
	"count":        count,
	"format":       formatMethod,
	"join":         join,
	"isdigit":      every(unicode.IsDigit),
	"isalpha":      every(unicode.IsLetter),
	"isalnum":      every(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }),
	"isspace":      every(space),
	"partition":    partition(strings.Index, false),
	"rpartition":   partition(strings.LastIndex, true),
	"ljust":        pad(func(more, _ int) int { return 0 }),
	"rjust":        pad(func(more, _ int) int { return more }),
	"center":       pad(func(more, width int) int { return more/2 + more&width&1 }),
	"zfill":        zeroFill,
}

// plain is a method without arguments.
func plain(f func(string) string) stringMethod {
	return func(s string, a args) (any, error) {
		_, err := a.bind(0)
		return f(s), err
	}
}

func every(holds func(rune) bool) stringMethod {
	return func(s string, a args) (any, error) {
		_, err := a.bind(0)
		return s != "" && strings.IndexFunc(s, func(r rune) bool { return !holds(r) }) < 0, err
	}
}

// strip is Python's strip, lstrip or rstrip, as trims does it.
func strip(trims func(string, func(rune) bool) string) stringMethod {
	return func(s string, a args) (any, error) {
		bound, err := a.bind(0, "chars")
		if err != nil {
			return nil, err
		}
		if bound[0] == absent || bound[0] == nil {
			return trims(s, space), nil
		}
		set, err := str(bound[0])
		return trims(s, func(r rune) bool { return strings.ContainsRune(set, r) }), err
	}
}

// str is v, which must be a string.
func str(v any) (string, error) {
	s, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("%s; want str", typeName(v))
	}
	return s, nil
}

func affix(has func(s, affix string) bool) stringMethod {
	return func(s string, a args) (any, error) {
		bound, err := a.bind(1, "affix")
		if err != nil {
			return nil, err
		}
		options := []any{bound[0]}
		if l, ok := bound[0].(*List); ok && l.Tuple {
			options = l.Items
		}
		for _, option := range options {
			if affix, err := str(option); err != nil || has(s, affix) {
				return err == nil, err
			}
		}
		return false, nil
	}
}

func trimAffix(trims func(s, affix string) string) stringMethod {
	return func(s string, a args) (any, error) {
		bound, err := a.bind(1, "affix")
		if err != nil {
			return nil, err
		}
		affix, err := str(bound[0])
		return trims(s, affix), err
	}
}

// splitting binds the arguments of split and rsplit: the separator, "" for white space, and how often to split, -1 for
// always.
func splitting(a args) (sep string, limit int, err error) {
	bound, err := a.bind(0, "sep", "maxsplit")
	if err != nil {
		return "", 0, err
	}
	limit = -1
	if bound[1] != absent {
		n, _, isInt, _ := number(bound[1])
		if !isInt {
			return "", 0, fmt.Errorf("maxsplit %s; want an integer", text(bound[1]))
		}
		limit = n
	}
	if bound[0] == absent || bound[0] == nil {
		return "", limit, nil
	}
	if sep, err = str(bound[0]); err == nil && sep == "" {
		err = fmt.Errorf("an empty separator; want characters")
	}
	return sep, limit, err
}

func split(s string, a args) (any, error) {
	sep, limit, err := splitting(a)
	if err != nil {
		return nil, err
	}
	parts := []any{}
	rest := s
	if sep != "" {
		for len(parts) != limit {
			before, after, found := strings.Cut(rest, sep)
			if !found {
				break
			}
			parts, rest = append(parts, before), after
		}
		return &List{Items: append(parts, rest)}, nil
	}
	for rest = strings.TrimLeftFunc(rest, space); rest != ""; rest = strings.TrimLeftFunc(rest, space) {
		n := strings.IndexFunc(rest, space)
		if n < 0 || len(parts) == limit {
			n = len(rest)
		}
		parts, rest = append(parts, rest[:n]), rest[n:]
	}
	return &List{Items: parts}, nil
}

func rsplit(s string, a args) (any, error) {
	sep, limit, err := splitting(a)
	if err != nil {
		return nil, err
	}
	if sep == "" {
		return nil, fmt.Errorf("rsplit at white space; want a separator")
	}
	parts, rest := []any{}, s
	for len(parts) != limit {
		i := strings.LastIndex(rest, sep)
		if i < 0 {
			break
		}
		parts, rest = append(parts, rest[i+len(sep):]), rest[:i]
	}
	parts = append(parts, rest)
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return &List{Items: parts}, nil
}

func splitLines(s string, a args) (any, error) {
	if _, err := a.bind(0); err != nil {
		return nil, err
	}
	parts := []any{}
	for s != "" {
		n := strings.IndexAny(s, "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029")
		if n < 0 {
			return &List{Items: append(parts, s)}, nil
		}
		parts = append(parts, s[:n])
		_, size := utf8.DecodeRuneInString(s[n:])
		if strings.HasPrefix(s[n:], "\r\n") {
			size = 2
		}
		s = s[n+size:]
	}
	return &List{Items: parts}, nil
}

func replace(s string, a args) (any, error) {
	bound, err := a.bind(2, "old", "new", "count")
	if err != nil {
		return nil, err
	}
	from, err := str(bound[0])
	if err != nil {
		return nil, err
	}
	to, err := str(bound[1])
	if err != nil {
		return nil, err
	}
	times := -1
	if bound[2] != absent && bound[2] != nil {
		n, _, isInt, _ := number(bound[2])
		if !isInt {
			return nil, fmt.Errorf("count %s; want an integer", text(bound[2]))
		}
		times = n
	}
	if grown := (strings.Count(s, from) + 1) * len(to); grown > maxOutput {
		return nil, fmt.Errorf("a text of %d bytes; want at most %d", grown, maxOutput)
	}
	return strings.Replace(s, from, to, times), nil
}

func find(index func(s, what string) int) stringMethod {
	return func(s string, a args) (any, error) {
		bound, err := a.bind(1, "sub")
		if err != nil {
			return nil, err
		}
		what, err := str(bound[0])
		if err != nil {
			return nil, err
		}
		at := index(s, what)
		if at < 0 {
			return -1, nil
		}
		return utf8.RuneCountInString(s[:at]), nil
	}
}

func count(s string, a args) (any, error) {
	bound, err := a.bind(1, "sub")
	if err != nil {
		return nil, err
	}
	what, err := str(bound[0])
	return strings.Count(s, what), err
}

func join(s string, a args) (any, error) {
	bound, err := a.bind(1, "iterable")
	if err != nil {
		return nil, err
	}
	items, err := iterate(bound[0])
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		if _, err := str(item); err != nil {
			return nil, err
		}
	}
	return joined(items, s)
}

// joined is the items' texts with sep between.
func joined(items []any, sep string) (string, error) {
	if size := weigh(&List{Items: items}) + len(sep)*len(items); size > maxOutput {
		return "", fmt.Errorf("a text of %d bytes; want at most %d", size, maxOutput)
	}
	parts := make([]string, len(items))
	for i, item := range items {
		parts[i] = text(item)
	}
	return strings.Join(parts, sep), nil
}

func capitalize(s string) string {
	r, size := utf8.DecodeRuneInString(s)
	if s == "" {
		return s
	}
	return string(unicode.ToTitle(r)) + strings.ToLower(s[size:])
}

// title is Python's title: a letter after one is small, the others are large.
func title(s string) string {
	var out strings.Builder
	inWord := false
	for _, r := range s {
		if inWord {
			out.WriteRune(unicode.ToLower(r))
		} else {
			out.WriteRune(unicode.ToTitle(r))
		}
		inWord = unicode.IsLetter(r)
	}
	return out.String()
}

// titleWords is Jinja's filter title: words begin after white space, a hyphen or an opening bracket.
func titleWords(s string) string {
	var out strings.Builder
	begins := true
	for _, r := range s {
		if begins {
			out.WriteRune(unicode.ToUpper(r))
		} else {
			out.WriteRune(unicode.ToLower(r))
		}
		begins = space(r) || strings.ContainsRune("-({[<", r)
	}
	return out.String()
}
