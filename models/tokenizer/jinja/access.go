package jinja

import (
	"fmt"
	"strings"
)

func (e attribute) eval(r *run, s *scope) (any, error) {
	value, err := e.value.eval(r, s)
	if err != nil {
		return nil, err
	}
	return attributeOf(value, e.name)
}

// attributeOf is value.name: methods go before the entries of a dict, as in Jinja.
func attributeOf(value any, name string) (any, error) {
	switch v := value.(type) {
	case undefined:
		return nil, fmt.Errorf("%s, which has no attribute %s", typeName(value), name)
	case *namespace:
		if field, ok := v.fields.Get(name); ok {
			return field, nil
		}
	case *loop:
		if field, ok := v.field(name); ok {
			return field, nil
		}
	case *cycler:
		if field, ok := v.field(name); ok {
			return field, nil
		}
	case *Dict:
		if m, ok := methodOf(value, name); ok {
			return m, nil
		}
		if field, ok := v.Get(name); ok {
			return field, nil
		}
	default:
		if l, ok := value.(*List); ok && l.group && name == "grouper" {
			return l.Items[0], nil
		} else if ok && l.group && name == "list" {
			return l.Items[1], nil
		}
		if m, ok := methodOf(value, name); ok {
			return m, nil
		}
	}
	return undefined{fmt.Sprintf("attribute %s of %s", name, typeName(value))}, nil
}

func (e subscript) eval(r *run, s *scope) (any, error) {
	value, err := e.value.eval(r, s)
	if err != nil {
		return nil, err
	}
	index, err := e.index.eval(r, s)
	if err != nil {
		return nil, err
	}
	if s, ok := value.(string); ok {
		if err := r.spend(4 * len(s)); err != nil {
			return nil, err
		}
	}
	return itemOf(value, index)
}

// itemOf is value[index]: the entries of a dict go before its methods.
func itemOf(value, index any) (any, error) {
	if d, ok := value.(*Dict); ok && hashable(index) {
		if item, ok := d.Get(index); ok {
			return item, nil
		}
	}
	if name, ok := index.(string); ok {
		return attributeOf(value, name)
	}
	if _, ok := value.(undefined); ok {
		return nil, fmt.Errorf("%s, which has no items", typeName(value))
	}
	at, _, isInt, _ := number(index)
	var items []any
	switch v := value.(type) {
	case *List:
		items = v.Items
	case string:
		items = characters(v)
	}
	if at < 0 {
		at += len(items)
	}
	if !isInt || at < 0 || at >= len(items) {
		return undefined{fmt.Sprintf("item %s of %s", text(index), typeName(value))}, nil
	}
	return items[at], nil
}

func characters(s string) []any {
	items := []any{}
	for _, r := range s {
		items = append(items, string(r))
	}
	return items
}

func (e slice) eval(r *run, s *scope) (any, error) {
	value, err := e.value.eval(r, s)
	if err != nil {
		return nil, err
	}
	var bounds [3]*int
	for i, b := range e.bounds {
		if b == nil {
			continue
		}
		bound, err := b.eval(r, s)
		if err != nil {
			return nil, err
		}
		n, _, isInt, _ := number(bound)
		switch {
		case isInt:
			bounds[i] = &n
		case bound != nil:
			return nil, fmt.Errorf("%s as the bound of a slice; want an integer", typeName(bound))
		}
	}
	switch v := value.(type) {
	case *List:
		items, err := cut(v.Items, bounds)
		if err != nil {
			return nil, err
		}
		return r.list(items, v.Tuple)
	case string:
		if err := r.spend(4 * len(v)); err != nil {
			return nil, err
		}
		items, err := cut(characters(v), bounds)
		var joined strings.Builder
		for _, c := range items {
			joined.WriteString(c.(string))
		}
		return joined.String(), err
	}
	return undefined{"a slice of " + typeName(value)}, nil
}

// cut is Python's items[start:stop:step].
func cut(items []any, bounds [3]*int) ([]any, error) {
	n, step := len(items), 1
	if bounds[2] != nil {
		step = *bounds[2]
	}
	if step == 0 {
		return nil, fmt.Errorf("a slice with step 0; want another step")
	}
	low, high, start, stop := 0, n, 0, n
	if step < 0 {
		low, high, start, stop = -1, n-1, n-1, -1
	}
	clamp := func(bound *int, otherwise int) int {
		if bound == nil {
			return otherwise
		}
		at := *bound
		if at < 0 {
			at += n
		}
		return min(max(at, low), high)
	}
	out := []any{}
	stop = clamp(bounds[1], stop)
	for i := clamp(bounds[0], start); step > 0 && i < stop || step < 0 && i > stop; i += step {
		out = append(out, items[i])
		if step > n || step < -n {
			break // one step leaves the list
		}
	}
	return out, nil
}
