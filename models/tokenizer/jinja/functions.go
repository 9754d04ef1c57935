package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// globals are the functions that transformers gives to templates.
func globals() map[string]any {
	return map[string]any{
		"range":           function(rangeOf),
		"namespace":       function(newNamespace),
		"dict":            function(newDict),
		"raise_exception": function(raise),
		"strftime_now":    function(strftimeNow),
		"cycler":          function(newCycler),
		"joiner":          function(newJoiner),
	}
}

func rangeOf(r *run, a args) (any, error) {
	bounds := [3]int{0, 0, 1}
	if len(a.values) == 0 || len(a.values) > 3 || len(a.names) > 0 {
		return nil, fmt.Errorf("range of %d arguments; want 1 to 3", len(a.values)+len(a.names))
	}
	for i, value := range a.values {
		n, _, isInt, _ := number(value)
		if !isInt {
			return nil, fmt.Errorf("range of %s; want integers", typeName(value))
		}
		bounds[i] = n
	}
	if len(a.values) == 1 {
		bounds[0], bounds[1] = 0, bounds[0]
	}
	if bounds[2] == 0 {
		return nil, fmt.Errorf("range with step 0; want another step")
	}
	items := []any{}
	for i := bounds[0]; bounds[2] > 0 && i < bounds[1] || bounds[2] < 0 && i > bounds[1]; i += bounds[2] {
		if len(items) == maxRange {
			return nil, fmt.Errorf("range of more than %d numbers; want fewer", maxRange)
		}
		items = append(items, i)
		if next := i + bounds[2]; (next > i) != (bounds[2] > 0) {
			break // beyond the integers
		}
	}
	return r.list(items, false)
}

func newNamespace(_ *run, a args) (any, error) {
	d, err := dictOf(a)
	if err != nil {
		return nil, err
	}
	return &namespace{*d}, nil
}

func newDict(_ *run, a args) (any, error) { return dictOf(a) }

// dictOf is Python's dict: of another dict, or of pairs, with named arguments after it.
func dictOf(a args) (*Dict, error) {
	d := &Dict{}
	if len(a.values) > 1 {
		return nil, fmt.Errorf("dict of %d values; want at most one", len(a.values))
	}
	for _, value := range a.values {
		from, ok := value.(*Dict)
		if !ok {
			return nil, fmt.Errorf("dict of %s; want a dict or named arguments", typeName(value))
		}
		for _, key := range from.keys {
			d.Set(key, from.at(key))
		}
	}
	for i, name := range a.names {
		d.Set(name, a.named[i])
	}
	return d, nil
}

func raise(_ *run, a args) (any, error) {
	bound, err := a.bind(1, "message")
	if err != nil {
		return nil, err
	}
	return nil, &Raised{text(bound[0])}
}

func strftimeNow(r *run, a args) (any, error) {
	bound, err := a.bind(1, "format")
	if err != nil {
		return nil, err
	}
	return strftime(r.options.Now, text(bound[0]))
}

// cycler gives its values in turns.
type cycler struct {
	values []any
	at     int
}

func newCycler(_ *run, a args) (any, error) {
	if len(a.values) == 0 || len(a.names) > 0 {
		return nil, fmt.Errorf("cycler of %d values; want at least one", len(a.values))
	}
	return &cycler{values: a.values}, nil
}

func (c *cycler) field(name string) (any, bool) {
	current := c.values[c.at]
	switch name {
	case "current":
		return current, true
	case "next":
		return function(func(*run, args) (any, error) {
			current := c.values[c.at]
			c.at = (c.at + 1) % len(c.values)
			return current, nil
		}), true
	case "reset":
		return function(func(*run, args) (any, error) {
			c.at = 0
			return nil, nil
		}), true
	}
	return nil, false
}

// newJoiner makes a function that gives nothing when it is called first, and then a separator.
func newJoiner(_ *run, a args) (any, error) {
	bound, err := a.bind(0, "sep")
	if err != nil {
		return nil, err
	}
	sep, used := bound[0], false
	if sep == absent {
		sep = ", "
	}
	return function(func(*run, args) (any, error) {
		if used {
			return sep, nil
		}
		used = true
		return "", nil
	}), nil
}

// strftime writes now as Python does in the C locale; directives that it does not know are an error.
func strftime(now time.Time, format string) (string, error) {
	layouts := map[rune]string{
		'Y': "2006", 'm': "01", 'd': "02", 'H': "15", 'M': "04", 'S': "05", 'j': "002", 'a': "Mon", 'A': "Monday", 'b': "Jan",
		'h': "Jan", 'B': "January",
		'y': "06", 'p': "PM", 'I': "03", 'e': "_2", 'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'D': "01/02/06",
		'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05",
	}
	numbered := map[rune]func(time.Time) string{
		'u': func(t time.Time) string { return strconv.Itoa((int(t.Weekday())+6)%7 + 1) },
		'w': func(t time.Time) string { return strconv.Itoa(int(t.Weekday())) },
		'U': func(t time.Time) string { return fmt.Sprintf("%02d", (t.YearDay()+6-int(t.Weekday()))/7) },
		'W': func(t time.Time) string { return fmt.Sprintf("%02d", (t.YearDay()+6-(int(t.Weekday())+6)%7)/7) },
		'G': func(t time.Time) string { year, _ := t.ISOWeek(); return strconv.Itoa(year) },
		'V': func(t time.Time) string { _, week := t.ISOWeek(); return fmt.Sprintf("%02d", week) },
		'C': func(t time.Time) string { return fmt.Sprintf("%02d", t.Year()/100) },
		'n': func(time.Time) string { return "\n" },
		't': func(time.Time) string { return "\t" },
		'z': func(time.Time) string { return "" }, // of a time without a zone, as datetime.now() is
		'Z': func(time.Time) string { return "" },
	}
	unpadded := map[rune]string{'d': "2", 'm': "1", 'I': "3", 'e': "2"}
	var out strings.Builder
	for rest := format; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		rest = rest[size:]
		if r != '%' {
			out.WriteRune(r)
			continue
		}
		table := layouts
		if strings.HasPrefix(rest, "-") {
			table, rest = unpadded, rest[1:]
		}
		r, size = utf8.DecodeRuneInString(rest)
		rest = rest[size:]
		layout, ok := table[r]
		switch {
		case r == '%':
			out.WriteByte('%')
		case numbered[r] != nil && table['Y'] != "":
			fmt.Fprint(&out, numbered[r](now))
		case r == 'f':
			fmt.Fprintf(&out, "%06d", now.Nanosecond()/1000)
		case ok:
			out.WriteString(now.Format(layout))
		default:
			return "", fmt.Errorf("the time format %q; want directives such as %%d %%b %%Y", format)
		}
	}
	return out.String(), nil
}
