package machine

import (
	"fmt"
	"io"
	"slices"

	"github.com/mkgen/mkgen/internal/table"
)

// number is a figure's median for a reader, with three or so digits.
func number(x float64) string {
	switch {
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// spread is "2.10–2.31".
func (f *Figure) spread() string { return number(f.Min) + "–" + number(f.Max) }

func (f *Figure) cells() []any { return []any{number(f.Median), f.spread()} }

// WriteTable prints all figures for a terminal: medians, each with its least and greatest.
func (m *Machine) WriteTable(w io.Writer) error {
	if _, err := fmt.Fprintf(w,
		"%s (driver %s, CUDA %s), %d SMs, %s\nRing of %d stages of %d bytes, %d consumer warps\nMedians (least–greatest), times in µs\n\n", m.GPU, m.Driver, m.CUDA, m.SMs, m.Compiler, m.Stages, m.StageBytes, m.Consumers); err != nil {
		return err
	}
	tables := []*table.Table{m.copiesTable(), m.exchangesTable()}
	if t := m.waysTable(); t != nil {
		tables = append(tables, t)
	}
	for _, t := range append(tables, m.drainTable()) {
		if err := t.Write(w, "  "); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
	}
	return nil
}

func (m *Machine) copiesTable() *table.Table {
	t := table.New(">in\nflight", ">GB/s", "", ">L2\nload", "", ">L2\natomic", "")
	row := func(name any, rate *Figure, l *Latency) {
		cells := []any{name, "", ""}
		if rate != nil {
			cells = append(cells[:1], rate.cells()...)
		}
		if l != nil {
			cells = append(append(cells, l.Load.cells()...), l.Atomic.cells()...)
		}
		t.Row(cells...)
	}
	row("ceiling", &m.Ceiling, nil)
	row("idle", nil, &m.Idle)
	for i := range m.Copies {
		row(m.Copies[i].InFlight, &m.Copies[i].GBps, &m.Copies[i].Latency)
	}
	return t
}

func (m *Machine) exchangesTable() *table.Table {
	t := table.New(">in\nflight", ">vector\nbytes", ">wait", "", ">read", "", ">not\nhidden", "", ">counted", "")
	for i := range m.Exchanges {
		e := &m.Exchanges[i]
		read := &e.Read
		if e.VectorBytes == 0 {
			read = nil
		}
		t.Row(e.cells(&e.Wait, read, e.Unhidden, e.Count)...)
	}
	return t
}

// cells are a row: of what exchange, then figures, with nothing for those that are nil.
func (e *Exchange) cells(figures ...*Figure) []any {
	cells := []any{e.InFlight, e.VectorBytes}
	if e.InFlight == 0 {
		cells[0] = "idle"
	}
	for _, f := range figures {
		if f != nil {
			cells = append(cells, f.cells()...)
		} else {
			cells = append(cells, "", "")
		}
	}
	return cells
}

// waysTable is what each way of handing a vector on takes, and adds to a stream; nil
// where a file has the barrier's only.
func (m *Machine) waysTable() *table.Table {
	t := table.New(">in\nflight", ">vector\nbytes", ">counted\nwords", "", ">not\nhidden", "", ">words", "",
		">not\nhidden", "")
	some := false
	for i := range m.Exchanges {
		e := &m.Exchanges[i]
		if e.Counted == nil && e.Words == nil {
			continue
		}
		some = true
		t.Row(e.cells(slices.Concat(e.Counted.figures(), e.Words.figures())...)...)
	}
	if !some {
		return nil
	}
	return t
}

// figures are those of a way, nil for what is not there.
func (w *Way) figures() []*Figure {
	if w == nil {
		return []*Figure{nil, nil}
	}
	return []*Figure{&w.Took, w.Unhidden}
}

func (m *Machine) drainTable() *table.Table {
	t := table.New("consumers", ">µs", "")
	t.Row(append([]any{"drain a full stage"}, m.Drain.Chunk.cells()...)...)
	t.Row(append([]any{"end a product"}, m.Drain.Finish.cells()...)...)
	return t
}
