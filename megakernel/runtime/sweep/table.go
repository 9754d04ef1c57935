package sweep

import (
	"fmt"
	"io"

	"github.com/mkgen/mkgen/internal/table"
)

// WriteTable prints every cell of the grid for a terminal: times in µs of a step of all
// sequences, or why there are none. mark stands beside every share.
func WriteTable(w io.Writer, r *Record, mark string) error {
	t := table.New(">batch", ">context", ">tok/s", ">µs/step", ">(min–max)", ">p50", ">p99", ">max", ">GB/s", ">ceiling", ">share", "gate")
	var why []string
	for i := range r.Cells {
		c := &r.Cells[i]
		if c.Case == nil {
			t.Row(c.Batch, c.Context, "", "", "", "", "", "", "", "", "", string(c.Status))
			if c.Why != "" {
				why = append(why, fmt.Sprintf("batch %d, context %d %s: %s", c.Batch, c.Context, verb(c.Status), oneLine(c.Why)))
			}
			continue
		}
		m := c.Case
		step, low, high := m.Step()
		t.Row(c.Batch, c.Context, fmt.Sprintf("%.1f", m.TokensPerSecond), micros(step), micros(low)+"–"+micros(high), micros(m.P50), micros(m.P99), micros(m.Max),
			fmt.Sprintf("%.0f", m.GBps), fmt.Sprintf("%.0f", m.CeilingGBps), percent(m.Share), mark)
	}
	if err := t.Write(w, "  "); err != nil {
		return err
	}
	for _, line := range why {
		if _, err := fmt.Fprintf(w, "  %s\n", line); err != nil {
			return err
		}
	}
	return nil
}
