package trace

import (
	"fmt"
	"io"
	"math"

	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/internal/table"
)

// scale turns times of a trace into those that people read, and says what they are.
func scale(unit string) (by float64, name string) {
	if unit == Nanoseconds {
		return 1e-3, "µs"
	}
	return 1, "steps"
}

// number is a time for a reader, without its unit.
func number(unit string, x float64) string {
	by, _ := scale(unit)
	x *= by
	switch {
	case x == 0:
		return "0"
	case math.Abs(x) >= 1000 || unit == Steps && math.Abs(x) >= 100:
		return fmt.Sprintf("%.0f", x)
	case math.Abs(x) >= 100 || unit == Steps:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// amount is a time for a reader, with its unit.
func amount(unit string, x float64) string {
	_, name := scale(unit)
	return number(unit, x) + " " + name
}

func percent(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }

// WriteTable prints the figures for a terminal: phases, syncs, tasks.
func (s *Summary) WriteTable(w io.Writer) error {
	for _, line := range append(s.about(), s.notices()...) {
		if err := table.Text(w, "", "%s", line); err != nil {
			return err
		}
	}
	for _, g := range s.grids() {
		if len(g.rows) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(w, "\n%s\n", g.title); err != nil {
			return err
		}
		t := table.New(g.head...)
		for _, row := range g.rows {
			t.Row(row...)
		}
		if err := t.Write(w, "  "); err != nil {
			return err
		}
	}
	return nil
}

// basis is what the figures are of.
func (s *Summary) basis() string {
	line := fmt.Sprintf("%s, %s, %d of %s", plural.Of(s.SMs, "SM"), plural.Of(s.Layers, "layer"), s.Steps,
		plural.Of(s.Seen, "step"))
	if s.Cold >= 0 {
		line += fmt.Sprintf("; step %d is left out, its caches are cold", s.Cold)
	}
	return line + "."
}

// about is what the trace is of, and where the time went.
func (s *Summary) about() []string {
	lines := []string{fmt.Sprintf("%s on %s: %s", s.Model, s.Device, s.basis())}
	p := s.Shares()
	if p.Time == 0 {
		return lines
	}
	of := "step"
	if s.Steps == 0 {
		of = "layer"
	}
	lines = append(lines, fmt.Sprintf("A %s takes %s: consumers work %s of it, wait for chunks %s, for syncs %s%s%s.",
		of, amount(s.Unit, p.Time),
		percent(p.Share(p.Work)), percent(p.Share(p.Chunks)), percent(p.Share(p.Syncs)), s.others(), s.full()))
	if s.Steps > 0 && s.LayerRuns > 0 {
		lines = append(lines, fmt.Sprintf("A layer takes %s.", amount(s.Unit, s.Layer.Time)))
	}
	return lines
}

// others names waits for words where there are any.
func (s *Summary) others() string {
	if p := s.Shares(); p.Others > 0 {
		return ", for words " + percent(p.Share(p.Others))
	}
	return ""
}

// full says how long the ring is full where producers have tracks.
func (s *Summary) full() string {
	if s.Producers == 0 {
		return ""
	}
	p := s.Shares()
	return "; the ring is full " + percent(p.Share(p.RingFull)) + " of it"
}

// notices are what a reader must know before believing a figure.
func (s *Summary) notices() (lines []string) {
	if s.SMs == 0 || s.Seen == 0 {
		lines = append(lines, "The trace has no spans of consumers.")
	}
	if s.Unit == Steps {
		lines = append(lines, "Times are steps of the executor's scheduler: an order, not a speed.")
	}
	if s.SMs > 0 && s.Producers == 0 {
		lines = append(lines, "The trace has no producers' tracks: it does not tell when the ring was full.")
	}
	if s.Apart > 0 {
		lines = append(lines,
			fmt.Sprintf("Clocks of SMs stood up to %s apart by when syncs released them; that is taken out.",
				amount(s.Unit, s.Apart)))
	}
	by, name := s.contradiction()
	if by > 0 && s.Unit == Steps {
		lines = append(lines, fmt.Sprintf(
			"The %s releases an SM %s early: before the last arrival is noted. On the executor a warp notes when it is its turn.",
			name, amount(s.Unit, by)))
	}
	if by > certain && s.Unit == Nanoseconds {
		lines = append(lines, fmt.Sprintf(
			"The %s releases an SM %s before the last one arrives, which cannot be: times between SMs are that uncertain.", name,
			amount(s.Unit, by)))
	}
	if s.Dropped > 0 {
		lines = append(lines, fmt.Sprintf(
			"%s did not fit; what is drawn ends at %s, and figures are of what is whole up to there.",
			plural.Of(s.Dropped, "span"), amount(s.Unit, s.Until)))
	}
	return lines
}
