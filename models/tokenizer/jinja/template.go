// Package jinja renders the Jinja templates that checkpoints bring to write conversations, as Hugging Face's
// transformers does: with trim_blocks and lstrip_blocks, and transformers' own functions and filters. It knows the part
// of Jinja that such templates use, with Python's meaning; the rest is refused with the line where it stands. Templates
// come from outside: they read no files, and what they do is bounded.
package jinja

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	maxSource = 256 << 10 // bytes of a template; the largest known ones have 25 KB
	maxOutput = 64 << 20  // bytes of a text
	maxSteps  = 4 << 20   // of one rendering; a conversation of 1000 messages takes about 100,000
	scopeCost = 256       // bytes that a block's names are charged for
	maxMacros = 100       // that call each other
	maxRange  = 100000    // numbers of a range, as in Jinja's sandbox
)

// Template is a parsed template. It may be rendered by many goroutines at once.
type Template struct{ body []stmt }

// Options are what rendering depends on beside the variables.
type Options struct {
	Now time.Time // for strftime_now
}

// Raised is the error of a template that called raise_exception.
type Raised struct{ Message string }

func (r *Raised) Error() string { return r.Message }

// Parse reads a template. Errors say the line, what is there and what is wanted.
func Parse(source string) (*Template, error) {
	if len(source) > maxSource {
		return nil, fmt.Errorf("%d bytes; want at most %d", len(source), maxSource)
	}
	if !utf8.ValidString(source) {
		return nil, errors.New("bytes that are not UTF-8; want UTF-8")
	}
	tokens, err := lex(source)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	body, _, err := p.block()
	if err != nil {
		return nil, err
	}
	return &Template{body}, nil
}

// Render writes the template with these variables, whose values are nil, bool, int, float64, string, *List and *Dict.
// An error that wraps *Raised is the template's own refusal.
func (t *Template) Render(variables map[string]any, options Options) (string, error) {
	r := &run{options: options, budget: maxSteps}
	globals := &scope{names: globals()}
	var out strings.Builder
	_, err := r.block(t.body, &scope{names: map[string]any{}, outer: &scope{names: variables, outer: globals}}, &out)
	if err != nil {
		return "", err
	}
	return out.String(), nil
}
