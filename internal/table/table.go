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
	rows  []row
}

// row is cells, or where there are none a line of text.
type row struct {
	cells []string
	line  string
}

// New starts a table with a head, one cell a column. Heads of several lines end in the
// same one.
func New(head ...string) *Table {
	t := &Table{right: make([]bool, len(head))}
	lines, most := make([][]string, len(head)), 1
	for i, h := range head {
		h, t.right[i] = strings.CutPrefix(h, ">")
		lines[i] = strings.Split(h, "\n")
		most = max(most, len(lines[i]))
	}
	for n := range most {
		cells := make([]string, len(head))
		for i := range head {
			if at := n - most + len(lines[i]); at >= 0 {
				cells[i] = lines[i][at]
			}
		}
		t.rows = append(t.rows, row{cells: cells})
	}
	return t
}

// Row adds a row; cells are printed as fmt.Sprint does. Cells left out are
// empty; more cells than columns are a bug of the caller.
func (t *Table) Row(cells ...any) {
	if len(cells) > len(t.right) {
		panic(fmt.Sprintf("BUG: table: %d cells in a row of %d columns", len(cells), len(t.right)))
	}
	texts := make([]string, len(t.right))
	for i, c := range cells {
		texts[i] = fmt.Sprint(c)
	}
	t.rows = append(t.rows, row{cells: texts})
}

// RowWithin adds a row whose cells are cut at spaces into as many lines as they need to be
// of at most n characters; 0, or none, is any number.
func (t *Table) RowWithin(widths []int, cells ...any) {
	lines, most := make([][]string, len(cells)), 1
	for i, c := range cells {
		if lines[i] = []string{fmt.Sprint(c)}; i < len(widths) && widths[i] > 0 {
			lines[i] = Wrap(lines[i][0], widths[i])
		}
		most = max(most, len(lines[i]))
	}
	for n := range most {
		part := make([]any, len(cells))
		for i := range cells {
			if part[i] = ""; n < len(lines[i]) {
				part[i] = lines[i][n]
			}
		}
		t.Row(part...)
	}
}

// Line adds a line of text between rows, which no column is made wider for.
func (t *Table) Line(text string) { t.rows = append(t.rows, row{line: text}) }

// Write prints the table with every line indented by indent, without spaces at
// the ends of lines. Widths are counted in characters.
func (t *Table) Write(w io.Writer, indent string) error {
	widths := make([]int, len(t.right))
	for _, row := range t.rows {
		for i, cell := range row.cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range t.rows {
		line := indent + row.line
		for i, cell := range row.cells {
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
