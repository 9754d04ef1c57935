package jinja

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// partition is the text before a separator, the separator, and the text behind it, as a tuple. Without a separator the
// whole text stands first, or last.
func partition(index func(s, sep string) int, last bool) stringMethod {
	return func(s string, a args) (any, error) {
		bound, err := a.bind(1, "sep")
		if err != nil {
			return nil, err
		}
		sep, err := str(bound[0])
		if err == nil && sep == "" {
			err = fmt.Errorf("an empty separator; want one")
		}
		if err != nil {
			return nil, err
		}
		if at := index(s, sep); at >= 0 {
			return &List{Items: []any{s[:at], sep, s[at+len(sep):]}, Tuple: true}, nil
		}
		if last {
			return &List{Items: []any{"", "", s}, Tuple: true}, nil
		}
		return &List{Items: []any{s, "", ""}, Tuple: true}, nil
	}
}

// listMethod is count or index of a list: how often a value is in it, and where first.
func listMethod(r *run, l *List, name string, a args) (any, error) {
	bound, err := a.bind(1, "value")
	if err == nil {
		err = r.spend(weigh(l) + weigh(bound[0]))
	}
	if err != nil {
		return nil, err
	}
	n := 0
	for i, item := range l.Items {
		if !equal(item, bound[0]) {
			continue
		}
		if name == "index" {
			return i, nil
		}
		n++
	}
	if name == "index" {
		return nil, fmt.Errorf("index of %s, which is not in the list; want a value in it", text(bound[0]))
	}
	return n, nil
}

// pad fills a text up to a width: left is how many of the missing characters stand before it.
func pad(left func(more, width int) int) stringMethod {
	return func(s string, a args) (any, error) {
		bound, err := a.bind(1, "width", "fillchar")
		if err != nil {
			return nil, err
		}
		fill := " "
		if bound[1] != absent {
			if fill, err = str(bound[1]); err == nil && utf8.RuneCountInString(fill) != 1 {
				err = fmt.Errorf("the fill %q; want one character", fill)
			}
			if err != nil {
				return nil, err
			}
		}
		width, err := size(bound[0], "width")
		if err != nil {
			return nil, err
		}
		more := max(width-utf8.RuneCountInString(s), 0)
		before := left(more, width)
		return strings.Repeat(fill, before) + s + strings.Repeat(fill, more-before), nil
	}
}

// zeroFill puts zeros before a number, behind its sign.
func zeroFill(s string, a args) (any, error) {
	bound, err := a.bind(1, "width")
	if err != nil {
		return nil, err
	}
	width, err := size(bound[0], "width")
	if err != nil {
		return nil, err
	}
	sign := ""
	if strings.HasPrefix(s, "-") || strings.HasPrefix(s, "+") {
		sign, s = s[:1], s[1:]
	}
	return sign + strings.Repeat("0", max(width-len(sign)-utf8.RuneCountInString(s), 0)) + s, nil
}
