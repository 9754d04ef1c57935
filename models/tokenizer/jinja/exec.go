package jinja

import (
	"fmt"
	"strings"
)

// stmt is a statement, or text between tags.
type stmt interface {
	exec(r *run, s *scope, out *strings.Builder) (flow, error)
}

// flow says how a statement ended.
type flow int

const (
	onward flow = iota
	broken      // {% break %}
	again       // {% continue %}
)

type (
	output struct {
		line  int
		value expr
	}
	arm struct {
		condition expr // nil for else
		body      []stmt
	}
	branch struct {
		line int
		arms []arm
	}
	forLoop struct {
		line            int
		targets         []string
		over, condition expr
		recursive       bool // loop(…) goes through the body again
		body, empty     []stmt
	}
	set struct {
		line    int
		targets []string
		field   string // of the namespace targets[0], or ""
		value   expr
	}
	with struct {
		line   int
		names  []string
		values []expr
		body   []stmt
	}
	param struct {
		name     string
		fallback expr
	}
	macro struct {
		line   int
		name   string
		params []param
		body   []stmt
	}
	callBlock struct {
		line   int
		call   call
		caller macro
	}
	jump    struct{ breaks bool }
	capture struct { // a block's text through a chain of filters
		body  []stmt
		chain expr
	}
)

// block executes statements in order until one of them jumps.
func (r *run) block(body []stmt, s *scope, out *strings.Builder) (flow, error) {
	for _, st := range body {
		if err := r.spend(0); err != nil {
			return onward, err
		}
		if f, err := st.exec(r, s, out); err != nil || f != onward {
			return f, err
		}
	}
	return onward, nil
}

// at adds the line to an error that has none yet.
func at(line int, err error) error {
	if _, ok := err.(*located); ok || err == nil {
		return err
	}
	return &located{line, err}
}

// located is an error with the line of the statement that failed.
type located struct {
	line int
	err  error
}

func (l *located) Error() string { return fmt.Sprintf("line %d: %v", l.line, l.err) }
func (l *located) Unwrap() error { return l.err }

func (st output) exec(r *run, s *scope, out *strings.Builder) (flow, error) {
	value, err := st.value.eval(r, s)
	if err != nil {
		return onward, at(st.line, err)
	}
	printed := text(value)
	if out.Len()+len(printed) > maxOutput {
		return onward, at(st.line, fmt.Errorf("a text of more than %d bytes; want a shorter one", maxOutput))
	}
	out.WriteString(printed)
	return onward, r.spend(len(printed))
}

func (st branch) exec(r *run, s *scope, out *strings.Builder) (flow, error) {
	for _, arm := range st.arms {
		if arm.condition != nil {
			holds, err := arm.condition.eval(r, s)
			if err != nil {
				return onward, at(st.line, err)
			}
			if !truth(holds) {
				continue
			}
		}
		return r.block(arm.body, s, out)
	}
	return onward, nil
}

// assign gives value to the targets: to the only one, or its items to as many.
func assign(s *scope, targets []string, value any) error {
	if len(targets) == 1 {
		s.names[targets[0]] = value
		return nil
	}
	items, err := iterate(value)
	if err == nil && len(items) != len(targets) {
		err = fmt.Errorf("%d values for %d names; want as many", len(items), len(targets))
	}
	if err != nil {
		return err
	}
	for i, target := range targets {
		s.names[target] = items[i]
	}
	return nil
}

// iterate gives what a loop over v goes through.
func iterate(v any) ([]any, error) {
	switch v := v.(type) {
	case undefined:
		return nil, nil
	case *List:
		return v.Items, nil
	case *Dict:
		return v.keys, nil
	case string:
		return characters(v), nil
	}
	return nil, fmt.Errorf("%s, which is no list; want what a loop can go through", typeName(v))
}

func (st forLoop) exec(r *run, s *scope, out *strings.Builder) (flow, error) {
	over, err := st.over.eval(r, s)
	if err != nil {
		return onward, at(st.line, err)
	}
	return st.through(r, s, over, 1, out)
}

