package jinja

import (
	"fmt"
	"strings"
)

// expr is an expression.
type expr interface {
	eval(r *run, s *scope) (any, error)
}

// run is one rendering.
type run struct {
	options Options
	budget  int // what may still be done, in steps of about a microsecond
	depth   int // macros that call macros
}

// spend takes the cost of making n bytes, and one step, off the budget.
func (r *run) spend(n int) error {
	if r.budget -= 1 + n/64; r.budget < 0 {
		return fmt.Errorf("the template does more than %d steps; want one that ends sooner", maxSteps)
	}
	return nil
}

// spendTimes is spend(n*times) without overflow.
func (r *run) spendTimes(n, times int) error {
	if n > 0 && times > maxSteps*64/n {
		times = maxSteps*64/n + 64
	}
	return r.spend(n * times)
}

// scope holds the names of a block; those of the blocks around are seen through it.
type scope struct {
	names map[string]any
	outer *scope
}

func (s *scope) inner() *scope { return &scope{map[string]any{}, s} }

func (s *scope) get(name string) any {
	for ; s != nil; s = s.outer {
		if value, ok := s.names[name]; ok {
			return value
		}
	}
	return undefined{name}
}

type (
	literal     struct{ value any }
	variable    struct{ name string }
	conditional struct{ condition, then, otherwise expr }
	logic       struct {
		left, right expr
		or          bool
	}
	negation   struct{ value expr }
	comparison struct {
		first expr
		ops   []string
		rest  []expr
	}
	arithmetic struct {
		op          string
		left, right expr
	}
	signed struct {
		value expr
		minus bool
	}
	list struct {
		items []expr
		tuple bool
	}
	dict      struct{ keys, values []expr }
	attribute struct {
		value expr
		name  string
	}
	subscript struct{ value, index expr }
	slice     struct {
		value  expr
		bounds [3]expr
	}
	arguments struct {
		values []expr
		names  []string
		named  []expr
	}
	call struct {
		callee expr
		args   arguments
	}
	apply struct {
		word  string
		f     filterFunc
		value expr
		args  arguments
	}
	examine struct {
		word  string
		f     testFunc
		value expr
		args  arguments
		not   bool
	}
)

func (e literal) eval(*run, *scope) (any, error)      { return e.value, nil }
func (e variable) eval(_ *run, s *scope) (any, error) { return s.get(e.name), nil }

func (e conditional) eval(r *run, s *scope) (any, error) {
	condition, err := e.condition.eval(r, s)
	switch {
	case err != nil:
		return nil, err
	case truth(condition):
		return e.then.eval(r, s)
	case e.otherwise == nil:
		return undefined{"the else of a condition"}, nil
	}
	return e.otherwise.eval(r, s)
}

func (e logic) eval(r *run, s *scope) (any, error) {
	left, err := e.left.eval(r, s)
	if err != nil || truth(left) == e.or {
		return left, err
	}
	return e.right.eval(r, s)
}

func (e negation) eval(r *run, s *scope) (any, error) {
	value, err := e.value.eval(r, s)
	return !truth(value), err
}

func (e comparison) eval(r *run, s *scope) (any, error) {
	left, err := e.first.eval(r, s)
	for i, op := range e.ops {
		if err != nil {
			return nil, err
		}
		var right any
		if right, err = e.rest[i].eval(r, s); err != nil {
			return nil, err
		}
		if err := r.spend(weigh(left) + weigh(right)); err != nil {
			return nil, err
		}
		holds, err := compare(op, left, right)
		if err != nil || !holds {
			return false, err
		}
		left = right
	}
	return true, err
}

func compare(op string, left, right any) (bool, error) {
	switch op {
	case "==":
		return equal(left, right), nil
	case "!=":
		return !equal(left, right), nil
	case "in", "not in":
		in, err := contains(right, left)
		return in == (op == "in"), err
	}
	sign, err := order(left, right)
	switch op {
	case "<":
		return sign < 0, err
	case ">":
		return sign > 0, err
	case "<=":
		return sign <= 0, err
	case ">=":
		return sign >= 0, err
	}
	panic("BUG: operator " + op)
}

func (e arithmetic) eval(r *run, s *scope) (any, error) {
	left, err := e.left.eval(r, s)
	if err != nil {
		return nil, err
	}
	right, err := e.right.eval(r, s)
	if err != nil {
		return nil, err
	}
	if e.op == "~" {
		joined := text(left) + text(right)
		return joined, r.spend(len(joined))
	}
	return r.binary(e.op, left, right)
}

