package jinja

import (
	"fmt"
	"math"
	"strings"
)

// number gives v as an int or as a float64; bools count as 0 and 1.
func number(v any) (i int, f float64, isInt, ok bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, 1, true, true
		}
		return 0, 0, true, true
	case int:
		return v, float64(v), true, true
	case float64:
		return 0, v, false, true
	}
	return 0, 0, false, false
}

// equal is Python's ==.
func equal(a, b any) bool {
	ai, af, aInt, aNum := number(a)
	bi, bf, bInt, bNum := number(b)
	if aNum && bNum {
		if aInt && bInt {
			return ai == bi
		}
		return af == bf
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case string:
		s, ok := b.(string)
		return ok && a == s
	case undefined:
		_, ok := b.(undefined)
		return ok
	case *List:
		l, ok := b.(*List)
		if !ok || a.Tuple != l.Tuple || len(a.Items) != len(l.Items) {
			return false
		}
		for i := range a.Items {
			if !equal(a.Items[i], l.Items[i]) {
				return false
			}
		}
		return true
	case *Dict:
		d, ok := b.(*Dict)
		if !ok || len(a.keys) != len(d.keys) {
			return false
		}
		for key, value := range a.values {
			if other, ok := d.values[key]; !ok || !equal(value, other) {
				return false
			}
		}
		return true
	case *namespace, *loop:
		return a == b
	}
	return false
}

// order is negative, 0 or positive as a is less than, equal to or greater than b; an error where Python has no order.
func order(a, b any) (int, error) {
	ai, af, aInt, aNum := number(a)
	bi, bf, bInt, bNum := number(b)
	switch {
	case aNum && bNum && aInt && bInt:
		return compareOrdered(ai, bi), nil
	case aNum && bNum:
		return compareOrdered(af, bf), nil
	}
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			return strings.Compare(x, y), nil
		}
	}
	x, xok := a.(*List)
	y, yok := b.(*List)
	if !xok || !yok || x.Tuple != y.Tuple {
		return 0, fmt.Errorf("%s and %s have no order", typeName(a), typeName(b))
	}
	for i := range min(len(x.Items), len(y.Items)) {
		if !equal(x.Items[i], y.Items[i]) {
			return order(x.Items[i], y.Items[i])
		}
	}
	return compareOrdered(len(x.Items), len(y.Items)), nil
}

func compareOrdered[T int | float64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// contains is Python's in.
func contains(in, what any) (bool, error) {
	switch in := in.(type) {
	case undefined:
		return false, nil
	case string:
		s, ok := what.(string)
		if !ok {
			return false, fmt.Errorf("%s in str; want str", typeName(what))
		}
		return strings.Contains(in, s), nil
	case *List:
		for _, item := range in.Items {
			if equal(item, what) {
				return true, nil
			}
		}
		return false, nil
	case *Dict:
		if !hashable(what) {
			return false, nil
		}
		_, ok := in.Get(what)
		return ok, nil
	}
	return false, fmt.Errorf("in %s; want a str, list or dict", typeName(in))
}

// binary is a op b for Python's arithmetic.
func (r *run) binary(op string, a, b any) (any, error) {
	wrong := fmt.Errorf("%s %s %s; want numbers, or what Python can combine so", typeName(a), op, typeName(b))
	ai, af, aInt, aNum := number(a)
	bi, bf, bInt, bNum := number(b)
	if format, ok := a.(string); ok && op == "%" {
		return percent(r, format, b)
	}
	switch {
	case aNum && bNum && aInt && bInt && op != "/" && (op != "**" || bi >= 0):
		return integers(op, ai, bi)
	case aNum && bNum:
		return floats(op, af, bf)
	case op == "*" && aInt:
		return r.repeat(b, ai, wrong)
	case op == "*" && bInt:
		return r.repeat(a, bi, wrong)
	case op != "+":
		return nil, wrong
	}
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			return x + y, r.spend(len(x) + len(y))
		}
	}
	x, xok := a.(*List)
	y, yok := b.(*List)
	if !xok || !yok || x.Tuple != y.Tuple {
		return nil, wrong
	}
	return r.list(append(append([]any{}, x.Items...), y.Items...), x.Tuple)
}

// list makes a list of a template's own.
func (r *run) list(items []any, tuple bool) (any, error) {
	l := &List{Items: items, Tuple: tuple}
	if l.weight = weigh(l); l.weight > maxOutput {
		return nil, fmt.Errorf("a list of more than %d bytes; want a shorter one", maxOutput)
	}
	return l, r.spend(16 * len(items))
}

// repeat is a string or list n times.
func (r *run) repeat(what any, n int, wrong error) (any, error) {
	n = max(n, 0)
	switch what := what.(type) {
	case string:
		if err := r.spendTimes(len(what), n); err != nil {
			return nil, err
		}
		return strings.Repeat(what, n), nil
	case *List:
		if err := r.spendTimes(weigh(what), n); err != nil {
			return nil, err
		}
		items := []any{}
		for range n {
			items = append(items, what.Items...)
		}
		return r.list(items, what.Tuple)
	}
	return nil, wrong
}

var errOverflow = fmt.Errorf("an integer beyond 64 bits; want a smaller one")

func integers(op string, a, b int) (any, error) {
	switch op {
	case "+":
		if c := a + b; (c > a) == (b > 0) {
			return c, nil
		}
		return nil, errOverflow
	case "-":
		if c := a - b; (c < a) == (b > 0) {
			return c, nil
		}
		return nil, errOverflow
	case "*":
		return multiply(a, b)
	case "**":
		return power(a, b)
	}
	if b == 0 {
		return nil, fmt.Errorf("%s by zero; want another divisor", op)
	}
	if b == -1 { // the one division that overflows
		if op == "%" {
			return 0, nil
		}
		return integers("-", 0, a)
	}
	quotient, rest := a/b, a%b
	if rest != 0 && (rest < 0) != (b < 0) {
		quotient, rest = quotient-1, rest+b
	}
	if op == "%" {
		return rest, nil
	}
	return quotient, nil
}

func multiply(a, b int) (any, error) {
	if a == 0 || b == 0 {
		return 0, nil
	}
	if c := a * b; c/b == a && !(a == -1 && b == math.MinInt) && !(b == -1 && a == math.MinInt) {
		return c, nil
	}
	return nil, errOverflow
}

func power(a, b int) (any, error) {
	if a >= -1 && a <= 1 {
		b = min(b, 2+b%2) // the same result sooner
	}
	result := any(1)
	for range b {
		var err error
		if result, err = multiply(result.(int), a); err != nil {
			return nil, err
		}
	}
	return result, nil
}

func floats(op string, a, b float64) (any, error) {
	if b == 0 && (op == "/" || op == "//" || op == "%") {
		return nil, fmt.Errorf("%s by zero; want another divisor", op)
	}
	switch op {
	case "+":
		return a + b, nil
	case "-":
		return a - b, nil
	case "*":
		return a * b, nil
	case "/":
		return a / b, nil
	case "//":
		return math.Floor(a / b), nil
	case "%":
		rest := math.Mod(a, b)
		if rest != 0 && (rest < 0) != (b < 0) {
			rest += b
		}
		return rest, nil
	case "**":
		return math.Pow(a, b), nil
	}
	panic("BUG: operator " + op)
}
