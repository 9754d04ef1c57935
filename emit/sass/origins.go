package sass

import (
	"regexp"
	"sort"
	"strconv"
	"strings"
)

// source is a position in a source file as a .loc of PTX says it: number of the file, line, column.
type source struct{ file, line, column int }

// loc is one .loc: where in the PTX it stands, the source's place, and where that was inlined (zero: nowhere).
type loc struct {
	ptxLine    int
	at, inline source
}

// Origins lead from lines of PTX, compiled with -lineinfo, to lines of the kernel text, which is file 1.
type Origins []loc

var locForm = regexp.MustCompile(`^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?`)

// OriginsOf collects the .loc directives of PTX.
func OriginsOf(ptx string) Origins {
	var o Origins
	n := 0
	for line := range strings.Lines(ptx) {
		n++
		if m := locForm.FindStringSubmatch(line); m != nil {
			l := loc{ptxLine: n, at: source{number(m[1]), number(m[2]), number(m[3])}}
			if m[4] != "" {
				l.inline = source{number(m[4]), number(m[5]), number(m[6])}
			}
			o = append(o, l)
		}
	}
	return o
}

// kernelFile is the number of the kernel text among the files of its PTX; the others are headers that nvcc includes by
// itself.
const kernelFile = 1

// At is the line of the kernel's own body behind a line of the PTX, and the line of the text inside a helper function
// when it comes from an inlined one, else 0. Both are 0 where no .loc precedes it.
func (o Origins) At(ptxLine int) (line, inside int) {
	i := sort.Search(len(o), func(i int) bool { return o[i].ptxLine > ptxLine }) - 1
	if i < 0 {
		return 0, 0
	}
	frames := []source{o[i].at} // the innermost first
	for caller := o[i].inline; caller != (source{}); {
		frames = append(frames, caller)
		for i--; i >= 0 && o[i].at != caller; i-- { // the callers' own .loc come before
		}
		if i < 0 {
			break
		}
		caller = o[i].inline
	}
	last := len(frames) - 1
	for _, f := range frames[:last] {
		if f.file == kernelFile {
			inside = f.line
			break
		}
	}
	return frames[last].line, inside
}

// number is a decimal number that a pattern has found; one that is too large is 0.
func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
