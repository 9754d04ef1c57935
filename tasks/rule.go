package tasks

import "fmt"

// firstOf is the text of the first rule that does not hold, or nothing. A
// template that refuses its shape says so once and emits no more.
func firstOf(rules ...rule) string {
	for _, r := range rules {
		if p := r.failed(); p != "" {
			return p
		}
	}
	return ""
}

// rule is something a template needs, and what to say when it is not so.
type rule struct {
	ok   bool
	form string
	args []any
}

func need(ok bool, form string, args ...any) rule { return rule{ok, form, args} }

// sound is the rule that a part of the template has no problem.
func sound(problem string) rule { return need(problem == "", "%s", problem) }

// failed is the rule's text where it does not hold, else nothing.
func (r rule) failed() string {
	if r.ok {
		return ""
	}
	return fmt.Sprintf(r.form, r.args...)
}
