package jinja

import (
	"fmt"
	"slices"
	"strings"
)

func filterReverse(r *run, value any, a args) (any, error) {
	items, err := itemsOf(value, a)
	if err != nil {
		return nil, err
	}
	items = slices.Clone(items)
	slices.Reverse(items)
	if _, ok := value.(string); ok {
		return joined(items, "")
	}
	return r.list(items, false)
}

// sorted sorts items by their keys, which must have an order.
func sorted(items, keys []any, reverse bool) ([]any, error) {
	at := make([]int, len(items))
	for i := range at {
		at[i] = i
	}
	var failed error
	slices.SortStableFunc(at, func(i, j int) int {
		sign, err := order(keys[i], keys[j])
		if err != nil {
			failed = err
		}
		if reverse {
			sign = -sign
		}
		return sign
	})
	out := make([]any, len(items))
	for i, from := range at {
		out[i] = items[from]
	}
	return out, failed
}

// folded are keys for sorting without regard to case.
func folded(keys []any) []any {
	out := make([]any, len(keys))
	for i, key := range keys {
		if s, ok := key.(string); ok {
			key = strings.ToLower(s)
		}
		out[i] = key
	}
	return out
}

func filterSort(r *run, value any, a args) (any, error) {
	bound, err := a.bind(0, "reverse", "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	items, err := iterate(value)
	keys := items
	if err == nil && bound[2] != absent && bound[2] != nil {
		keys, err = byAttributes(items, bound[2], truth(bound[1]))
	}
	if err != nil {
		return nil, err
	}
	if !truth(bound[1]) {
		keys = folded(keys)
	}
	out, err := sorted(items, keys, truth(bound[0]))
	if err != nil {
		return nil, err
	}
	return r.list(out, false)
}

// byAttributes are keys of one attribute, or of several with commas between.
func byAttributes(items []any, names any, caseSensitive bool) ([]any, error) {
	list, ok := names.(string)
	if !ok || !strings.Contains(list, ",") {
		return attributes(items, names, absent)
	}
	keys := make([]any, len(items))
	for i := range keys {
		keys[i] = &List{}
	}
	for name := range strings.SplitSeq(list, ",") {
		column, err := attributes(items, name, absent)
		if err != nil {
			return nil, err
		}
		if !caseSensitive {
			column = folded(column)
		}
		for i, key := range keys {
			key.(*List).Items = append(key.(*List).Items, column[i])
		}
	}
	return keys, nil
}

func filterDictSort(r *run, value any, a args) (any, error) {
	bound, err := a.bind(0, "case_sensitive", "by", "reverse")
	if err != nil {
		return nil, err
	}
	d, ok := value.(*Dict)
	if !ok {
		return nil, fmt.Errorf("%s; want a dict", typeName(value))
	}
	keys := d.keys
	if bound[1] != absent && text(bound[1]) == "value" {
		keys = make([]any, len(d.keys))
		for i, key := range d.keys {
			keys[i] = d.at(key)
		}
	}
	if !truth(bound[0]) {
		keys = folded(keys)
	}
	out, err := sorted(d.items(), keys, truth(bound[2]))
	if err != nil {
		return nil, err
	}
	return r.list(out, false)
}

// keyed are the items of the value of unique, min or max, and what they are compared by.
func keyed(value any, a args) (items, keys []any, err error) {
	bound, err := a.bind(0, "case_sensitive", "attribute")
	if err != nil {
		return nil, nil, err
	}
	if items, err = iterate(value); err != nil {
		return nil, nil, err
	}
	keys = items
	if bound[1] != absent && bound[1] != nil {
		keys, err = attributes(items, bound[1], absent)
	}
	if !truth(bound[0]) {
		keys = folded(keys)
	}
	return items, keys, err
}

func filterUnique(r *run, value any, a args) (any, error) {
	items, keys, err := keyed(value, a)
	if err != nil {
		return nil, err
	}
	seen, out := &Dict{}, []any{}
	for i, key := range keys {
		if !hashable(key) {
			return nil, fmt.Errorf("%s; want strings, numbers, bools or none", typeName(key))
		}
		if _, again := seen.Get(key); !again {
			seen.Set(key, true)
			out = append(out, items[i])
		}
	}
	return r.list(out, false)
}

// extreme is the greatest item for sign 1, the least for -1.
func extreme(sign int) filterFunc {
	return func(_ *run, value any, a args) (any, error) {
		items, keys, err := keyed(value, a)
		if err != nil || len(items) == 0 {
			return undefined{"an item of an empty list"}, err
		}
		best := 0
		for i := range items {
			compared, err := order(keys[i], keys[best])
			if err != nil {
				return nil, err
			}
			if compared*sign > 0 {
				best = i
			}
		}
		return items[best], nil
	}
}

func filterSum(r *run, value any, a args) (any, error) {
	bound, err := a.bind(0, "attribute", "start")
	if err != nil {
		return nil, err
	}
	items, err := iterate(value)
	if err == nil && bound[0] != absent && bound[0] != nil {
		items, err = attributes(items, bound[0], absent)
	}
	total := any(0)
	if bound[1] != absent {
		total = bound[1]
	}
	for _, item := range items {
		if err != nil {
			break
		}
		total, err = r.binary("+", total, item)
	}
	return total, err
}
