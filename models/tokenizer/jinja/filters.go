package jinja

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

type filterFunc func(r *run, value any, a args) (any, error)

// filterNamed is the filter with this name, nil when there is none. The table is no variable: map looks into it.
func filterNamed(name string) filterFunc {
	table := map[string]filterFunc{
		"attr": filterAttr, "batch": filterBatch, "center": filterCenter, "groupby": filterGroupBy, "slice": filterSlice,
		"truncate": filterTruncate, "wordcount": filterWordCount,
		"abs": filterAbs, "capitalize": textFilter(capitalize), "count": filterLength, "d": filterDefault,
		"default": filterDefault, "dictsort": filterDictSort,
		"first": pick(func(n int) int { return 0 }), "float": filterFloat, "format": filterFormat, "indent": filterIndent,
		"int":   filterInt,
		"items": filterItems, "join": filterJoin,
		"last": pick(func(n int) int { return n - 1 }), "length": filterLength, "list": filterList,
		"lower": textFilter(strings.ToLower), "map": filterMap,
		"max": extreme(1), "min": extreme(-1), "reject": chosenBy(false, false), "rejectattr": chosenBy(true, false),
		"replace": filterReplace,
		"reverse": filterReverse, "round": filterRound, "safe": textFilter(func(s string) string { return s }),
		"select":     chosenBy(false, true),
		"selectattr": chosenBy(true, true), "sort": filterSort, "string": textFilter(func(s string) string { return s }),
		"sum":   filterSum,
		"title": textFilter(titleWords), "tojson": filterJSON, "trim": filterTrim, "unique": filterUnique,
		"upper": textFilter(strings.ToUpper),
	}
	return table[name]
}

// textFilter is a filter of a text, without arguments.
func textFilter(f func(string) string) filterFunc {
	return func(_ *run, value any, a args) (any, error) {
		_, err := a.bind(0)
		return f(text(value)), err
	}
}

func filterTrim(_ *run, value any, a args) (any, error) {
	return strip(strings.TrimFunc)(text(value), a)
}

func filterReplace(_ *run, value any, a args) (any, error) { return replace(text(value), a) }

func filterAbs(_ *run, value any, a args) (any, error) {
	if _, err := a.bind(0); err != nil {
		return nil, err
	}
	i, f, isInt, ok := number(value)
	switch {
	case !ok:
		return nil, fmt.Errorf("%s; want a number", typeName(value))
	case isInt && i < 0:
		return integers("-", 0, i)
	case isInt:
		return i, nil
	}
	return math.Abs(f), nil
}

func filterDefault(_ *run, value any, a args) (any, error) {
	bound, err := a.bind(0, "default_value", "boolean")
	if err != nil {
		return nil, err
	}
	if !isUndefined(value) && !(truth(bound[1]) && !truth(value)) {
		return value, nil
	}
	if bound[0] == absent {
		return "", nil
	}
	return bound[0], nil
}

func filterLength(_ *run, value any, a args) (any, error) {
	if _, err := a.bind(0); err != nil {
		return nil, err
	}
	if s, ok := value.(string); ok {
		return utf8.RuneCountInString(s), nil
	}
	items, err := iterate(value)
	return len(items), err
}

// itemsOf are the items of the value of a filter without arguments.
func itemsOf(value any, a args) ([]any, error) {
	if _, err := a.bind(0); err != nil {
		return nil, err
	}
	return iterate(value)
}

func filterList(r *run, value any, a args) (any, error) {
	items, err := itemsOf(value, a)
	if err != nil {
		return nil, err
	}
	return r.list(items, false)
}

func filterItems(_ *run, value any, a args) (any, error) {
	if _, err := a.bind(0); err != nil {
		return nil, err
	}
	switch v := value.(type) {
	case undefined:
		return &List{}, nil
	case *Dict:
		return &List{Items: v.items()}, nil
	}
	return nil, fmt.Errorf("%s; want a dict", typeName(value))
}

