package jinja

import "fmt"

// loop is the variable loop.
type loop struct {
	items     []any
	at, depth int
	again     function // what a call of it does, nil where the loop is not recursive
	seen      []any    // the arguments of the last call of changed
}

func (l *loop) field(name string) (any, bool) {
	n := len(l.items)
	switch name {
	case "index":
		return l.at + 1, true
	case "index0":
		return l.at, true
	case "revindex":
		return n - l.at, true
	case "revindex0":
		return n - l.at - 1, true
	case "first":
		return l.at == 0, true
	case "last":
		return l.at == n-1, true
	case "length":
		return n, true
	case "depth":
		return l.depth, true
	case "depth0":
		return l.depth - 1, true
	case "previtem":
		if l.at > 0 {
			return l.items[l.at-1], true
		}
	case "nextitem":
		if l.at < n-1 {
			return l.items[l.at+1], true
		}
	case "cycle":
		return function(func(_ *run, a args) (any, error) {
			if len(a.values) == 0 {
				return nil, fmt.Errorf("loop.cycle without values; want at least one")
			}
			return a.values[l.at%len(a.values)], nil
		}), true
	case "changed":
		return function(func(_ *run, a args) (any, error) {
			same := len(a.values) == len(l.seen) && l.seen != nil
			for i := 0; same && i < len(a.values); i++ {
				same = equal(a.values[i], l.seen[i])
			}
			l.seen = append([]any{}, a.values...)
			return !same, nil
		}), true
	}
	return nil, false
}
