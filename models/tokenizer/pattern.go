package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// pattern finds its matches in a text. spans yields the matches and what lies between them, in order and without gaps.
type pattern interface {
	spans(text string, s *scratch, yield func(from, to int, match bool) error) error
}

// scratch is working memory of one step of one call.
type scratch struct {
	runes []rune
	spans []span
}

// patternJSON is a pattern in tokenizer.json: a text, or a regular expression.
type patternJSON struct {
	String *string
	Regex  *string
}

func (p patternJSON) compile(place string) (pattern, error) {
	switch {
	case p.String != nil:
		return literal(*p.String), nil
	case p.Regex != nil:
		return compileRegex(place, *p.Regex)
	}
	return nil, fault(place, "no pattern", "pattern.String or pattern.Regex")
}

// literal matches itself. The empty one matches nothing.
type literal string

func (l literal) spans(text string, _ *scratch, yield func(from, to int, match bool) error) error {
	at := 0
	for l != "" {
		found := strings.Index(text[at:], string(l))
		if found < 0 {
			break
		}
		if found > 0 {
			if err := yield(at, at+found, false); err != nil {
				return err
			}
		}
		at += found + len(l)
		if err := yield(at-len(l), at, true); err != nil {
			return err
		}
	}
	if at == len(text) {
		return nil
	}
	return yield(at, len(text), false)
}

// oneRune matches every character for which it is true.
type oneRune func(rune) bool

func (is oneRune) spans(text string, _ *scratch, yield func(from, to int, match bool) error) error {
	done := 0
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRuneInString(text[at:])
		if is(r) {
			if done < at {
				if err := yield(done, at, false); err != nil {
					return err
				}
			}
			done = at + size
			if err := yield(at, done, true); err != nil {
				return err
			}
		}
		at += size
	}
	if done == len(text) {
		return nil
	}
	return yield(done, len(text), false)
}

// regex matches a regular expression as the library's engine (Oniguruma) does.
type regex struct{ *regexp2.Regexp }

func compileRegex(place, source string) (pattern, error) {
	translated, err := translate(source)
	if err != nil {
		return nil, fmt.Errorf("%s: pattern: %w", place, err)
	}
	compiled, err := regexp2.Compile(translated, regexp2.OptionMaxBacktrackingStackSize(-1))
	if err != nil {
		return nil, fmt.Errorf("%s: pattern: %w", place, err)
	}
	return regex{compiled}, nil
}

func (x regex) spans(text string, s *scratch, yield func(from, to int, match bool) error) error {
	s.runes = appendRunes(s.runes[:0], text)
	at, offset := 0, 0 // the same place in s.runes and in text
	advance := func(to int) int {
		for ; at < to; at++ {
			offset += utf8.RuneLen(s.runes[at])
		}
		return offset
	}
	done, ended := 0, -1
	var failed error
	err := x.FindRunesMatches(s.runes, 0, func(m regexp2.MatchView) bool {
		start, length, _ := m.GroupRange(0)
		from := advance(start)
		to := advance(start + length)
		if length == 0 && from == ended {
			return true // an empty match just after another one counts for nothing
		}
		if done < from {
			if failed = yield(done, from, false); failed != nil {
				return false
			}
		}
		failed = yield(from, to, true)
		done, ended = to, to
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("text: splitting it: %w", err)
	}
	if done == len(text) {
		return nil
	}
	return yield(done, len(text), false)
}

func appendRunes(runes []rune, text string) []rune {
	for _, r := range text {
		runes = append(runes, r)
	}
	return runes
}
