package jinja

import (
	"fmt"
	"strings"
)

type testFunc func(value any, args []any) (bool, error)

// testTable are the tests: what may follow is.
var testTable = map[string]testFunc{
	"defined":   kindTest(func(v any) bool { return !isUndefined(v) }),
	"undefined": kindTest(isUndefined),
	"none":      kindTest(func(v any) bool { return v == nil }),
	"boolean":   kindTest(func(v any) bool { return isA[bool](v) }),
	"true":      kindTest(func(v any) bool { return isA[bool](v) && truth(v) }),
	"false":     kindTest(func(v any) bool { return isA[bool](v) && !truth(v) }),
	"integer":   kindTest(isA[int]),
	"float":     kindTest(isA[float64]),
	"number":    kindTest(func(v any) bool { _, _, _, ok := number(v); return ok }),
	"string":    kindTest(isA[string]),
	"mapping":   kindTest(isA[*Dict]),
	"iterable":  kindTest(func(v any) bool { _, err := iterate(v); return err == nil }),
	"sequence": kindTest(func(v any) bool {
		return isA[string](v) || isA[*List](v) || isA[*Dict](v) ||
			isUndefined(v)
	}),
	"callable": kindTest(isA[function]),
	"lower": kindTest(func(v any) bool {
		return strings.ToLower(text(v)) == text(v) &&
			strings.ToUpper(text(v)) != text(v)
	}),
	"upper": kindTest(func(v any) bool {
		return strings.ToUpper(text(v)) == text(v) &&
			strings.ToLower(text(v)) != text(v)
	}),
	"odd":         remainderTest(func(n, _ int) bool { return n&1 == 1 }, 0),
	"even":        remainderTest(func(n, _ int) bool { return n&1 == 0 }, 0),
	"divisibleby": remainderTest(func(n, by int) bool { return n%by == 0 }, 1),
	"eq":          comparisonTest("=="), "equalto": comparisonTest("=="),
	"ne": comparisonTest("!="), "lt": comparisonTest("<"), "lessthan": comparisonTest("<"), "gt": comparisonTest(">"),
	"greaterthan": comparisonTest(">"),
	"le":          comparisonTest("<="), "ge": comparisonTest(">="), "in": comparisonTest("in"),
	"sameas": func(value any, args []any) (bool, error) {
		if len(args) != 1 {
			return false, fmt.Errorf("%d arguments; want 1", len(args))
		}
		return typeName(value) == typeName(args[0]) && equal(value, args[0]), nil
	},
}

func isA[T any](v any) bool {
	_, ok := v.(T)
	return ok
}

func isUndefined(v any) bool { return isA[undefined](v) }

// kindTest is a test without arguments.
func kindTest(holds func(any) bool) testFunc {
	return func(value any, args []any) (bool, error) {
		if len(args) > 0 {
			return false, fmt.Errorf("%d arguments; want none", len(args))
		}
		return holds(value), nil
	}
}

// comparisonTest is a test that an operator makes.
func comparisonTest(op string) testFunc {
	return func(value any, args []any) (bool, error) {
		if len(args) != 1 {
			return false, fmt.Errorf("%d arguments; want 1", len(args))
		}
		return compare(op, value, args[0])
	}
}

// remainderTest is a test of an integer, with n arguments, integers other than 0.
func remainderTest(holds func(n, by int) bool, n int) testFunc {
	return func(value any, args []any) (bool, error) {
		if len(args) != n {
			return false, fmt.Errorf("%d arguments; want %d", len(args), n)
		}
		by := 1
		for _, arg := range args {
			divisor, _, isInt, _ := number(arg)
			if !isInt || divisor == 0 {
				return false, fmt.Errorf("by %s; want an integer other than 0", text(arg))
			}
			by = divisor
		}
		i, _, isInt, _ := number(value)
		if !isInt {
			return false, fmt.Errorf("of %s; want an integer", typeName(value))
		}
		return holds(i, by), nil
	}
}