// pick is the item at one end of a list; undefined when the list is empty.
func pick(at func(n int) int) filterFunc {
	return func(_ *run, value any, a args) (any, error) {
		items, err := itemsOf(value, a)
		if err != nil || len(items) == 0 {
			return undefined{"an item of an empty list"}, err
		}
		return items[at(len(items))], nil
	}
}

func filterJoin(_ *run, value any, a args) (any, error) {
	bound, err := a.bind(0, "d", "attribute")
	if err != nil {
		return nil, err
	}
	items, err := iterate(value)
	if err == nil && bound[1] != absent && bound[1] != nil {
		items, err = attributes(items, bound[1], absent)
	}
	if err != nil {
		return nil, err
	}
	sep := ""
	if bound[0] != absent {
		sep = text(bound[0])
	}
	return joined(items, sep)
}

// attributes are the items' attributes of this name, which may be a path with dots; otherwise, if not absent, stands
// for what is undefined.
func attributes(items []any, name, otherwise any) ([]any, error) {
	out := make([]any, len(items))
	for i, item := range items {
		var steps []any
		if s, ok := name.(string); ok {
			for _, step := range strings.Split(s, ".") {
				steps = append(steps, step)
			}
		} else {
			steps = []any{name}
		}
		for _, step := range steps {
			var err error
			if item, err = itemOf(item, step); err != nil {
				return nil, err
			}
		}
		if isUndefined(item) && otherwise != absent {
			item = otherwise
		}
		out[i] = item
	}
	return out, nil
}

// iterateOrNone iterates over value; what is no list and counts as false, such as none, has no items: map, select and
// their like do not look at it in Jinja.
func iterateOrNone(value any) ([]any, error) {
	if !truth(value) {
		return nil, nil
	}
	return iterate(value)
}

// filterMap is map(attribute=…) or map('filter', …).
func filterMap(r *run, value any, a args) (any, error) {
	items, err := iterateOrNone(value)
	if err != nil {
		return nil, err
	}
	if len(a.values) == 0 {
		bound, err := a.bind(0, "attribute", "default")
		if err != nil || bound[0] == absent {
			return nil, fmt.Errorf("no filter and no attribute; want one of them (%v)", err)
		}
		out, err := attributes(items, bound[0], bound[1])
		if err != nil {
			return nil, err
		}
		return r.list(out, false)
	}
	word := text(a.values[0])
	f := filterNamed(word)
	if f == nil {
		return nil, fmt.Errorf("the filter %s; want one of chat templates", word)
	}
	out := make([]any, len(items))
	for i, item := range items {
		if out[i], err = f(r, item, args{a.values[1:], a.names, a.named}); err != nil {
			return nil, fmt.Errorf("%s: %w", word, err)
		}
	}
	return r.list(out, false)
}

// chosenBy is select, reject, selectattr or rejectattr: by a test, or without one by truth.
func chosenBy(attribute, wanted bool) filterFunc {
	return func(r *run, value any, a args) (any, error) {
		items, err := iterateOrNone(value)
		if err != nil {
			return nil, err
		}
		subjects, rest := items, a.values
		if attribute {
			if len(rest) == 0 {
				return nil, fmt.Errorf("no attribute; want its name")
			}
			if subjects, err = attributes(items, rest[0], absent); err != nil {
				return nil, err
			}
			rest = rest[1:]
		}
		holds := kindTest(truth)
		if len(rest) > 0 {
			if holds = testNamed(text(rest[0])); holds == nil {
				return nil, fmt.Errorf("the test %s; want one of chat templates", text(rest[0]))
			}
			rest = rest[1:]
		}
		out := []any{}
		for i, subject := range subjects {
			is, err := holds(subject, rest)
			if err != nil {
				return nil, err
			}
			if is == wanted {
				out = append(out, items[i])
			}
		}
		return r.list(out, false)
	}
}
