package sweep

import (
	"fmt"
	"strings"
)

// micros is a time in µs (positive) with four digits, or all before the point.
func micros(x float64) string {
	for limit, format := range []string{"%.3f", "%.2f", "%.1f"} {
		if x < []float64{10, 100, 1000}[limit] {
			return fmt.Sprintf(format, x)
		}
	}
	return fmt.Sprintf("%.0f", x)
}

// percent is a share with one decimal.
func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// verb is a status between what it is of and why.
func verb(s Status) string {
	if s == Unfit {
		return string(s)
	}
	return "failed"
}

// oneLine is the first line of a text.
func oneLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// wrap breaks a text at spaces into at most most lines of at most width characters; what
// does not fit ends in an ellipsis.
func wrap(s string, width, most int) (lines []string) {
	for _, word := range strings.Fields(s) {
		if n := len(lines); n > 0 && len([]rune(lines[n-1]))+1+len([]rune(word)) <= width {
			lines[n-1] += " " + word
			continue
		}
		lines = append(lines, word)
	}
	cut := len(lines) > most
	lines = lines[:min(most, len(lines))]
	for i, line := range lines {
		if r := []rune(line); len(r) > width || cut && i == most-1 {
			lines[i] = strings.TrimRight(string(r[:min(len(r), width-1)]), " ,:") + "…"
		}
	}
	return lines
}
