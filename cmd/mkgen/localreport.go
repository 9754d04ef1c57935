package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/internal/table"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/lab/probe"
)

// reportLocal prints what the gate's local checks found; nothing where there were none.
func reportLocal(w io.Writer, l *gate.Local) error {
	if l == nil {
		return nil
	}
	for _, f := range l.Rows {
		table.Text(w, "", "%s of all sequences, layers and positions: %.2g at most, limit %.2g (%d compared; %s)", f.What,
			f.Worst, f.Limit, f.Count, f.Where)
	}
	if len(l.Settings) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	for _, s := range l.Settings {
		table.Text(w, "", "%s context: positions %d to %d of sequence %d, layers checked at %v", s.Name, s.From, s.To-1,
			s.Sequence, s.Probed)
	}
	if err := figuresTable(l).Write(w, "  "); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return faultsTable(l).Write(w, "  ")
}

// settingsOf are a table's head and its rows' cells, a column for each setting.
func settingsOf(l *gate.Local, first string, cell func(s *gate.LocalSetting) string) (head []string, cells []any) {
	head = []string{first}
	for i := range l.Settings {
		head = append(head, l.Settings[i].Name+" context")
		cells = append(cells, cell(&l.Settings[i]))
	}
	return head, cells
}

// figuresTable is the worst of each comparison without a fault.
func figuresTable(l *gate.Local) *table.Table {
	head, _ := settingsOf(l, "layers on their own", func(*gate.LocalSetting) string { return "" })
	t := table.New(append(head, ">limit")...)
	for _, f := range l.Settings[0].Figures {
		_, cells := settingsOf(l, "", func(s *gate.LocalSetting) string {
			i := slices.IndexFunc(s.Figures, func(g probe.Figure) bool { return g.What == f.What })
			if i < 0 {
				return "-"
			}
			return fmt.Sprintf("%.2g", s.Figures[i].Worst)
		})
		t.Row(append(append([]any{f.What}, cells...), fmt.Sprintf("%.2g", f.Limit))...)
	}
	return t
}

// faultsTable is what caught each local fault, and by how much it was beyond its limit.
func faultsTable(l *gate.Local) *table.Table {
	t := table.New("planted", "context", "caught by, times the limit")
	for i, f := range l.Settings[0].Faults {
		for j := range l.Settings {
			s := &l.Settings[len(l.Settings)-1-j]
			t.Row(f.Fault, s.Name, caughtBy(&s.Faults[i]))
		}
	}
	return t
}

func caughtBy(f *gate.LocalFault) string {
	switch {
	case f.Skipped != "":
		return "not planted: " + f.Skipped
	case len(f.CaughtBy) == 0:
		return "MISSED"
	}
	var list []string
	for _, by := range f.CaughtBy {
		if i := slices.IndexFunc(f.Figures, func(g probe.Figure) bool { return g.What == by }); i >= 0 {
			by = fmt.Sprintf("%s %.2g×", by, f.Figures[i].Ratio())
		}
		list = append(list, by)
	}
	return strings.Join(list, ", ")
}