// through goes through the items of over. depth counts a recursive loop's calls of itself, and is 1 in others.
func (st forLoop) through(r *run, s *scope, over any, depth int, out *strings.Builder) (flow, error) {
	items, err := iterate(over)
	if err == nil {
		items, err = st.chosen(r, s, items)
	}
	if err != nil {
		return onward, at(st.line, err)
	}
	if len(items) == 0 {
		return r.block(st.empty, s.inner(), out)
	}
	l := &loop{items: items, depth: depth}
	if st.recursive {
		l.again = func(r *run, a args) (any, error) {
			bound, err := a.bind(1, "iterable")
			if err != nil {
				return nil, err
			}
			return r.text(func(out *strings.Builder) (flow, error) { return st.through(r, s, bound[0], depth+1, out) })
		}
	}
	for l.at = range items {
		if err := r.spend(scopeCost); err != nil {
			return onward, at(st.line, err)
		}
		inner := s.inner()
		inner.names["loop"] = l
		if err := assign(inner, st.targets, items[l.at]); err != nil {
			return onward, at(st.line, err)
		}
		f, err := r.block(st.body, inner, out)
		if err != nil {
			return onward, err
		}
		if f == broken {
			break
		}
	}
	return onward, nil
}

// chosen are the items that the loop's condition holds for.
func (st forLoop) chosen(r *run, s *scope, items []any) ([]any, error) {
	if st.condition == nil {
		return items, nil
	}
	if err := r.spendTimes(scopeCost, len(items)); err != nil {
		return nil, err
	}
	var out []any
	for _, item := range items {
		inner := s.inner()
		if err := assign(inner, st.targets, item); err != nil {
			return nil, err
		}
		holds, err := st.condition.eval(r, inner)
		if err != nil {
			return nil, err
		}
		if truth(holds) {
			out = append(out, item)
		}
	}
	return out, nil
}

func (st set) exec(r *run, s *scope, _ *strings.Builder) (flow, error) {
	value, err := st.value.eval(r, s)
	if err != nil {
		return onward, at(st.line, err)
	}
	if st.field == "" {
		return onward, at(st.line, assign(s, st.targets, value))
	}
	ns, ok := s.get(st.targets[0]).(*namespace)
	if !ok {
		return onward, at(st.line, fmt.Errorf("a field of %s; want a namespace", st.targets[0]))
	}
	ns.fields.Set(st.field, value)
	return onward, nil
}

func (st with) exec(r *run, s *scope, out *strings.Builder) (flow, error) {
	inner := s.inner()
	for i, name := range st.names {
		value, err := st.values[i].eval(r, s)
		if err != nil {
			return onward, at(st.line, err)
		}
		inner.names[name] = value
	}
	return r.block(st.body, inner, out)
}

func (st jump) exec(*run, *scope, *strings.Builder) (flow, error) {
	if st.breaks {
		return broken, nil
	}
	return again, nil
}

func (st macro) exec(_ *run, s *scope, _ *strings.Builder) (flow, error) {
	s.names[st.name] = st.function(s)
	return onward, nil
}

// function is the macro as a value that remembers the names around it.
func (st macro) function(around *scope) function {
	names := make([]string, len(st.params), len(st.params)+1)
	for i, param := range st.params {
		names[i] = param.name
	}
	return func(r *run, a args) (any, error) {
		s := around.inner()
		bound, err := a.bind(0, append(names, "caller")...)
		if err == nil && len(a.values) > len(names) {
			err = fmt.Errorf("%d arguments; want at most %d", len(a.values), len(names))
		}
		if err != nil {
			return nil, fmt.Errorf("macro %s: %w", st.name, err)
		}
		for i, param := range st.params {
			if bound[i] == absent && param.fallback != nil {
				if bound[i], err = param.fallback.eval(r, s); err != nil {
					return nil, err
				}
			}
			s.names[param.name] = bound[i]
		}
		if caller := bound[len(names)]; caller != absent {
			s.names["caller"] = caller
		}
		return r.text(func(out *strings.Builder) (flow, error) { return r.block(st.body, s, out) })
	}
}

// text is what write writes, within a macro or a recursive loop.
func (r *run) text(write func(out *strings.Builder) (flow, error)) (any, error) {
	if r.depth >= maxMacros {
		return nil, fmt.Errorf("%d macros or loops that call each other; want fewer", maxMacros)
	}
	r.depth++
	defer func() { r.depth-- }()
	var out strings.Builder
	_, err := write(&out)
	return out.String(), err
}

func (st callBlock) exec(r *run, s *scope, out *strings.Builder) (flow, error) {
	e := st.call
	e.args.names = append(append([]string{}, e.args.names...), "caller")
	e.args.named = append(append([]expr{}, e.args.named...), literal{st.caller.function(s)})
	return output{st.line, e}.exec(r, s, out)
}

// hole is the variable that a capture's filters start from; no template can name it.
func (capture) hole() expr { return variable{" captured"} }

func (e capture) eval(r *run, s *scope) (any, error) {
	inner := s.inner()
	var out strings.Builder
	if _, err := r.block(e.body, inner, &out); err != nil {
		return nil, err
	}
	inner.names[" captured"] = out.String()
	return e.chain.eval(r, inner)
}
