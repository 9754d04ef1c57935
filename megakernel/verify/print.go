package verify

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/internal/table"
)

// Write prints the report for a person. The same report gives the same text.
// The error is w's.
func (r *Report) Write(w io.Writer) error { return r.write(w, false) }

// WriteLines is Write with every place of the program some of whose instructions did not run.
func (r *Report) WriteLines(w io.Writer) error { return r.write(w, true) }

func (r *Report) write(w io.Writer, lines bool) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s: the kernel's own program, shrunk, on the CPU\n", r.Model)
	r.writeSetting(&b)
	r.writeRun(&b)
	r.writeFindings(&b, r.Command)
	if r.Wide != nil {
		fmt.Fprintf(&b, "\nThe same with all SMs, items that go round the ring twice, and fewer warps\n")
		r.Wide.writeSetting(&b)
		r.Wide.writeRun(&b)
		r.Wide.writeFindings(&b, r.Command)
	}
	if r.Coverage != nil {
		r.Coverage.write(&b, lines)
	}
	_, err := b.WriteTo(w)
	return err
}

func (r *Report) writeSetting(b *bytes.Buffer) {
	equal := table.New("equal to the real kernel", "")
	for _, f := range r.Equal {
		equal.RowWithin([]int{0, 52}, f.Name, f.Value)
	}
	conditions := table.New("still exercised", "here", "wanted", "")
	for _, c := range r.Conditions {
		conditions.RowWithin([]int{0, 20, 20}, c.Name, c.Have, c.Want, verdict(c.Met))
	}
	sizes := table.New("shrunk", ">real", ">here")
	for _, s := range r.Shrunk {
		sizes.Row(s.Name, s.Real, s.Here)
	}
	tables := []*table.Table{equal, conditions, sizes}
	if len(r.Equal) == 0 {
		tables = tables[1:]
	}
	for _, t := range tables {
		b.WriteByte('\n')
		must(t.Write(b, "  "))
	}
}

func (r *Report) writeRun(b *bytes.Buffer) {
	instructions := ""
	if r.Instructions > 0 {
		instructions = fmt.Sprintf(", %s and %d instructions of a warp in all", plural.Of(r.Ran, "launch"), r.Instructions)
	}
	unit := "steps"
	if r.Launches {
		unit = "launches"
	}
	b.WriteByte('\n')
	must(table.Text(b, "", "Ran %s (%s: %s), %d %s each%s", plural.Of(len(r.Seeds), "schedule"), seedsText(r.Seeds),
		strings.Join(policiesOf(r.Seeds), ", "), r.Steps, unit, instructions))
	t := table.New("against the reference", ">values", ">largest\nerror", ">tolerance", "", "where")
	for i := range r.Values {
		c := &r.Values[i]
		t.RowWithin([]int{22, 0, 0, 0, 0, 22}, c.What, c.Compared, number(c.MaxError), number(c.Tolerance), verdict(c.OK()),
			c.Where)
	}
	must(t.Write(b, "  "))
}

// writeFindings lists what was found and, below each, the command that finds it again.
func (r *Report) writeFindings(b *bytes.Buffer, command string) {
	if len(r.Findings) == 0 {
		fmt.Fprintf(b, "\nNo race, no deadlock, no access out of place.\n")
		return
	}
	fmt.Fprintf(b, "\nFound\n")
	for i, f := range r.Findings {
		policy := interp.PolicyOf(cmp.Or(f.Under, f.Seed))
		fmt.Fprintf(b, "  %d. %s (seed %d, %s, step %d): %s\n", i+1, f.Kind, f.Seed, policy, f.Step, f.Text)
		for _, s := range f.Sides {
			fmt.Fprintf(b, "       %s\n         %s\n", strings.Join(nonEmpty(s.What, s.Op, s.Thread), ", "), s.Pos)
		}
		if command != "" {
			fmt.Fprintf(b, "     again: %s --seeds 1 --seed %d\n", command, f.Seed)
		}
	}
}

func nonEmpty(texts ...string) (some []string) {
	for _, t := range texts {
		if t != "" {
			some = append(some, t)
		}
	}
	return some
}

func verdict(ok bool) string {
	if ok {
		return "ok"
	}
	return "FAILS"
}

// seedsText is "seed 3" or "seeds 1-4, 9": runs of neighbours are drawn together.
func seedsText(s []uint64) string {
	if len(s) == 1 {
		return "seed " + seeds(s)
	}
	return "seeds " + seeds(s)
}

func seeds(s []uint64) string {
	var parts []string
	for i := 0; i < len(s); i++ {
		from := i
		for i+1 < len(s) && s[i+1] == s[i]+1 {
			i++
		}
		if from == i {
			parts = append(parts, fmt.Sprint(s[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", s[from], s[i]))
		}
	}
	return strings.Join(parts, ", ")
}

// must is for writes to memory, which do not fail.
func must(err error) {
	if err != nil {
		panic("BUG: " + err.Error())
	}
}
