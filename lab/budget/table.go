package budget

import (
	"fmt"
	"io"

	"github.com/mkgen/mkgen/internal/table"
	"github.com/mkgen/mkgen/lab/trace"
	"github.com/mkgen/mkgen/megakernel"
)

// number is a time for a reader.
func number(x float64) string {
	if x >= 1000 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.1f", x)
}

// WriteTable prints the budget for a terminal.
func (b *Budget) WriteTable(w io.Writer) error {
	unit := "µs"
	if b.Unit == trace.Steps {
		unit = "steps"
	}
	lines := []string{fmt.Sprintf("Context %d, predicted for %s", b.Context, b.Machine.About())}
	if b.Unit == trace.Steps {
		lines = append(lines, "Measured times are steps of the executor's scheduler: an order, not a speed.")
	}
	if err := print(w, lines...); err != nil {
		return err
	}
	t := table.New("phase", ">runs", ">bytes", "", ">time", ">work", ">chunk wait", ">sync", ">ratio")
	for i := range b.Phases {
		p := &b.Phases[i]
		b.rows(t, unit, []any{p.Name, p.Runs, megakernel.FormatBytes(p.Bytes)}, &p.Compared)
	}
	b.rows(t, unit, []any{"step", 1, megakernel.FormatBytes(b.bytes())}, &b.Step)
	if err := t.Write(w, "  "); err != nil {
		return err
	}
	return print(w, b.notes()...)
}

func print(w io.Writer, lines ...string) error {
	for _, l := range lines {
		if err := table.Text(w, "", "%s", l); err != nil {
			return err
		}
	}
	return nil
}

// rows are a phase's, or the step's, two under one another: measured, where it was, and
// predicted. of is what the figures are of.
func (b *Budget) rows(t *table.Table, unit string, of []any, c *Compared) {
	ratio := ""
	if b.Unit != trace.Steps && c.Ratio() > 0 {
		ratio = fmt.Sprintf("%.2f", c.Ratio())
	}
	cells := append(of, "measured "+unit)
	if m := &c.Measured; m.Time != 0 {
		cells = append(cells, number(m.Time), number(m.Work), number(m.Chunks), number(m.Sync), ratio)
	}
	t.Row(cells...)
	p := &c.Predicted
	t.Row("", "", "", "predicted µs", number(p.Time), number(p.Work), number(p.Chunks), number(p.Sync))
}

// bytes is what a step reads.
func (b *Budget) bytes() (n int64) {
	for _, p := range b.Phases {
		n += int64(p.Runs) * p.Bytes
	}
	return n
}

// notes are what the table does not say.
func (b *Budget) notes() (lines []string) {
	if b.Dropped > 0 {
		lines = append(lines, fmt.Sprintf("%d spans did not fit into the trace: figures are of what is whole.", b.Dropped))
	}
	if b.Unit == trace.Steps {
		return lines
	}
	if b.Step.Measured.Time > 0 {
		lines = append(lines, fmt.Sprintf(
			"Between the phases of a step, such as the choice of a token: %s µs. Its bytes at the ceiling: %s µs.",
			number(b.Between), number(b.Floor)))
	}
	return append(lines, fmt.Sprintf(
		"By the GPU's clock a step takes %s µs with the trace and %s without: the trace costs %+.2f %%. Without it the step takes %.3f times what was predicted.",
		number(b.Traced), number(b.Untraced), 100*(b.Traced/b.Untraced-1), b.Untraced/b.Step.Predicted.Time))
}
