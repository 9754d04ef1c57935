package models

import (
	"fmt"

	"github.com/mkgen/mkgen/models/problem"
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

// problems collects what is wrong with one configuration.
type problems struct{ problem.List }

func (p *problems) add(field, found, want, why string) {
	p.Add(&FieldError{Field: shorten(field), Found: found, Want: want, Why: why})
}

// maxShown is how many bytes of a hostile text a message repeats.
const maxShown = 48

func shorten(text string) string { return problem.Shorten(text, maxShown) }
