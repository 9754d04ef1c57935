package jinja

import (
	"fmt"
	"slices"
)

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
	if e.rest != nil {
		rest, err := e.rest.eval(r, s)
		if err != nil {
			return a, err
		}
		items, err := iterate(rest)
		if err != nil {
			return a, err
		}
		if err := r.spend(16 * len(items)); err != nil {
			return a, err
		}
		a.values = append(a.values, items...)
	}
	a.names = e.names
	if a.named, err = evalAll(r, s, e.named); err != nil || e.more == nil {
		return a, err
	}
	more, err := e.more.eval(r, s)
	if err != nil {
		return a, err
	}
	d, ok := more.(*Dict)
	if !ok {
		return a, fmt.Errorf("** before %s; want a dict", typeName(more))
	}
	a.names = slices.Clone(a.names)
	for key, value := range d.All() {
		name, ok := key.(string)
		if !ok || slices.Contains(a.names, name) {
			return a, fmt.Errorf("** before a dict with the key %s; want other names of arguments", text(key))
		}
		a.names, a.named = append(a.names, name), append(a.named, value)
	}
	return a, r.spend(16 * len(d.keys))
}

// bind orders arguments by the names of the parameters; what is not given is absent. required is how many must be
// given.
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
	if l, isLoop := callee.(*loop); isLoop {
		f, ok = l.again, l.again != nil
	}
	if !ok {
		return nil, fmt.Errorf("the call of %s; want a function", typeName(callee))
	}
	a, err := e.args.evaluate(r, s)
	if err != nil {
		return nil, err
	}
	return f(r, a)
}

// beside evaluates the value of a filter or test, and then its arguments.
func (a arguments) beside(of expr, r *run, s *scope) (value any, evaluated args, err error) {
	if value, err = of.eval(r, s); err == nil {
		evaluated, err = a.evaluate(r, s)
	}
	return value, evaluated, err
}

func (e apply) eval(r *run, s *scope) (any, error) {
	value, a, err := e.args.beside(e.value, r, s)
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
	value, a, err := e.args.beside(e.value, r, s)
	if err != nil {
		return nil, err
	}
	holds, err := e.f(value, a.values)
	if err != nil {
		return nil, fmt.Errorf("test %s: %w", e.word, err)
	}
	return holds != e.not, nil
}
