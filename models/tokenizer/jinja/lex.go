package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// kind is what a token is.
type kind int

const (
	data       kind = iota // text between tags
	blockBegin             // {%
	blockEnd               // %}
	printBegin             // {{
	printEnd               // }}
	name                   // a word
	stringLit              // "…", its value
	numberLit              // 12, 1.5
	sign                   // an operator
	end                    // of the template
)

type token struct {
	kind kind
	text string
	line int
}

// lexer cuts a template into tokens, with trim_blocks and lstrip_blocks.
type lexer struct {
	source       string
	at           int
	line         int
	lineStarting bool // nothing but tags since the last line break
	tokens       []token
}

// lex gives the tokens of source, the last of kind end.
func lex(source string) ([]token, error) {
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	l := &lexer{source: strings.TrimSuffix(source, "\n"), line: 1, lineStarting: true}
	for l.at < len(l.source) {
		if err := l.next(); err != nil {
			return nil, fmt.Errorf("line %d: %w", l.line, err)
		}
	}
	l.add(end, "")
	return l.tokens, nil
}

func (l *lexer) add(k kind, text string) { l.tokens = append(l.tokens, token{k, text, l.line}) }

// advance moves on by n bytes and gives them.
func (l *lexer) advance(n int) string {
	passed := l.source[l.at : l.at+n]
	l.at += n
	l.line += strings.Count(passed, "\n")
	return passed
}

func (l *lexer) rest() string { return l.source[l.at:] }

// next takes the text before the next tag, and that tag.
func (l *lexer) next() error {
	rest := l.rest()
	start := tagStart(rest)
	if start == len(rest) {
		l.text(rest, l.advance(start))
		return nil
	}
	opening, mark := rest[start:start+2], ""
	if after := rest[start+2:]; after != "" && (after[0] == '-' || after[0] == '+') {
		mark = after[:1]
	}
	l.text(l.strip(rest[:start], opening, mark), l.advance(start))
	l.advance(2 + len(mark))
	switch opening {
	case "{#":
		return l.comment()
	case "{{":
		l.add(printBegin, "")
		return l.tag(printEnd, "}}")
	}
	if word := strings.TrimLeftFunc(l.rest(), space); strings.HasPrefix(word, "raw") {
		if closing := strings.TrimLeftFunc(word[len("raw"):], space); strings.HasPrefix(closing, "%}") ||
			strings.HasPrefix(closing, "-%}") {
			return l.raw(len(l.rest()) - len(closing))
		}
	}
	l.add(blockBegin, "")
	return l.tag(blockEnd, "%}")
}

// tagStart is where the first tag or comment in s begins, the length of s when there is none.
func tagStart(s string) int {
	for at := 0; ; at++ {
		i := strings.IndexByte(s[at:], '{')
		if i < 0 {
			return len(s)
		}
		if at += i; at+1 < len(s) && strings.IndexByte("%{#", s[at+1]) >= 0 {
			return at
		}
	}
}

// text adds what is left of the passed text, if anything.
func (l *lexer) text(left, passed string) {
	if left != "" {
		l.add(data, left)
	}
	if passed != "" {
		l.lineStarting = strings.HasSuffix(passed, "\n")
	}
}

// strip takes the white space off the end of text that the tag after it swallows: all with "-", the indentation of a
// line that begins with a block or a comment without a mark.
func (l *lexer) strip(text, opening, mark string) string {
	if mark == "-" {
		return strings.TrimRightFunc(text, space)
	}
	if mark == "+" || opening == "{{" {
		return text
	}
	begin := strings.LastIndexByte(text, '\n') + 1
	if (begin > 0 || l.lineStarting) && strings.Trim(text[begin:], " \t") == "" {
		return text[:begin]
	}
	return text
}

// close passes the end of a tag and the white space after it that it swallows; false when the tag does not end here.
func (l *lexer) close(closing string) bool {
	rest := l.rest()
	n := 0
	switch {
	case strings.HasPrefix(rest, "-"+closing):
		after := rest[1+len(closing):]
		n = len(rest) - len(strings.TrimLeftFunc(after, space))
	case strings.HasPrefix(rest, "+"+closing) && closing != "}}":
		n = 1 + len(closing)
	case strings.HasPrefix(rest, closing+"\n") && closing != "}}":
		n = len(closing) + 1
	case strings.HasPrefix(rest, closing):
		n = len(closing)
	default:
		return false
	}
	l.lineStarting = strings.HasSuffix(l.advance(n), "\n")
	return true
}

func (l *lexer) comment() error {
	for l.at < len(l.source) {
		if l.close("#}") {
			return nil
		}
		l.advance(1)
	}
	return fmt.Errorf("a comment that does not end; want #}")
}

