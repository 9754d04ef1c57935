package main

import (
	"fmt"
	"slices"
	"strings"
)

// Tables stand in the page between these lines, NAME being theirs.
const (
	beginMark = "<!-- table %s: written by go run ./tests/numerics -update -->"
	endMark   = "<!-- end of table -->"
)

// tables are all tables of a record by name, in Markdown.
func (r *record) tables() map[string]string {
	out := map[string]string{}
	for i, m := range r.Models {
		key := []string{"half", "tiny"}[i]
		for _, g := range []string{groupAlone, groupWhole, groupBut, groupHF, groupE4M3} {
			out[key+" "+g] = m.table(g)
		}
	}
	for name, what := range map[string]string{"states": attnStates, "merge": attnMerge, "weights": attnWeights,
		"together": attnAll} {
		out["attention "+name] = r.attentionTable(what)
	}
	out["products"] = r.productTable()
	return out
}

// table is the variants of a group: relative rms and KL at every context, then
// the share of the margin used at the middle one and all flips. Roundings alone,
// the framework's and a cache's in e4m3 too, also get their share of the whole kernel's squared error at
// the middle context; for the kernel's own, a last row says what the shares add up to.
func (m *modelRecord) table(group string) string {
	head := []string{""}
	for _, c := range m.Contexts {
		head = append(head, fmt.Sprintf("rms at %d", c.Context))
	}
	for _, c := range m.Contexts {
		head = append(head, fmt.Sprintf("KL at %d", c.Context))
	}
	middle := m.Contexts[len(m.Contexts)/2]
	head = append(head, fmt.Sprintf("margin used at %d", middle.Context),
		fmt.Sprintf("flips of %d", m.Positions*len(m.Contexts)))
	shared := group == groupAlone || group == groupHF || group == groupE4M3
	if shared {
		head = append(head, fmt.Sprintf("share at %d", middle.Context))
	}
	rows := [][]string{head}
	whole, shares := middle.find(kernelWhole).RelRMS, 0.0
	for i, r := range middle.Results {
		if r.Group != group {
			continue
		}
		row, flips := []string{r.Name}, 0
		for _, c := range m.Contexts {
			row = append(row, number(c.Results[i].RelRMS))
			flips += c.Results[i].Flips
		}
		for _, c := range m.Contexts {
			row = append(row, number(c.Results[i].KL))
		}
		row = append(row, percent(r.Margin), fmt.Sprint(flips))
		if shared {
			share := r.RelRMS * r.RelRMS / (whole * whole)
			row, shares = append(row, percent(share)), shares+share
		}
		rows = append(rows, row)
	}
	if group == groupAlone {
		last := append(make([]string, len(head)-1), percent(shares))
		last[0] = "sum of the shares"
		rows = append(rows, last)
	}
	return markdown(rows)
}

// find is the result of a name, of which there is one but in groupBut.
func (c *contextRecord) find(name string) result {
	i := slices.IndexFunc(c.Results, func(r result) bool { return r.Name == name })
	if i < 0 {
		panic("BUG: no variant " + name)
	}
	return c.Results[i]
}

// percent is a share in two significant digits, below 0.01 % just that.
func percent(x float64) string {
	switch {
	case x < 1e-4:
		return "< 0.01 %"
	case x >= 0.995:
		return fmt.Sprintf("%.0f %%", 100*x)
	}
	return fmt.Sprintf("%.2g %%", 100*x)
}

func (r *record) attentionTable(what string) string {
	head := []string{"splits"}
	for _, c := range attentionContexts {
		head = append(head, fmt.Sprintf("context %d", c))
	}
	rows := [][]string{head}
	find := func(what string, size, splits int) string {
		i := slices.IndexFunc(r.Attention, func(s single) bool {
			return s.What == what && s.Size == size &&
				s.Splits == splits
		})
		if i < 0 {
			return "–"
		}
		return number(r.Attention[i].RelRMS)
	}
	for _, n := range attentionSplits {
		row := []string{fmt.Sprint(n)}
		for _, c := range attentionContexts {
			row = append(row, find(what, c, n))
		}
		rows = append(rows, row)
	}
	if what == attnAll {
		row := []string{"the output in bf16, all else exact"}
		for _, c := range attentionContexts {
			row = append(row, find(attnOutput, c, 0))
		}
		rows = append(rows, row)
	}
	return markdown(rows)
}

func (r *record) productTable() string {
	head := []string{"columns"}
	for _, k := range productColumns {
		head = append(head, fmt.Sprint(k))
	}
	rows := [][]string{head}
	for _, what := range []string{sumNearest, sumToZero, sumInOrder, sumInput} {
		row := []string{what}
		for _, s := range r.Products {
			if s.What == what {
				row = append(row, number(s.RelRMS))
			}
		}
		rows = append(rows, row)
	}
	return markdown(rows)
}

// number is x in two significant digits: 1.2e-3.
func number(x float64) string {
	if x == 0 {
		return "0"
	}
	mantissa, exponent, _ := strings.Cut(fmt.Sprintf("%.1e", x), "e")
	sign := ""
	if exponent[0] == '-' {
		sign = "-"
	}
	return mantissa + "e" + sign + strings.TrimLeft(exponent[1:], "0")
}

// markdown is a table whose first row is the head; columns but the first are
// set to the right.
func markdown(rows [][]string) string {
	var b strings.Builder
	for i, row := range rows {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			b.WriteString("|---|" + strings.Repeat("---:|", len(row)-1) + "\n")
		}
	}
	return b.String()
}

// fillIn replaces what stands between the marks of each table in a page. A table without
// marks, or marks without a table, is an error.
func fillIn(page string, tables map[string]string) (string, error) {
	names := make([]string, 0, len(tables))
	for name := range tables {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		mark := fmt.Sprintf(beginMark, name) + "\n"
		before, rest, ok := strings.Cut(page, mark)
		if !ok {
			return "", fmt.Errorf("the page has no line %q", strings.TrimSpace(mark))
		}
		_, after, ok := strings.Cut(rest, endMark)
		if !ok {
			return "", fmt.Errorf("table %q has no line %q", name, endMark)
		}
		page = before + mark + "\n" + tables[name] + "\n" + endMark + after
	}
	if marks := strings.Count(page, "<!-- table "); marks != len(tables) {
		return "", fmt.Errorf("the page has the marks of %d tables, the record %d tables", marks, len(tables))
	}
	return page, nil
}
