package compile

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/emit/sass"
)

// Error is a kernel that the compiler refused.
type Error struct {
	// Name is the kernel's, Compiler such as "nvcc 13.0.88".
	Name, Compiler string
	// Problems are the compiler's errors, each once, in its order; empty where it failed without saying one in a form
	// known here.
	Problems []*Problem
	// Log is all that the compiler said.
	Log   string
	cause error
}

// Error has one line a problem, or the compiler's log where there are none.
func (e *Error) Error() string {
	return fmt.Sprintf("%s does not compile the kernel of %s: %v", e.Compiler, e.Name, e.Unwrap())
}

// Unwrap is the problems, joined.
func (e *Error) Unwrap() error {
	if len(e.Problems) == 0 {
		return fmt.Errorf("%w: %s", e.cause, e.Log)
	}
	errs := make([]error, len(e.Problems))
	for i, p := range e.Problems {
		errs[i] = p
	}
	return errors.Join(errs...)
}

// Problem is one error of the compiler.
type Problem struct {
	// Text is what the compiler says.
	Text string
	// Line is the line of the kernel text, from 1, and Code what stands there; 0 and empty where the compiler names
	// none.
	Line int
	Code string
	// Inside is the line of a helper function inlined at Line that the error is in, 0 where it is at Line itself;
	// InsideCode its text.
	Inside     int
	InsideCode string
	// Pos is the template's Go line that emitted Line; zero for what belongs to no template (helpers, declarations).
	Pos ir.Pos
}

// Error is one line.
func (p *Problem) Error() string {
	if p.Line == 0 {
		return p.Text
	}
	text := fmt.Sprintf("%s:%d: %s: %q", emit.KernelFile, p.Line, p.Text, p.Code)
	if p.Inside > 0 {
		text += fmt.Sprintf(", inside it line %d: %q", p.Inside, p.InsideCode)
	}
	if p.Pos.Line == "" {
		return text + ", emitted for no template"
	}
	return text + ", emitted by " + p.Pos.String()
}

// refusal is a compiler's error before it is explained. ptx, when there is any, is what the PTX lines of the log belong
// to.
type refusal struct {
	compiler, log string
	ptx           []byte
	cause         error
}

func (r *refusal) Error() string { return r.compiler + ": " + r.cause.Error() }

var (
	// kernel.cu(200): error: …, kernel.cu(200): error #20-D: …, kernel.cu:200:7: fatal error: …
	frontForm = regexp.MustCompile(`^(?:.*[/\\])?` + regexp.QuoteMeta(emit.KernelFile) +
		`(?:\((\d+)\)|:(\d+):\d+): (?:catastrophic |fatal )?error(?: #[0-9A-Z-]+)?: (.*)$`)
	// ptxas /tmp/kernel.ptx, line 541; error   : …
	ptxasForm = regexp.MustCompile(`(?m)^ptxas .*, line (\d+); (?:error|fatal)\s*: (.*)$`)
	// ptxas error   : …, nvcc fatal   : …, nvrtc: error: …
	otherForm = regexp.MustCompile(`^(?:ptxas|nvcc|nvlink|nvrtc)\S*\s+(?:error|fatal)\s*: (.*)$`)
)

// explain finds the problems in the log and where in the Go source they come from.
func (r *refusal) explain(j *job) *Error {
	e := &Error{Name: j.src.Name, Compiler: r.compiler, Log: r.log, cause: r.cause}
	lines := strings.Split(string(j.src.Text), "\n")
	at := func(n int) string {
		if n < 1 || n > len(lines) {
			return ""
		}
		return strings.TrimSpace(lines[n-1])
	}
	printed := emit.Source{Text: j.src.Text, Lines: j.src.Lines}
	origins := sass.OriginsOf(string(r.ptx))
	var other []*Problem
	for line := range strings.Lines(r.log) {
		line = strings.TrimRight(line, "\r\n")
		p := &Problem{}
		if m := frontForm.FindStringSubmatch(line); m != nil {
			p.Line, p.Text = number(m[1]+m[2]), m[3]
		} else if m := ptxasForm.FindStringSubmatch(line); m != nil {
			p.Text = "ptxas: " + m[2]
			p.Line, p.Inside = origins.At(number(m[1]))
		} else if m := otherForm.FindStringSubmatch(line); m != nil {
			if strings.Contains(m[1], "host compiler") {
				m[1] += " (nvcc needs gcc on PATH)"
			}
			other = append(other, &Problem{Text: m[1]})
			continue
		} else {
			continue
		}
		p.Code, p.InsideCode, p.Pos = at(p.Line), at(p.Inside), printed.Pos(p.Line)
		if !slices.ContainsFunc(e.Problems, func(q *Problem) bool { return *q == *p }) {
			e.Problems = append(e.Problems, p)
		}
	}
	if len(e.Problems) == 0 { // else these say only that there were errors
		e.Problems = other
	}
	return e
}

// number reads digits that a regular expression has matched.
func number(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0 // longer than any file
	}
	return n
}
