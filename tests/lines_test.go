package tests

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// columns is how many characters a line of Go may have.
const columns = 120

// Lines of Go have at most 120 characters, where runs of blanks, with which gofmt aligns tables, count as one. Longer
// are only lines half of which is texts, which are not taken apart, C, and directives. Generated files are not looked
// at.
func TestLinesOfGoAreShort(t *testing.T) {
	var long []string
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != ".." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "out" || d.Name() == "build"):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || bytes.Contains(text, []byte("DO NOT EDIT.\n")) {
			return err
		}
		texts := textsOf(text)
		for i, line := range strings.Split(string(text), "\n") {
			width := utf8.RuneCountInString(blanks.ReplaceAllString(line, " "))
			if width > columns && texts[i+1] < columns/2 && !strings.HasPrefix(line, "//go:") {
				long = append(long, fmt.Sprintf("%s:%d: %s", path, i+1, strings.TrimSpace(line)))
			}
		}
		return nil
	}))
	require.Empty(t, long, "of more than %d characters:\n%s", columns, strings.Join(long, "\n"))
}

var blanks = regexp.MustCompile(` +`)

// textsOf says how many characters of the lines of a Go file are of string literals. A line of a literal or a general
// comment (C, in front of import "C") of several lines is one of text.
func textsOf(file []byte) map[int]int {
	lines := map[int]int{}
	set := token.NewFileSet()
	f := set.AddFile("", set.Base(), len(file))
	var s scanner.Scanner
	s.Init(f, file, nil, scanner.ScanComments)
	for {
		pos, kind, text := s.Scan()
		several := strings.Contains(text, "\n")
		switch {
		case kind == token.EOF:
			return lines
		case several && (kind == token.STRING || kind == token.COMMENT):
			for i := range strings.Count(text, "\n") + 1 {
				lines[f.Line(pos)+i] = columns
			}
		case kind == token.STRING:
			lines[f.Line(pos)] += utf8.RuneCountInString(text)
		}
	}
}
