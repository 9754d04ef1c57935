package jinja

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// filterGroupBy gives tuples of an attribute's value and the list of the items that have it, in the values' order.
func filterGroupBy(r *run, value any, a args) (any, error) {
	bound, err := a.bind(1, "attribute", "default", "case_sensitive")
	if err != nil {
		return nil, err
	}
	items, err := iterate(value)
	if err != nil {
		return nil, err
	}
	names, err := attributes(items, bound[0], bound[1])
	if err != nil {
		return nil, err
	}
	keys := names
	if !truth(bound[2]) {
		keys = folded(names)
	}
	order := make([]any, len(items))
	for i := range order {
		order[i] = i
	}
	if order, err = sorted(order, keys, false); err != nil {
		return nil, err
	}
	var groups []any
	for n, at := range order {
		i := at.(int)
		if n == 0 || !equal(keys[i], keys[order[n-1].(int)]) {
			groups = append(groups, &List{Items: []any{names[i], &List{}}, Tuple: true, group: true})
		}
		group := groups[len(groups)-1].(*List).Items[1].(*List)
		group.Items = append(group.Items, items[i])
	}
	return r.list(groups, false)
}

// size is an argument that is a positive number.
func size(of any, name string) (int, error) {
	n, _, isInt, _ := number(of)
	if !isInt || n < 1 || n > maxRange {
		return 0, fmt.Errorf("%s %s; want an integer from 1 to %d", name, text(of), maxRange)
	}
	return n, nil
}

// filterBatch cuts items into lists of linecount. It adds fill_with to the last one until that is as long.
func filterBatch(r *run, value any, a args) (any, error) {
	bound, err := a.bind(1, "linecount", "fill_with")
	if err != nil {
		return nil, err
	}
	n, err := size(bound[0], "linecount")
	if err != nil {
		return nil, err
	}
	items, err := iterate(value)
	if err != nil {
		return nil, err
	}
	var rows []any
	for begin := 0; begin < len(items); begin += n {
		row := append([]any{}, items[begin:min(begin+n, len(items))]...)
		for fill := bound[1]; len(row) < n && fill != absent && fill != nil; {
			if err := r.spend(16); err != nil {
				return nil, err
			}
			row = append(row, fill)
		}
		rows = append(rows, &List{Items: row})
	}
	return r.list(rows, false)
}

// filterSlice deals items out to a number of lists, slices. It adds fill_with to those that are one item shorter.
func filterSlice(r *run, value any, a args) (any, error) {
	bound, err := a.bind(1, "slices", "fill_with")
	if err != nil {
		return nil, err
	}
	n, err := size(bound[0], "slices")
	if err == nil {
		err = r.spendTimes(scopeCost, n)
	}
	if err != nil {
		return nil, err
	}
	items, err := iterate(value)
	if err != nil {
		return nil, err
	}
	each, longer := len(items)/n, len(items)%n
	var columns []any
	for begin, i := 0, 0; i < n; i++ {
		end := begin + each
		if i < longer {
			end++
		}
		column := append([]any{}, items[begin:end]...)
		if fill := bound[1]; i >= longer && fill != absent && fill != nil {
			column = append(column, fill)
		}
		columns, begin = append(columns, &List{Items: column}), end
	}
	return r.list(columns, false)
}

// filterAttr is an attribute and never an entry of a dict.
func filterAttr(_ *run, value any, a args) (any, error) {
	bound, err := a.bind(1, "name")
	if err != nil {
		return nil, err
	}
	name := text(bound[0])
	if _, ok := value.(*Dict); ok {
		if m, ok := methodOf(value, name); ok {
			return m, nil
		}
		return undefined{fmt.Sprintf("attribute %s of dict", name)}, nil
	}
	return attributeOf(value, name)
}

func filterCenter(_ *run, value any, a args) (any, error) {
	bound, err := a.bind(0, "width")
	if err != nil {
		return nil, err
	}
	width, s := 80, text(value)
	if bound[0] != absent {
		if width, err = size(bound[0], "width"); err != nil {
			return nil, err
		}
	}
	return pad(func(more, width int) int { return more/2 + more&width&1 })(s, args{values: []any{width}})
}

func filterWordCount(_ *run, value any, a args) (any, error) {
	if _, err := a.bind(0); err != nil {
		return nil, err
	}
	return len(strings.FieldsFunc(text(value), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsNumber(r) && r != '_'
	})), nil
}

// filterTruncate shortens a text that is longer than length and leeway, at a space unless killwords says otherwise.
func filterTruncate(_ *run, value any, a args) (any, error) {
	bound, err := a.bind(0, "length", "killwords", "end", "leeway")
	if err != nil {
		return nil, err
	}
	length, leeway, end := 255, 5, "..."
	if bound[0] != absent {
		if length, err = size(bound[0], "length"); err != nil {
			return nil, err
		}
	}
	if bound[2] != absent {
		end = text(bound[2])
	}
	if n, _, isInt, _ := number(bound[3]); isInt {
		leeway = n
	} else if bound[3] != absent && bound[3] != nil {
		return nil, fmt.Errorf("leeway %s; want an integer", text(bound[3]))
	}
	s := []rune(text(value))
	keep := length - utf8.RuneCountInString(end)
	switch {
	case keep < 0 || leeway < 0:
		return nil, fmt.Errorf("length %d and leeway %d; want a length of at least that of end, and no less than 0", length, leeway)
	case len(s)-leeway <= length:
		return string(s), nil
	}
	kept := string(s[:keep])
	if at := strings.LastIndex(kept, " "); at >= 0 && !truth(bound[1]) {
		kept = kept[:at]
	}
	return kept + end, nil
}
