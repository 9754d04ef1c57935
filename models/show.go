package models

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// show renders a JSON value for a message: scalars as written but shortened,
// lists by their first entries, objects by their first names.
func show(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return shorten(v.String())
	case string:
		return `"` + shorten(v) + `"`
	case list:
		return showEntries("[", "]", len(v), func(i int) string { return showInner(v[i]) })
	case object:
		return showEntries("{", "}", len(v), func(i int) string {
			return `"` + shorten(v[i].name) + `": ` + showInner(v[i].value)
		})
	}
	panic(fmt.Sprintf("BUG: models: JSON value of type %T", value))
}

// showInner is show without the contents of lists and objects.
func showInner(value any) string {
	switch value.(type) {
	case list:
		return "[...]"
	case object:
		return "{...}"
	}
	return show(value)
}

func showEntries(open, shut string, n int, entry func(int) string) string {
	const most = 3
	s := open
	for i := range min(n, most) {
		if i > 0 {
			s += ", "
		}
		s += entry(i)
	}
	if n > most {
		s += ", ..."
	}
	return s + shut
}
