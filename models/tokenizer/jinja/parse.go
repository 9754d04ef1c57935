package jinja

import (
	"fmt"
	"slices"
)

const maxNesting = 200 // of expressions and of blocks

// parser reads tokens. Its first mistake ends the parse.
type parser struct {
	tokens []token
	at     int
	depth  int
	loops  int // for blocks around
	ifs    int // if blocks around
}

func (p *parser) peek() token { return p.tokens[p.at] }

// take gives the next token; past the end it stays at the end.
func (p *parser) take() token {
	t := p.tokens[p.at]
	if t.kind != end {
		p.at++
	}
	return t
}

// is tells whether the next token is this sign or word.
func (p *parser) is(k kind, text string) bool {
	t := p.peek()
	return t.kind == k && t.text == text
}

// skip passes the next token if it is this sign or word.
func (p *parser) skip(k kind, text string) bool {
	if p.is(k, text) {
		p.at++
		return true
	}
	return false
}

func (p *parser) fail(wants string) error {
	t := p.peek()
	has := fmt.Sprintf("%q", t.text)
	switch t.kind {
	case blockEnd, printEnd:
		has = "the end of the tag"
	case end:
		has = "the end of the template"
	case data:
		has = "text"
	}
	return fmt.Errorf("line %d: %s; want %s", t.line, has, wants)
}

func (p *parser) want(k kind, text, wants string) error {
	if !p.skip(k, text) {
		return p.fail(wants)
	}
	return nil
}

// nested guards what calls itself: call it at the start, and leave when done.
func (p *parser) nested() error {
	if p.depth++; p.depth > maxNesting {
		return fmt.Errorf("line %d: more than %d levels; want fewer", p.peek().line, maxNesting)
	}
	return nil
}

func (p *parser) leave() { p.depth-- }

// block parses up to a tag whose word is among ends, and passes that word; at the top there is none, and the template's
// end ends it.
func (p *parser) block(ends ...string) (body []stmt, word string, err error) {
	if err := p.nested(); err != nil {
		return nil, "", err
	}
	defer p.leave()
	for {
		t := p.take()
		switch t.kind {
		case end:
			if len(ends) > 0 {
				return nil, "", p.fail(fmt.Sprintf("a tag among %v", ends))
			}
			return body, "", nil
		case data:
			body = append(body, output{line: t.line, value: literal{t.text}})
			continue
		case printBegin:
			value, err := p.tuple(true)
			if err != nil {
				return nil, "", err
			}
			if err := p.want(printEnd, "", "}}"); err != nil {
				return nil, "", err
			}
			body = append(body, output{line: t.line, value: value})
			continue
		}
		word := p.take()
		if word.kind == name && slices.Contains(ends, word.text) {
			return body, word.text, nil
		}
		s, err := p.statement(word)
		if err != nil {
			return nil, "", err
		}
		body = append(body, s)
	}
}

// statement parses the rest of the tag that begins with word, and its block.
func (p *parser) statement(word token) (stmt, error) {
	switch word.text {
	case "if":
		return p.parseIf(word.line)
	case "for":
		return p.parseFor(word.line)
	case "set":
		return p.parseSet(word.line)
	case "macro":
		return p.parseMacro(word.line)
	case "call":
		return p.parseCall(word.line)
	case "filter":
		return p.parseFilterBlock(word.line)
	case "with":
		return p.parseWith(word.line)
	case "generation":
		if err := p.endTag(); err != nil {
			return nil, err
		}
		body, err := p.body("endgeneration")
		return with{line: word.line, body: body}, err
	case "break", "continue":
		if p.loops == 0 {
			return nil, fmt.Errorf("line %d: %s outside of a loop; want it in one", word.line, word.text)
		}
		return jump{word.text == "break"}, p.endTag()
	}
	return nil, fmt.Errorf("line %d: the tag %q; want if, for, set, macro, call, filter, with, generation, raw, break or continue", word.line, word.text)
}

func (p *parser) endTag() error { return p.want(blockEnd, "", "the end of the tag") }

// body parses a block up to its one ending tag.
func (p *parser) body(ending string) ([]stmt, error) {
	body, _, err := p.block(ending)
	if err != nil {
		return nil, err
	}
	return body, p.endTag()
}

func (p *parser) parseIf(line int) (stmt, error) {
	node := branch{line: line}
	p.ifs++
	defer func() { p.ifs-- }()
	for word := "if"; word != "endif"; {
		var arm arm
		var err error
		if word != "else" {
			if arm.condition, err = p.tuple(false); err != nil {
				return nil, err
			}
		}
		if err := p.endTag(); err != nil {
			return nil, err
		}
		ends := []string{"elif", "else", "endif"}
		if word == "else" {
			ends = ends[2:]
		}
		if arm.body, word, err = p.block(ends...); err != nil {
			return nil, err
		}
		node.arms = append(node.arms, arm)
	}
	return node, p.endTag()
}

