package megakernel

import (
	"fmt"
	"io"
	"strings"
)

// report writes lines and remembers the first error.
type report struct {
	w   io.Writer
	err error
}

func (r *report) line(format string, args ...any) {
	if r.err == nil {
		_, r.err = fmt.Fprintf(r.w, format+"\n", args...)
	}
}

// text writes words in lines of at most 80 characters, later ones indented.
func (r *report) text(indent, format string, args ...any) {
	line := ""
	for _, word := range strings.Fields(fmt.Sprintf(format, args...)) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > 80 {
			r.line("%s", line)
			line = indent
		} else if line != "" {
			line += " "
		}
		line += word
	}
	r.line("%s", line)
}

// table is a table of package table, indented by two spaces.
func (r *report) table(t interface {
	Write(w io.Writer, indent string) error
}) {
	if r.err == nil {
		r.err = t.Write(r.w, "  ")
	}
}

// FormatBytes is a size for readers: decimal units, four digits.
func FormatBytes(n int64) string { return formatSI(float64(n), "B") }

// FormatCount is a number for readers: "8.03 G".
func FormatCount(n int64) string { return strings.TrimSuffix(formatSI(float64(n), ""), " ") }

func formatSI(x float64, unit string) string {
	if x < 1000 {
		return fmt.Sprintf("%.0f %s", x, unit)
	}
	prefixes := []string{"k", "M", "G", "T", "P"}
	i := -1
	for x >= 999.95 && i < len(prefixes)-1 {
		x /= 1000
		i++
	}
	digits := 1
	if x < 99.995 {
		digits = 2
	}
	return fmt.Sprintf("%.*f %s%s", digits, x, prefixes[i], unit)
}

// formatSeconds is a time for readers.
func formatSeconds(s float64) string {
	switch {
	case s < 1e-3:
		return fmt.Sprintf("%.1f µs", s*1e6)
	case s < 1:
		return fmt.Sprintf("%.2f ms", s*1e3)
	}
	return fmt.Sprintf("%.2f s", s)
}

func percent(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }

// plural is "1 stage", "2 stages".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// copies is "1 copy", "2 copies".
func copies(n int) string {
	if n == 1 {
		return "1 copy"
	}
	return fmt.Sprintf("%d copies", n)
}
