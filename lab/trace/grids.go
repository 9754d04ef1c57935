package trace

import (
	"fmt"
	"strings"
)

// grid is a table for a terminal or a page.
type grid struct {
	title string
	head  []string // as internal/table has it: ">" aligns to the right
	rows  [][]any
}

// right says whether a column is aligned so, and gives its head.
func right(head string) (bool, string) {
	name, ok := strings.CutPrefix(head, ">")
	return ok, name
}

// grids are the tables of a summary.
func (s *Summary) grids() []grid { return []grid{s.phaseGrid(), s.syncGrid(), s.taskGrid()} }

func (s *Summary) phaseGrid() grid {
	_, unit := scale(s.Unit)
	g := grid{title: "Phases, in " + unit + ": what an SM takes for one, the sync behind it included"}
	columns := s.partColumns()
	g.head = []string{"phase", ">runs", ">mean", ">median", ">slowest"}
	for _, c := range columns {
		g.head = append(g.head, ">"+c.head)
	}
	row := func(name string, runs int, p Parts, median, slowest string) {
		cells := []any{name, runs, number(s.Unit, p.Time), median, slowest}
		for _, c := range columns {
			cells = append(cells, number(s.Unit, c.of(p)))
		}
		g.rows = append(g.rows, cells)
	}
	for _, p := range s.Phases {
		row(p.Name, p.Runs, p.Parts, number(s.Unit, p.Median), number(s.Unit, p.Max))
	}
	if s.LayerRuns > 0 {
		row("a layer", s.LayerRuns, s.Layer, "", "")
	}
	if s.Steps > 0 {
		row("a step", s.Steps, s.Step, "", "")
	}
	return g
}

// partColumn is a column of a part.
type partColumn struct {
	head string
	of   func(Parts) float64
}

// partColumns leaves out what the trace has nothing of.
func (s *Summary) partColumns() []partColumn {
	columns := []partColumn{{"work", func(p Parts) float64 { return p.Work }},
		{"chunks", func(p Parts) float64 { return p.Chunks }}, {"sync", func(p Parts) float64 { return p.Syncs }}}
	if s.anyOthers() {
		columns = append(columns, partColumn{"words", func(p Parts) float64 { return p.Others }})
	}
	if s.Producers > 0 {
		columns = append(columns, partColumn{"ring\nfull", func(p Parts) float64 { return p.RingFull }},
			partColumn{"in\nflight", func(p Parts) float64 { return p.InFlight }})
	}
	return columns
}

func (s *Summary) anyOthers() bool {
	some := s.Step.Others > 0
	for _, p := range s.Phases {
		some = some || p.Others > 0
	}
	return some
}

func (s *Summary) syncGrid() grid {
	_, unit := scale(s.Unit)
	g := grid{title: "Syncs, in " + unit + ": arrivals and releases of the SMs",
		head: []string{"sync", ">runs", ">wait", ">last\n− mean", ">last\n− first", ">release", ">spread",
			"late\nmost often"}}
	for _, h := range s.Syncs {
		n := func(x float64) string { return number(s.Unit, x) }
		g.rows = append(g.rows, []any{h.Name, h.Runs, n(h.Wait), n(h.Skew), n(h.Range), release(s.Unit, h.Latency, number),
			n(h.Spread), h.lateWords()})
	}
	return g
}

// release is the time from the last arrival to the first release, as show shows times; in words where
// it is below 0.
func release(unit string, x float64, show func(unit string, x float64) string) string {
	if x < 0 {
		return show(unit, -x) + " early"
	}
	return show(unit, x)
}

// lateWords says who was late and how often.
func (h *SyncSummary) lateWords() string {
	if h.LateSM < 0 {
		return "–"
	}
	return fmt.Sprintf("SM %d, %d of %d", h.LateSM, h.Late, h.Runs)
}

func (s *Summary) taskGrid() grid {
	_, unit := scale(s.Unit)
	g := grid{title: "Tasks, in " + unit + ": one, and what it waits",
		head: []string{"phase", "task", ">a run", ">time", ">waits"}}
	for _, k := range s.Tasks {
		g.rows = append(g.rows, []any{k.Phase, k.Name, fmt.Sprintf("%.2f", k.Count), number(s.Unit, k.Time),
			number(s.Unit, k.Waits)})
	}
	return g
}
