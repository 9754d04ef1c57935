// Package rule says in one sentence what a template cannot do with the shape that it is given.
package rule

import "fmt"

// First is the text of the first rule that does not hold, or nothing. A
// template that refuses its shape says so once and emits no more.
func First(rules ...Rule) string {
	for _, r := range rules {
		if p := r.Failed(); p != "" {
			return p
		}
	}
	return ""
}

// Rule is something a template needs, and what to say when it is not so.
type Rule struct {
	ok   bool
	form string
	args []any
}

// Need is the rule that ok holds; form and args say what was found and what is wanted.
func Need(ok bool, form string, args ...any) Rule { return Rule{ok, form, args} }

// Sound is the rule that a part of the template has no problem.
func Sound(problem string) Rule { return Need(problem == "", "%s", problem) }

// Failed is the rule's text where it does not hold, else nothing.
func (r Rule) Failed() string {
	if r.ok {
		return ""
	}
	return fmt.Sprintf(r.form, r.args...)
}
