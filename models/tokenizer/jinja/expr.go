package jinja

import (
	"strconv"
	"strings"
)

// tuple parses what stands in a tag: an expression, or several with commas between, which make a tuple. conditional
// says whether "a if b else c" may stand there.
func (p *parser) tuple(conditional bool) (expr, error) {
	parse := p.or
	if conditional {
		parse = p.expression
	}
	first, err := parse()
	if err != nil || !p.is(sign, ",") {
		return first, err
	}
	items := []expr{first}
	for p.skip(sign, ",") {
		if k := p.peek(); k.kind == blockEnd || k.kind == printEnd || k.kind == sign && k.text == ")" {
			break
		}
		item, err := parse()
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return list{items, true}, nil
}

// expression parses "a if b else c" and all that binds tighter.
func (p *parser) expression() (expr, error) {
	if err := p.nested(); err != nil {
		return nil, err
	}
	defer p.leave()
	value, err := p.or()
	for err == nil && p.skip(name, "if") {
		node := conditional{then: value}
		if node.condition, err = p.or(); err != nil {
			return nil, err
		}
		if p.skip(name, "else") {
			if node.otherwise, err = p.expression(); err != nil {
				return nil, err
			}
		}
		value = node
	}
	return value, err
}

func (p *parser) or() (expr, error) {
	left, err := p.and()
	for err == nil && p.skip(name, "or") {
		var right expr
		right, err = p.and()
		left = logic{left, right, true}
	}
	return left, err
}

func (p *parser) and() (expr, error) {
	left, err := p.not()
	for err == nil && p.skip(name, "and") {
		var right expr
		right, err = p.not()
		left = logic{left, right, false}
	}
	return left, err
}

func (p *parser) not() (expr, error) {
	if !p.skip(name, "not") {
		return p.compare()
	}
	if err := p.nested(); err != nil {
		return nil, err
	}
	defer p.leave()
	value, err := p.not()
	return negation{value}, err
}

func (p *parser) compare() (expr, error) {
	first, err := p.infix(0)
	if err != nil {
		return nil, err
	}
	node := comparison{first: first}
	for {
		op := ""
		switch t := p.peek(); {
		case t.kind == sign && strings.Contains(" == != < > <= >= ", " "+t.text+" "):
			op = p.take().text
		case p.skip(name, "in"):
			op = "in"
		case p.is(name, "not") && p.tokens[p.at+1].kind == name && p.tokens[p.at+1].text == "in":
			p.at += 2
			op = "not in"
		case len(node.ops) == 0:
			return first, nil
		default:
			return node, nil
		}
		next, err := p.infix(0)
		if err != nil {
			return nil, err
		}
		node.ops, node.rest = append(node.ops, op), append(node.rest, next)
	}
}

// levels are the operators of arithmetic, those that bind less first; all group to the left.
var levels = [...]string{" + - ", " ~ ", " * / // % ", " ** "}

func (p *parser) infix(level int) (expr, error) {
	if level == len(levels) {
		return p.unary(true)
	}
	left, err := p.infix(level + 1)
	for err == nil && p.peek().kind == sign && strings.Contains(levels[level], " "+p.peek().text+" ") {
		op := p.take().text
		var right expr
		right, err = p.infix(level + 1)
		left = arithmetic{op, left, right}
	}
	return left, err
}

func (p *parser) unary(filtered bool) (expr, error) {
	if err := p.nested(); err != nil {
		return nil, err
	}
	defer p.leave()
	var value expr
	var err error
	if t := p.peek(); t.kind == sign && (t.text == "-" || t.text == "+") {
		p.at++
		value, err = p.unary(false)
		value = signed{value, t.text == "-"}
	} else if value, err = p.primary(); err == nil {
		value, err = p.postfix(value)
	}
	if err != nil || !filtered {
		return value, err
	}
	return p.filters(value)
}

func (p *parser) primary() (expr, error) {
	t := p.peek()
	switch {
	case t.kind == name && !reserved(t.text):
		p.at++
		return variable{t.text}, nil
	case t.kind == name:
		constants := map[string]any{"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil}
		if value, ok := constants[t.text]; ok {
			p.at++
			return literal{value}, nil
		}
	case t.kind == stringLit:
		var joined strings.Builder
		for p.peek().kind == stringLit {
			joined.WriteString(p.take().text)
		}
		return literal{joined.String()}, nil
	case t.kind == numberLit:
		if n, err := strconv.Atoi(t.text); err == nil {
			p.at++
			return literal{n}, nil
		}
		if f, err := strconv.ParseFloat(t.text, 64); err == nil && strings.ContainsAny(t.text, ".eE") {
			p.at++
			return literal{f}, nil
		}
		return nil, p.fail("a number of 64 bits")
	case p.skip(sign, "("):
		if p.skip(sign, ")") {
			return list{nil, true}, nil
		}
		value, err := p.tuple(true)
		if err != nil {
			return nil, err
		}
		return value, p.want(sign, ")", ")")
	case p.skip(sign, "["):
		items, err := p.items("]")
		return list{items, false}, err
	case p.skip(sign, "{"):
		return p.dict()
	}
	return nil, p.fail("an expression")
}

// items parses expressions with commas between, up to closing.
func (p *parser) items(closing string) ([]expr, error) {
	var items []expr
	for !p.skip(sign, closing) {
		if len(items) > 0 {
			if err := p.want(sign, ",", "a comma or "+closing); err != nil {
				return nil, err
			}
			if p.skip(sign, closing) {
				break
			}
		}
		item, err := p.expression()
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

func (p *parser) dict() (expr, error) {
	var d dict
	for !p.skip(sign, "}") {
		if len(d.keys) > 0 {
			if err := p.want(sign, ",", "a comma or }"); err != nil {
				return nil, err
			}
			if p.skip(sign, "}") {
				break
			}
		}
		key, err := p.expression()
		if err != nil {
			return nil, err
		}
		if err := p.want(sign, ":", ":"); err != nil {
			return nil, err
		}
		value, err := p.expression()
		if err != nil {
			return nil, err
		}
		d.keys, d.values = append(d.keys, key), append(d.values, value)
	}
	return d, nil
}
