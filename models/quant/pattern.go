package quant

import (
	"regexp"
	"strings"
)

// pattern is a regular expression of Python that a configuration holds.
type pattern struct{ *regexp.Regexp }

// matchStart compiles a pattern that must match from the start of a name on, as re.match does. Go's expressions lack
// Python's looks ahead and behind and its references back; ok is false for those.
func matchStart(text string) (p pattern, ok bool) { return compile("^(?:" + text + ")") }

// matchWhole compiles a pattern that must match a whole name.
func matchWhole(text string) (p pattern, ok bool) { return compile("^(?:" + text + ")$") }

// matchGlob compiles a pattern with * and ? of shells, which must match a whole name, as fnmatch does.
func matchGlob(text string) pattern {
	quoted := regexp.QuoteMeta(text)
	return pattern{regexp.MustCompile("^(?:" + strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(quoted) + ")$")}
}

// compile refuses counts of repetitions too: a few bytes of them ask for megabytes.
func compile(text string) (pattern, bool) {
	if counted.MatchString(text) {
		return pattern{}, false
	}
	r, err := regexp.Compile(text)
	return pattern{r}, err == nil
}

// counted finds a count of repetitions.
var counted = regexp.MustCompile(`\{[0-9]`)

// whyPattern is the advice for a pattern that does not compile.
const whyPattern = "look-ahead, look-behind, back references and counted repetitions are not supported: " +
	"list the modules, or write it without them"
