// Package table lays out text in aligned columns for a terminal.
package table

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// gap is what stands between two columns.
const gap = "  "

// Table is rows of cells under a head. A column whose head begins with ">" is
// aligned to the right (the mark is not printed). Not safe for concurrent use.
type Table struct {
	right []bool
	rows  [][]string
}

// New starts a table with a head, one cell a column.
func New(head ...string) *Table {
	t := &Table{right: make([]bool, len(head))}
	row := make([]string, len(head))
	for i, h := range head {
		row[i], t.right[i] = strings.CutPrefix(h, ">")
	}
	t.rows = append(t.rows, row)
	return t
}

// Row adds a row; cells are printed as fmt.Sprint does. Cells left out are
// empty; more cells than columns are a bug of the caller.
func (t *Table) Row(cells ...any) {
	if len(cells) > len(t.right) {
		panic(fmt.Sprintf("BUG: table: %d cells in a row of %d columns", len(cells), len(t.right)))
	}
	row := make([]string, len(t.right))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	t.rows = append(t.rows, row)
}

// Write prints the table with every line indented by indent, without spaces at
// the ends of lines. Widths are counted in characters.
func (t *Table) Write(w io.Writer, indent string) error {
	widths := make([]int, len(t.right))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range t.rows {
		line := indent
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if t.right[i] {
				cell = pad + cell
			} else {
				cell += pad
			}
			if i > 0 {
				line += gap
			}
			line += cell
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " ")); err != nil {
			return err
		}
	}
	return nil
}