func (p *parser) parseFor(line int) (stmt, error) {
	node := forLoop{line: line}
	var err error
	if node.targets, err = p.targets(); err != nil {
		return nil, err
	}
	if err = p.want(name, "in", "in"); err != nil {
		return nil, err
	}
	if node.over, err = p.tuple(false); err != nil {
		return nil, err
	}
	if p.skip(name, "if") {
		if node.condition, err = p.expression(); err != nil {
			return nil, err
		}
	}
	node.recursive = p.skip(name, "recursive")
	if err = p.endTag(); err != nil {
		return nil, err
	}
	p.loops++
	var word string
	node.body, word, err = p.block("else", "endfor")
	p.loops--
	if err != nil {
		return nil, err
	}
	if err = p.endTag(); err != nil {
		return nil, err
	}
	if word == "else" {
		node.empty, err = p.body("endfor")
	}
	return node, err
}

// targets are the names that a loop or a set assigns to; more than one unpack a list.
func (p *parser) targets() ([]string, error) {
	bracket := p.skip(sign, "(")
	var names []string
	for {
		if p.peek().kind != name || reserved(p.peek().text) {
			return nil, p.fail("a name")
		}
		names = append(names, p.take().text)
		if !p.skip(sign, ",") {
			break
		}
	}
	if bracket {
		return names, p.want(sign, ")", ")")
	}
	return names, nil
}

func reserved(word string) bool {
	return slices.Contains([]string{"and", "or", "not", "in", "is", "if", "else", "true", "false", "none", "True", "False",
		"None"}, word)
}

func (p *parser) parseSet(line int) (stmt, error) {
	node := set{line: line}
	var err error
	if node.targets, err = p.targets(); err != nil {
		return nil, err
	}
	if len(node.targets) == 1 && p.skip(sign, ".") {
		if p.peek().kind != name {
			return nil, p.fail("a name")
		}
		node.field = p.take().text
	}
	if p.skip(sign, "=") {
		if node.value, err = p.tuple(true); err != nil {
			return nil, err
		}
		return node, p.endTag()
	}
	if len(node.targets) > 1 {
		return nil, p.fail("=")
	}
	captured := capture{}
	if captured.chain, err = p.filters(captured.hole()); err != nil {
		return nil, err
	}
	if err = p.endTag(); err != nil {
		return nil, err
	}
	captured.body, err = p.body("endset")
	node.value = captured
	return node, err
}

func (p *parser) parseFilterBlock(line int) (stmt, error) {
	captured := capture{}
	chain, err := p.filter(captured.hole())
	if err == nil {
		captured.chain, err = p.filters(chain)
	}
	if err == nil {
		err = p.endTag()
	}
	if err != nil {
		return nil, err
	}
	captured.body, err = p.body("endfilter")
	return output{line: line, value: captured}, err
}

func (p *parser) parseWith(line int) (stmt, error) {
	node := with{line: line}
	for p.peek().kind == name {
		node.names = append(node.names, p.take().text)
		if err := p.want(sign, "=", "="); err != nil {
			return nil, err
		}
		value, err := p.expression()
		if err != nil {
			return nil, err
		}
		node.values = append(node.values, value)
		if !p.skip(sign, ",") {
			break
		}
	}
	if err := p.endTag(); err != nil {
		return nil, err
	}
	var err error
	node.body, err = p.body("endwith")
	return node, err
}

func (p *parser) parseMacro(line int) (stmt, error) {
	node := macro{line: line}
	if p.peek().kind != name {
		return nil, p.fail("a name")
	}
	node.name = p.take().text
	var err error
	if err = p.parameters(&node); err != nil {
		return nil, err
	}
	if err = p.endTag(); err != nil {
		return nil, err
	}
	node.body, err = p.macroBody("endmacro")
	return node, err
}

// macroBody parses a block in which there is no loop around.
func (p *parser) macroBody(ending string) ([]stmt, error) {
	loops := p.loops
	p.loops = 0
	defer func() { p.loops = loops }()
	return p.body(ending)
}

func (p *parser) parameters(m *macro) error {
	if err := p.want(sign, "(", "("); err != nil {
		return err
	}
	for !p.skip(sign, ")") {
		if len(m.params) > 0 {
			if err := p.want(sign, ",", ", or )"); err != nil {
				return err
			}
		}
		if p.peek().kind != name {
			return p.fail("a parameter's name")
		}
		param := param{name: p.take().text}
		if p.skip(sign, "=") {
			var err error
			if param.fallback, err = p.expression(); err != nil {
				return err
			}
		}
		m.params = append(m.params, param)
	}
	return nil
}

func (p *parser) parseCall(line int) (stmt, error) {
	node := callBlock{caller: macro{line: line, name: "caller"}}
	if p.is(sign, "(") {
		if err := p.parameters(&node.caller); err != nil {
			return nil, err
		}
	}
	value, err := p.expression()
	if err != nil {
		return nil, err
	}
	var ok bool
	if node.call, ok = value.(call); !ok {
		return nil, p.fail("the call of a macro before it")
	}
	if err = p.endTag(); err != nil {
		return nil, err
	}
	node.caller.body, err = p.macroBody("endcall")
	return node, err
}
