package quant

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/mkgen/mkgen/models/problem"
)

// pattern is a regular expression of Python that a configuration holds.
type pattern struct{ *regexp.Regexp }

// matchStart compiles a pattern that must match from the start of a name on, as re.match does; no is why it is refused,
// nil where it is not.
func matchStart(text string) (p pattern, no *notPattern) { return compile(text, "^(?:", ")") }

// matchWhole compiles a pattern that must match a whole name.
func matchWhole(text string) (p pattern, no *notPattern) { return compile(text, "^(?:", ")$") }

// matchGlob compiles a pattern with * and ? of shells, which must match a whole name, as fnmatch does.
func matchGlob(text string) pattern {
	quoted := regexp.QuoteMeta(text)
	return pattern{regexp.MustCompile("^(?:" + strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(quoted) + ")$")}
}

// notPattern says what would be accepted in place of a pattern, and why.
type notPattern struct{ want, why string }

// compile refuses what Go's expressions lack or read in another way than Python's, and counts of repetitions: a few
// bytes of them ask for megabytes.
func compile(text, before, behind string) (pattern, *notPattern) {
	_, err := syntax.Parse(text, syntax.Perl)
	var at *syntax.Error
	escapes := strings.ReplaceAll(text, `\\`, "")
	switch errors.As(err, &at); {
	case counted.MatchString(text), at != nil && lacking[at.Code]:
		return pattern{}, &notPattern{"a pattern without look-ahead, look-behind, back references and counted repetitions",
			"they are not supported: list the modules, or write it without them"}
	case at != nil:
		return pattern{}, &notPattern{"a regular expression", at.Code.String()}
	case gos.MatchString(escapes):
		return pattern{}, &notPattern{`a pattern without [:class:], \p, \Q, \z and \C`,
			"they mean something else in Python: list the modules, or write it without them"}
	}
	r, err := regexp.Compile(before + text + behind)
	if err != nil { // one group too deep
		return pattern{}, &notPattern{"a shorter pattern", err.(*syntax.Error).Code.String()}
	}
	return pattern{r}, nil
}

var (
	// counted finds a count of repetitions.
	counted = regexp.MustCompile(`\{[0-9]`)
	// gos finds what only Go's expressions have.
	gos = regexp.MustCompile(`\[:|\\[pPQEzC]`)
)

// lacking are the errors of patterns that Python has and Go does not.
var lacking = map[syntax.ErrorCode]bool{syntax.ErrInvalidPerlOp: true, syntax.ErrInvalidEscape: true,
	syntax.ErrInvalidRepeatOp: true, syntax.ErrInvalidNamedCapture: true}

// maxPattern is how many bytes of a pattern a message repeats.
const maxPattern = 80

// refusePattern adds a problem with a pattern in a field.
func (f *fields) refusePattern(field, text string, no *notPattern) {
	f.problem(f.path+field, `"`+problem.Shorten(text, maxPattern)+`"`, no.want, no.why)
}