func (e signed) eval(r *run, s *scope) (any, error) {
	value, err := e.value.eval(r, s)
	if err != nil {
		return nil, err
	}
	i, f, isInt, ok := number(value)
	switch {
	case !ok:
		return nil, fmt.Errorf("the sign of %s; want a number", typeName(value))
	case isInt && e.minus:
		return integers("-", 0, i)
	case isInt:
		return i, nil
	case e.minus:
		return -f, nil
	}
	return f, nil
}

func evalAll(r *run, s *scope, list []expr) ([]any, error) {
	if err := r.spend(16 * len(list)); err != nil {
		return nil, err
	}
	out := make([]any, len(list))
	for i, e := range list {
		var err error
		if out[i], err = e.eval(r, s); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (e list) eval(r *run, s *scope) (any, error) {
	items, err := evalAll(r, s, e.items)
	if err != nil {
		return nil, err
	}
	return r.list(items, e.tuple)
}

func (e dict) eval(r *run, s *scope) (any, error) {
	keys, err := evalAll(r, s, e.keys)
	if err != nil {
		return nil, err
	}
	values, err := evalAll(r, s, e.values)
	if err != nil {
		return nil, err
	}
	d := &Dict{}
	for i, key := range keys {
		if !hashable(key) {
			return nil, fmt.Errorf("%s as a key; want a string, number, bool or none", typeName(key))
		}
		d.Set(key, values[i])
	}
	if d.weight = weigh(d); d.weight > maxOutput {
		return nil, fmt.Errorf("a dict of more than %d bytes; want a shorter one", maxOutput)
	}
	return d, nil
}

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
	case *Dict:
		if m, ok := methodOf(value, name); ok {
			return m, nil
		}
		if field, ok := v.Get(name); ok {
			return field, nil
		}
	default:
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

// args are evaluated arguments.
type args struct {
	values []any
	names  []string
	named  []any
}

func (e arguments) evaluate(r *run, s *scope) (a args, err error) {
	if a.values, err = evalAll(r, s, e.values); err != nil {
		return a, err
	}
	a.names = e.names
	a.named, err = evalAll(r, s, e.named)
	return a, err
}

// bind orders arguments by the names of the parameters; what is not given is absent. required is how many must be given.
func (a args) bind(required int, names ...string) ([]any, error) {
	if len(a.values) > len(names) {
		return nil, fmt.Errorf("%d arguments; want at most %d", len(a.values), len(names))
	}
	bound := make([]any, len(names))
	for i := range bound {
		bound[i] = absent
	}
	copy(bound, a.values)
next:
	for i, given := range a.names {
		for j, name := range names {
			if name == given && bound[j] == absent {
				bound[j] = a.named[i]
				continue next
			}
		}
		return nil, fmt.Errorf("the argument %s; want one of %v, once", given, names)
	}
	for i := range required {
		if bound[i] == absent {
			return nil, fmt.Errorf("no argument %s; want one", names[i])
		}
	}
	return bound, nil
}

// absent stands for an argument that was not given.
var absent any = undefined{"an argument that was not given"}

func (e call) eval(r *run, s *scope) (any, error) {
	callee, err := e.callee.eval(r, s)
	if err != nil {
		return nil, err
	}
	f, ok := callee.(function)
	if !ok {
		return nil, fmt.Errorf("the call of %s; want a function", typeName(callee))
	}
	a, err := e.args.evaluate(r, s)
	if err != nil {
		return nil, err
	}
	return f(r, a)
}

func (e apply) eval(r *run, s *scope) (any, error) {
	value, err := e.value.eval(r, s)
	if err != nil {
		return nil, err
	}
	a, err := e.args.evaluate(r, s)
	if err != nil {
		return nil, err
	}
	result, err := e.f(r, value, a)
	if err != nil {
		return nil, fmt.Errorf("filter %s: %w", e.word, err)
	}
	if s, ok := result.(string); ok {
		return s, r.spend(len(s))
	}
	return result, r.spend(0)
}

func (e examine) eval(r *run, s *scope) (any, error) {
	value, err := e.value.eval(r, s)
	if err != nil {
		return nil, err
	}
	a, err := e.args.evaluate(r, s)
	if err != nil {
		return nil, err
	}
	holds, err := e.f(value, a.values)
	if err != nil {
		return nil, fmt.Errorf("test %s: %w", e.word, err)
	}
	return holds != e.not, nil
}