// raw takes a raw block, whose opening tag ends n bytes from here.
func (l *lexer) raw(n int) error {
	l.advance(n)
	if strings.HasPrefix(l.rest(), "-") {
		l.close("%}")
	} else {
		l.advance(2)
		l.lineStarting = false
	}
	begin := l.at
	for l.at < len(l.source) {
		after, found := strings.CutPrefix(l.rest(), "{%")
		mark := ""
		if found && after != "" && (after[0] == '-' || after[0] == '+') {
			mark, after = after[:1], after[1:]
		}
		word, isEnd := strings.CutPrefix(strings.TrimLeftFunc(after, space), "endraw")
		if !found || !isEnd {
			l.advance(1)
			continue
		}
		passed := l.source[begin:l.at]
		l.text(l.strip(passed, "{%", mark), "")
		l.advance(len(l.rest()) - len(strings.TrimLeftFunc(word, space)))
		if !l.close("%}") {
			return fmt.Errorf("endraw with more; want %%}")
		}
		return nil
	}
	return fmt.Errorf("a raw block that does not end; want {%% endraw %%}")
}

// tag takes the tokens of a tag, up to closing outside of brackets.
func (l *lexer) tag(ending kind, closing string) error {
	depth := 0
	for {
		l.advance(len(l.rest()) - len(strings.TrimLeftFunc(l.rest(), space)))
		if l.at == len(l.source) {
			return fmt.Errorf("a tag that does not end; want %s", closing)
		}
		if depth == 0 && l.close(closing) {
			l.add(ending, "")
			return nil
		}
		before := len(l.tokens)
		if err := l.word(); err != nil {
			return err
		}
		if t := l.tokens[before]; t.kind == sign && strings.Contains("([{", t.text) {
			depth++
		} else if t.kind == sign && strings.Contains(")]}", t.text) {
			depth--
		}
	}
}

// word takes one token within a tag.
func (l *lexer) word() error {
	rest := l.rest()
	r, _ := utf8.DecodeRuneInString(rest)
	switch {
	case r == '"' || r == '\'':
		return l.string(r)
	case r >= '0' && r <= '9':
		return l.number()
	case r == '_' || unicode.IsLetter(r):
		n := strings.IndexFunc(rest, func(r rune) bool {
			return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.Is(unicode.M, r)
		})
		if n < 0 {
			n = len(rest)
		}
		l.add(name, rest[:n])
		l.advance(n)
		return nil
	}
	for _, s := range [...]string{"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")",
		"{", "}", ">", "<", "=", ".", ":", "|", ","} {
		if strings.HasPrefix(rest, s) {
			l.add(sign, s)
			l.advance(len(s))
			return nil
		}
	}
	return fmt.Errorf("%q; want an expression", string(r))
}

func (l *lexer) number() error {
	rest := l.rest()
	n := 0
	isDigit := func(i int) bool { return i < len(rest) && rest[i] >= '0' && rest[i] <= '9' }
	digits := func() {
		for isDigit(n) || n > 0 && n < len(rest) && rest[n] == '_' && isDigit(n+1) {
			n++
		}
	}
	digits()
	if n+1 < len(rest) && rest[n] == '.' && isDigit(n+1) {
		n++
		digits()
	}
	if n < len(rest) && (rest[n] == 'e' || rest[n] == 'E') {
		if sign := n + 1; isDigit(sign) || sign < len(rest) && (rest[sign] == '+' || rest[sign] == '-') && isDigit(sign+1) {
			n = sign + 1
			digits()
		}
	}
	l.add(numberLit, strings.ReplaceAll(rest[:n], "_", ""))
	l.advance(n)
	return nil
}

// string takes a string literal, with Python's escapes.
func (l *lexer) string(quote rune) error {
	rest := l.rest()
	var out strings.Builder
	for i := 1; i < len(rest); {
		switch c := rest[i]; {
		case c == byte(quote):
			l.add(stringLit, out.String())
			l.advance(i + 1)
			return nil
		case c != '\\':
			out.WriteByte(c)
			i++
		default:
			n, err := escape(rest[i+1:], &out)
			if err != nil {
				return err
			}
			i += 1 + n
		}
	}
	return fmt.Errorf("a string that does not end; want %c", quote)
}

// escape writes what the escape sequence s, without its backslash, stands for and gives its length; an unknown one
// stands for itself.
func escape(s string, out *strings.Builder) (int, error) {
	if s == "" {
		return 0, nil
	}
	if i := strings.IndexByte(`\'"abfnrtv`, s[0]); i >= 0 {
		out.WriteByte("\\'\"\a\b\f\n\r\t\v"[i])
		return 1, nil
	}
	length := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[0]]
	switch {
	case s[0] == '\n':
		return 1, nil
	case s[0] >= '0' && s[0] <= '7':
		n := 1
		for n < 3 && n < len(s) && s[n] >= '0' && s[n] <= '7' {
			n++
		}
		code, _ := strconv.ParseUint(s[:n], 8, 32)
		out.WriteRune(rune(code))
		return n, nil
	case length == 0:
		out.WriteByte('\\')
		return 0, nil
	case len(s) <= length:
		return 0, fmt.Errorf("escape \\%s; want %d hexadecimal digits", s, length)
	}
	code, err := strconv.ParseUint(s[1:1+length], 16, 32)
	if err != nil || !utf8.ValidRune(rune(code)) {
		return 0, fmt.Errorf("escape \\%s; want %d hexadecimal digits of a character", s[:1+length], length)
	}
	out.WriteRune(rune(code))
	return 1 + length, nil
}

// space tells what Python's str.isspace does: Unicode's white space, and the four separators of ASCII.
func space(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
