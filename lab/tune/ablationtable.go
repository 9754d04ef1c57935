package tune

import (
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/mkgen/mkgen/internal/table"
)

// MarkdownHead is what a file begins with that WriteMarkdown's table is in: a comment.
const MarkdownHead = "<!-- mkgen bench --ablate -->\n\n"

// markdownHead is that, and what such files began with before they said so.
var markdownHead = regexp.MustCompile(
	`^(<!-- mkgen bench --ablate -->\n|.+ on .+\n\n(µs a (token|step)|The kernel: --))`)

// IsMarkdown says whether a file is one with the table of an ablation, by its first 512 bytes
// or more.
func IsMarkdown(head []byte) bool { return markdownHead.Match(head) }

// notAnyGPUs stands for figures of the executor that would say nothing of a GPU.
const notAnyGPUs = "–"

// differsWidth is how many characters the first column of WriteTable has at most.
const differsWidth = 36

// WriteTable prints the kernel and every variant, group by group: what differs, µs and the
// share of the ceiling at each context, the ratio to the kernel beside it with its noise,
// and whether it computed the same bits, or below it why there are no figures.
func (a *Ablated) WriteTable(w io.Writer) error {
	head, rows := a.cells()
	for i := range head {
		head[i] = strings.Replace(head[i], "µs at ", "µs at\n", 1)
	}
	t := table.New(head[1:]...)
	for n, row := range rows {
		if n > 0 && row[0] != "" {
			t.Line(row[0])
		}
		differs := []string{row[0]} // the kernel itself
		if n > 0 {
			differs = table.Wrap(row[1], differsWidth-2)
			for i := range differs {
				differs[i] = "  " + differs[i]
			}
		}
		cells := []any{differs[0]}
		for _, cell := range row[2:] {
			cells = append(cells, cell)
		}
		why := n > 0 && a.Rows[n-1].Why != ""
		if why {
			cells = cells[:1]
		}
		t.Row(cells...)
		for _, more := range differs[1:] {
			t.Row(more)
		}
		if why {
			for _, line := range table.Wrap(a.Rows[n-1].Why, 76) {
				t.Line("    " + line)
			}
		}
	}
	return t.Write(w, "")
}

// WriteMarkdown prints the same as a table in Markdown.
func (a *Ablated) WriteMarkdown(w io.Writer) error {
	head, rows := a.cells()
	rules := make([]string, len(head))
	for i := range head {
		var right bool
		if head[i], right = strings.CutPrefix(head[i], ">"); right {
			rules[i] = "--:"
		} else {
			rules[i] = "---"
		}
	}
	for _, row := range append([][]string{head, rules}, rows...) {
		for i := range row {
			row[i] = strings.ReplaceAll(row[i], "|", `\|`)
		}
		if _, err := fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | ")); err != nil {
			return err
		}
	}
	return nil
}

// cells are the table's; those of the head that begin with ">" are of columns of figures.
func (a *Ablated) cells() (head []string, rows [][]string) {
	head = []string{"", "differs in"}
	for _, n := range a.Contexts {
		head = append(head, fmt.Sprintf(">µs at %d", n), ">share")
	}
	head = append(head, ">ratio", ">noise", "bits")
	own := []string{"the kernel", ""}
	one := "1"
	if a.Executor() {
		one = notAnyGPUs
	}
	rows = append(rows, append(append(own, a.figures(a.Micros, a.Share)...), one, "", ""))
	group := ""
	for _, r := range a.Rows {
		row := []string{"", r.Differs}
		if r.Group != group {
			row[0], group = r.Group, r.Group
		}
		if r.Why != "" {
			row = append(row, make([]string, 2*len(a.Contexts)+2)...)
			rows = append(rows, append(row, r.Why))
			continue
		}
		row = append(row, a.figures(r.Micros, r.Share)...)
		ratio, noise := fmt.Sprintf("%.4f", r.Ratio), fmt.Sprintf("%.4f", r.Noise)
		if a.Executor() {
			ratio, noise = notAnyGPUs, notAnyGPUs
		}
		rows = append(rows, append(row, ratio, noise, string(r.Bits)))
	}
	return head, rows
}

func (a *Ablated) figures(micros, share []float64) (cells []string) {
	for i := range micros {
		part := fmt.Sprintf("%.1f %%", 100*share[i])
		if a.Executor() {
			part = notAnyGPUs // its ceiling is none
		}
		cells = append(cells, fmt.Sprintf("%.1f", micros[i]), part)
	}
	return cells
}
