package models

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// FieldError is one thing wrong with a configuration. Validate and Parse return
// all they find, joined with errors.Join in a fixed order.
type FieldError struct {
	Field string // the field's name in config.json, with a dot before a nested one
	Found string // what the field holds, shortened; "nothing" when it is absent
	Want  string // what would be accepted
	Why   string // the reason or advice, possibly empty
}

// Error returns "field: found X, want Y" and the reason after a semicolon.
func (e *FieldError) Error() string {
	s := fmt.Sprintf("%s: found %s, want %s", e.Field, e.Found, e.Want)
	if e.Why != "" {
		s += "; " + e.Why
	}
	return s
}

// maxProblems bounds how many problems one error lists.
const maxProblems = 32

// problems collects what is wrong with one configuration.
type problems struct {
	list    []error
	omitted int
}

func (p *problems) add(field, found, want, why string) {
	if len(p.list) == maxProblems {
		p.omitted++
		return
	}
	p.list = append(p.list, &FieldError{Field: shorten(field), Found: found, Want: want, Why: why})
}

// err returns nil when nothing was added.
func (p *problems) err() error {
	if p.omitted > 0 {
		return errors.Join(append(p.list[:len(p.list):len(p.list)],
			fmt.Errorf("and %d more problems", p.omitted))...)
	}
	return errors.Join(p.list...)
}

// maxShown is how many bytes of a hostile text a message repeats.
const maxShown = 48

// shorten makes text from a file fit for one line of a message: printable, at
// most maxShown bytes before quoting.
func shorten(text string) string {
	cut := text
	if len(cut) > maxShown {
		cut = strings.ToValidUTF8(cut[:maxShown], "") + "..."
	}
	quoted := strconv.Quote(cut)
	return quoted[1 : len(quoted)-1]
}
