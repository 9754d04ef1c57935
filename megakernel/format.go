package megakernel

import (
	"fmt"
	"io"

	"github.com/mkgen/mkgen/internal/table"
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

// text writes words in lines of at most 80 characters, all indented by two.
func (r *report) text(format string, args ...any) {
	if r.err == nil {
		r.err = table.Text(r.w, "  ", format, args...)
	}
}

// table is a table of package table, indented by two spaces.
func (r *report) table(t interface {
	Write(w io.Writer, indent string) error
}) {
	if r.err == nil {
		r.err = t.Write(r.w, "  ")
	}
}

// FormatBytes is a size for readers, in decimal units: "15.01 GB".
func FormatBytes(n int64) string {
	return formatScaled(n, " B", " kB", " MB", " GB", " TB", " PB", " EB")
}

// formatGBps is a bandwidth, given in GB/s, with at least three digits that say something:
// "4672 GB/s", "35.3 GB/s", and of the executor "0.0213 GB/s".
func formatGBps(x float64) string {
	switch {
	case x >= 100:
		return fmt.Sprintf("%.0f GB/s", x)
	case x >= 10:
		return fmt.Sprintf("%.1f GB/s", x)
	}
	return fmt.Sprintf("%.3g GB/s", x)
}

// FormatCount is a number for readers: "8.030 B" for eight billion.
func FormatCount(n int64) string { return formatScaled(n, "", " k", " M", " B", " T") }

// formatScaled writes n (0 or more) with four digits in the largest unit, each a
// thousand of the one before, that leaves at least 1.
func formatScaled(n int64, units ...string) string {
	x, i := float64(n), 0
	for x >= 999.95 && i < len(units)-1 {
		x /= 1000
		i++
	}
	switch {
	case i == 0:
		return fmt.Sprintf("%d%s", n, units[0])
	case x < 9.9995:
		return fmt.Sprintf("%.3f%s", x, units[i])
	case x < 99.995:
		return fmt.Sprintf("%.2f%s", x, units[i])
	}
	return fmt.Sprintf("%.1f%s", x, units[i])
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

// formatRate is a number of things a second for readers.
func formatRate(x float64) string {
	if x < 9.95 {
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

func percent(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }

// copies is "1 copy", "2 copies".
func copies(n int) string {
	if n == 1 {
		return "1 copy"
	}
	return fmt.Sprintf("%d copies", n)
}
