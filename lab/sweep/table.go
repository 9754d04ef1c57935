package sweep

import (
	"fmt"
	"io"
	"slices"

	"github.com/mkgen/mkgen/internal/table"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/megakernel"
)

// WriteTable prints every cell of the grid for a terminal: times in µs of a step of all
// sequences, or why there are none. The gate stands beside every share. Of the executor
// it prints what was run, and no speed.
func WriteTable(w io.Writer, r *Record) error {
	figures := []string{">tok/s", ">µs/step", ">(min–max)", ">p50", ">p99", ">max", ">GB/s", ">ceiling", ">share"}
	row := speeds
	if r.Executor() {
		figures, row = []string{">steps", ">bytes/step", ">executor s/step"}, ran
	}
	t := table.New(slices.Concat([]string{">batch", ">context"}, figures, []string{"gate"})...)
	var why []string
	for i := range r.Cells {
		c := &r.Cells[i]
		cells, last := make([]any, len(figures)), string(c.Status)
		for j := range cells {
			cells[j] = ""
		}
		if c.Case != nil {
			cells, last = row(c.Case), r.Gate
		}
		t.Row(slices.Concat([]any{c.Batch, c.Context}, cells, []any{last})...)
		if c.Why != "" {
			why = append(why, fmt.Sprintf("batch %d, context %d %s: %s", c.Batch, c.Context, verb(c.Status), oneLine(c.Why)))
		}
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

// speeds are a case's figures.
func speeds(c *bench.Case) []any {
	step, low, high := c.Step()
	return []any{fmt.Sprintf("%.1f", c.TokensPerSecond), micros(step), micros(low) + "–" + micros(high), micros(c.P50),
		micros(c.P99), micros(c.Max), fmt.Sprintf("%.0f", c.GBps), fmt.Sprintf("%.0f", c.CeilingGBps), percent(c.Share)}
}

// ran is what the executor can say of a case.
func ran(c *bench.Case) []any {
	step, _, _ := c.Step()
	return []any{len(c.Rounds) * c.TokensPerRound / c.Batch,
		megakernel.FormatBytes(int64(c.BytesPerToken * float64(c.Batch))), fmt.Sprintf("%.2f", step/1e6)}
}
