package record

import (
	"fmt"
	"io"

	"github.com/mkgen/mkgen/internal/table"
)

// WriteTable prints the cases for a terminal.
func (r *Record) WriteTable(w io.Writer) error {
	t := table.New("case", ">rows", ">page", ">µs/layer", ">GB/s", ">ceiling", ">share", ">plan µs", ">balance",
		">SDPA µs", ">Flex µs", ">error", "gate")
	for i := range r.Cases {
		c := &r.Cases[i]
		mark := "not judged"
		if c.Gate.Passed {
			mark = "passed"
		} else if r.PyTorch.Version != "" {
			mark = "FAILED"
		}
		if !c.Gate.Identical {
			mark += ", DIFFERENT BITS"
		}
		sdpa, flex := "", ""
		if c.PyTorch != nil {
			sdpa, flex = number(c.PyTorch.SDPA.Micros), number(c.PyTorch.Flex.Micros)
		}
		if !c.Timed() {
			t.Row(c.Name, c.Tokens, c.Page, "", "", "", "", number(c.PlanMicros), fmt.Sprintf("%.2f", c.Balance), "", "",
				number(c.Gate.WorstRMS), mark)
			continue
		}
		t.Row(c.Name, c.Tokens, c.Page, number(c.Micros), fmt.Sprintf("%.0f", c.GBps), fmt.Sprintf("%.0f", c.CeilingGB),
			fmt.Sprintf("%.1f %%", 100*c.Share), number(c.PlanMicros), fmt.Sprintf("%.2f", c.Balance), sdpa, flex,
			number(c.Gate.WorstRMS), mark)
	}
	return t.Write(w, "  ")
}

func number(x float64) string {
	if x == 0 {
		return ""
	}
	return fmt.Sprintf("%.3g", x)
}
