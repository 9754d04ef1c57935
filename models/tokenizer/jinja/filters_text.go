package jinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// symbolTests are tests whose names are no words; only select and its like can name them.
var symbolTests = map[string]testFunc{
	"==": comparisonTest("=="), "!=": comparisonTest("!="), "<": comparisonTest("<"), ">": comparisonTest(">"),
	"<=": comparisonTest("<="), ">=": comparisonTest(">="),
}

// testNamed is the test with this name, nil when there is none.
func testNamed(name string) testFunc {
	if f, ok := testTable[name]; ok {
		return f
	}
	switch name { // not in the table, which filters look into
	case "filter":
		return kindTest(func(v any) bool { return filterNamed(text(v)) != nil })
	case "test":
		return kindTest(func(v any) bool { return testNamed(text(v)) != nil })
	}
	return symbolTests[name]
}

func filterInt(_ *run, value any, a args) (any, error) {
	bound, err := a.bind(0, "default", "base")
	if err != nil {
		return nil, err
	}
	if bound[1] != absent {
		return nil, fmt.Errorf("a base; want none")
	}
	i, f, isInt, ok := number(value)
	switch s, isText := value.(string); {
	case isInt:
		return i, nil
	case isText:
		s = strings.TrimFunc(s, space)
		if n, err := strconv.Atoi(s); err == nil {
			return n, nil
		}
		f, err = strconv.ParseFloat(s, 64)
		ok = err == nil
	}
	if ok && math.Abs(f) < 1<<62 {
		return int(f), nil
	}
	if bound[0] != absent {
		return bound[0], nil
	}
	return 0, nil
}

func filterFloat(_ *run, value any, a args) (any, error) {
	bound, err := a.bind(0, "default")
	if err != nil {
		return nil, err
	}
	if _, f, _, ok := number(value); ok {
		return f, nil
	}
	if s, ok := value.(string); ok {
		if f, err := strconv.ParseFloat(strings.TrimFunc(s, space), 64); err == nil {
			return f, nil
		}
	}
	if bound[0] != absent {
		return bound[0], nil
	}
	return 0.0, nil
}

func filterRound(_ *run, value any, a args) (any, error) {
	bound, err := a.bind(0, "precision", "method")
	if err != nil {
		return nil, err
	}
	_, f, _, ok := number(value)
	digits, _, isInt, _ := number(bound[0])
	if bound[0] == absent {
		digits, isInt = 0, true
	}
	if !ok || !isInt || digits < 0 || digits > 15 {
		return nil, fmt.Errorf("%s to %s digits; want a number, to 0 to 15", typeName(value), text(bound[0]))
	}
	scale := math.Pow10(digits)
	method := "common"
	if bound[1] != absent {
		method = text(bound[1])
	}
	switch method {
	case "common": // as Python: the decimal that is nearest to the exact value, ties to even
		return strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
	case "ceil":
		return math.Ceil(f*scale) / scale, nil
	case "floor":
		return math.Floor(f*scale) / scale, nil
	}
	return nil, fmt.Errorf("the method %s; want common, ceil or floor", method)
}

func filterIndent(_ *run, value any, a args) (any, error) {
	bound, err := a.bind(0, "width", "first", "blank")
	if err != nil {
		return nil, err
	}
	by := strings.Repeat(" ", 4)
	if n, _, isInt, _ := number(bound[0]); isInt && n <= 1000 {
		by = strings.Repeat(" ", max(n, 0))
	} else if s, ok := bound[0].(string); ok {
		by = s
	} else if bound[0] != absent {
		return nil, fmt.Errorf("width %s; want up to 1000, or a string", text(bound[0]))
	}
	lines := strings.Split(text(value), "\n")
	if size := len(lines) * len(by); size > maxOutput {
		return nil, fmt.Errorf("a text of %d bytes; want at most %d", size, maxOutput)
	}
	for i, line := range lines {
		if i == 0 && !truth(bound[1]) || i > 0 && line == "" && !truth(bound[2]) {
			continue
		}
		lines[i] = by + line
	}
	return strings.Join(lines, "\n"), nil
}
