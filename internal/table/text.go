package table

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// width is how many characters a line of Text has at most.
const width = 80

// Wrap cuts text at spaces into lines of at most width characters, longer words
// excepted. No text is no line.
func Wrap(text string, width int) []string {
	var lines []string
	for _, word := range strings.Fields(text) {
		last := len(lines) - 1
		if last >= 0 && utf8.RuneCountInString(lines[last])+1+utf8.RuneCountInString(word) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}

// Text prints words in lines of at most 80 characters, each indented by indent.
func Text(w io.Writer, indent, format string, args ...any) error {
	for _, line := range Wrap(fmt.Sprintf(format, args...), width-utf8.RuneCountInString(indent)) {
		if _, err := fmt.Fprintln(w, indent+line); err != nil {
			return err
		}
	}
	return nil
}
