package jinja

import (
	"strconv"
	"strings"
)

// postfix parses attributes, subscripts and calls of value.
func (p *parser) postfix(value expr) (expr, error) {
	for {
		var err error
		switch {
		case p.skip(sign, "."):
			t := p.take()
			n, bad := strconv.Atoi(t.text)
			switch {
			case t.kind == name:
				value = attribute{value, t.text}
			case t.kind == numberLit && bad == nil:
				value = subscript{value, literal{n}}
			default:
				p.at--
				return nil, p.fail("a name after the dot")
			}
		case p.skip(sign, "["):
			value, err = p.subscript(value)
		case p.is(sign, "("):
			var a arguments
			a, err = p.arguments()
			value = call{value, a}
		default:
			return value, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) subscript(value expr) (expr, error) {
	var bounds [3]expr
	colons := 0
	for !p.skip(sign, "]") {
		if p.skip(sign, ":") {
			if colons++; colons > 2 {
				return nil, p.fail("]")
			}
			continue
		}
		if bounds[colons] != nil {
			return nil, p.fail("]")
		}
		var err error
		if bounds[colons], err = p.expression(); err != nil {
			return nil, err
		}
	}
	if colons > 0 {
		return slice{value, bounds}, nil
	}
	if bounds[0] == nil {
		p.at--
		return nil, p.fail("an index")
	}
	return subscript{value, bounds[0]}, nil
}

func (p *parser) arguments() (a arguments, err error) {
	if err := p.want(sign, "(", "("); err != nil {
		return a, err
	}
	for n := 0; !p.skip(sign, ")"); n++ {
		if n > 0 {
			if err := p.want(sign, ",", "a comma or )"); err != nil {
				return a, err
			}
			if p.skip(sign, ")") {
				break
			}
		}
		if a.rest == nil && len(a.names) == 0 && p.skip(sign, "*") {
			if a.rest, err = p.expression(); err != nil {
				return a, err
			}
			continue
		}
		if p.skip(sign, "**") {
			if a.more, err = p.expression(); err != nil {
				return a, err
			}
			p.skip(sign, ",")
			return a, p.want(sign, ")", ")")
		}
		named := ""
		if next := p.tokens[min(p.at+1, len(p.tokens)-1)]; p.peek().kind == name && next.kind == sign && next.text == "=" {
			named = p.take().text
			p.at++
		} else if len(a.names) > 0 || a.rest != nil {
			return a, p.fail("a named argument")
		}
		value, err := p.expression()
		if err != nil {
			return a, err
		}
		if named == "" {
			a.values = append(a.values, value)
		} else {
			a.names, a.named = append(a.names, named), append(a.named, value)
		}
	}
	return a, nil
}

// filters parses the filters, tests and calls after value.
func (p *parser) filters(value expr) (expr, error) {
	for {
		var err error
		switch {
		case p.skip(sign, "|"):
			value, err = p.filter(value)
		case p.skip(name, "is"):
			value, err = p.test(value)
		case p.is(sign, "("):
			var a arguments
			a, err = p.arguments()
			value = call{value, a}
		default:
			return value, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// filter parses a filter's name and arguments. As in Jinja a name within an if block may be unknown until it is used,
// since templates ask there whether the engine has something.
func (p *parser) filter(value expr) (expr, error) {
	t := p.peek()
	f := filterNamed(t.text)
	if t.kind != name || f == nil {
		err := p.fail("a filter of chat templates")
		if t.kind != name || p.ifs == 0 {
			return nil, err
		}
		f = func(*run, any, args) (any, error) { return nil, err }
	}
	p.at++
	node := apply{word: t.text, f: f, value: value}
	var err error
	if p.is(sign, "(") {
		node.args, err = p.arguments()
	}
	return node, err
}

// test parses what follows is: a test's name and its argument, with or without brackets.
func (p *parser) test(value expr) (expr, error) {
	not := p.skip(name, "not")
	t := p.peek()
	f := testNamed(t.text)
	if t.kind != name || f == nil {
		err := p.fail("a test of chat templates")
		if t.kind != name || p.ifs == 0 {
			return nil, err
		}
		f = func(any, []any) (bool, error) { return false, err }
	}
	p.at++
	node := examine{word: t.text, f: f, value: value, not: not}
	var err error
	next := p.peek()
	switch {
	case p.is(sign, "("):
		node.args, err = p.arguments()
	case next.kind == stringLit || next.kind == numberLit || next.kind == sign && (next.text == "[" || next.text == "{"),
		next.kind == name && (!reserved(next.text) ||
			strings.Contains(" true false none True False None ", " "+next.text+" ")):
		var arg expr
		if arg, err = p.primary(); err == nil {
			arg, err = p.postfix(arg)
		}
		node.args.values = []expr{arg}
	}
	return node, err
}
