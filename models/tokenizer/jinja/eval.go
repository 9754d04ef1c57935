package jinja

import (
	"fmt"
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
		rest   expr // *rest: a list of further values; nil for none
		names  []string
		named  []expr
		more   expr // **more: a dict of further named ones; nil for none
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
