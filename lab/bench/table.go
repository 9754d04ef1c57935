package bench

import (
	"fmt"
	"io"
	"slices"

	"github.com/mkgen/mkgen/internal/table"
)

// Ungated is what stands beside speeds that no gate vouches for.
const Ungated = "UNGATED"

// WriteTable prints the cases of one run for a terminal. mark stands beside every
// share: Ungated, or "gated".
func WriteTable(w io.Writer, cases []Case, mark string) error {
	head, more := choiceColumns(cases, ">context", ">tok/s", ">µs a\ntoken", ">device\nµs", ">(min–max)", ">p50",
		">p99", ">max", ">GB/s", ">ceiling", ">share", "gate")
	t := table.New(head...)
	for i := range cases {
		c := &cases[i]
		low, high := c.spread()
		t.Row(more(c, c.Context, fmt.Sprintf("%.1f", c.TokensPerSecond), us(c.Micros), us(c.DeviceMicros),
			us(low)+"–"+us(high), us(c.P50), us(c.P99), us(c.Max), fmt.Sprintf("%.0f", c.GBps),
			fmt.Sprintf("%.0f", c.CeilingGBps), fmt.Sprintf("%.1f %%", 100*c.Share), mark)...)
	}
	return t.Write(w, "  ")
}

// choiceColumns adds to the columns of a table, where some cases are not greedy, how tokens are chosen and which
// share of greedy's speed that has; more adds them to a row.
func choiceColumns(cases []Case, columns ...string) (head []string, more func(c *Case, cells ...any) []any) {
	if !Drawn(cases) {
		return columns, func(_ *Case, cells ...any) []any { return cells }
	}
	return append(columns, "tokens", ">of\ngreedy"), func(c *Case, cells ...any) []any {
		share := ""
		if c.OfGreedy > 0 {
			share = fmt.Sprintf("%.1f %%", 100*c.OfGreedy)
		}
		return append(cells, Choice{Name: c.Choice}, share)
	}
}

// spread is the fastest and the slowest round by the device's clock.
func (c *Case) spread() (low, high float64) {
	var v []float64
	for _, r := range c.Rounds {
		v = append(v, r.Device)
	}
	return slices.Min(v), slices.Max(v)
}

// Step is the device's time of a step in µs, of all its sequences: the median of the
// rounds, the fastest and the slowest.
func (c *Case) Step() (median, low, high float64) {
	rows := float64(max(1, c.Tokens))
	low, high = c.spread()
	return c.DeviceMicros * rows, low * rows, high * rows
}

// us is a time in µs with four or so digits.
func us(x float64) string {
	if x < 100 {
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.1f", x)
}

// WriteStepTable is WriteTable for cases of steps of several rows.
func WriteStepTable(w io.Writer, cases []Case, mark string) error {
	head, more := choiceColumns(cases, "rows", ">context", ">tok/s", ">µs a\nstep", ">× one\nrow", ">p50", ">p99",
		">max", ">GB/s", ">ceiling", ">share", "gate")
	t := table.New(head...)
	for i := range cases {
		c := &cases[i]
		ratio := ""
		if c.Ratio > 0 {
			ratio = fmt.Sprintf("%.3f", c.Ratio)
		}
		t.Row(more(c, fmt.Sprintf("%d %s", c.Tokens, c.Feed.of()), c.Context, fmt.Sprintf("%.1f", c.TokensPerSecond),
			us(c.StepMicros), ratio, us(c.P50), us(c.P99), us(c.Max), fmt.Sprintf("%.0f", c.GBps),
			fmt.Sprintf("%.0f", c.CeilingGBps), fmt.Sprintf("%.1f %%", 100*c.Share), mark)...)
	}
	return t.Write(w, "  ")
}

// of says whose rows they are.
func (s Shape) of() string {
	if s == Chunk {
		return "of one sequence"
	}
	return "sequences"
}
