package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/internal/revision"
	"github.com/mkgen/mkgen/internal/table"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/megakernel"
)

// report prints what was found, and writes record and plot.
func (b *benchFlags) report(w io.Writer, s *bench.Suite, o *bench.Outcome) error {
	facts, mk := s.Machine.Facts(), s.Kernel
	r := &bench.Record{GPU: facts.GPU, Driver: facts.Driver, CUDA: facts.CUDA, Commit: revision.String(),
		Options: bench.OptionsOf(mk.Options, facts.Compiler), Cases: o.Cases}
	if b.cases != "" {
		if err := r.Dump(b.cases); err != nil {
			return fmt.Errorf("--cases: %w", err)
		}
	}
	if facts.Executor {
		return reportExecutor(w, s, o)
	}
	mark, failed := bench.Ungated, error(nil)
	if o.Gate != nil {
		if mark, failed = "passed", o.Gate.Err(); failed != nil {
			mark = "FAILED"
		}
	}
	top := o.Cases[0]
	what, writeTable := "batch 1", bench.WriteTable
	if mk.Ragged() {
		what, writeTable = fmt.Sprintf("%d rows a step", mk.Options.Tokens), bench.WriteStepTable
	}
	table.Text(w, "", "%s on %s (driver %s, CUDA %s), %s, %s", mk.Config.Name, facts.GPU, facts.Driver, facts.CUDA, what,
		s.WeightsName)
	table.Text(w, "", "%s of %s, %d a launch; p50, p99 and max: %s", plural.Of(len(top.Rounds), "round"),
		plural.Of(top.TokensPerRound, "token"), top.TokensPerLaunch, top.PerTokenFrom)
	table.Text(w, "", "Ceiling: bulk copies, best of %s", ceilings(o.Cases))
	if o.Gate != nil {
		reportGate(w, &o.Gate.Gate)
		if err := reportLocal(w, o.Gate.Gate.Local); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	if err := writeTable(w, o.Cases, mark); err != nil {
		return err
	}
	if b.plot != "" {
		note := ""
		if mark != "passed" {
			note = mark
		}
		if err := bench.WriteSVG(b.plot, bench.SeriesOf(r, note)); err != nil {
			return err
		}
		fmt.Fprintf(w, "\nPlot written to %s\n", b.plot)
	}
	if o.Gate == nil {
		_, err := fmt.Fprintf(w, "\nUNGATED: no reference was given (--reference), so no record is written.\n")
		return err
	}
	if failed != nil {
		return failed
	}
	path := b.record
	if path == "" {
		path = bench.Path(results, facts.GPU, b.what(mk)+mk.Config.Name, time.Now())
	}
	if err := r.Write(path); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nRecord written to %s\n", path)
	return err
}

// reportGate prints what a gate found, passed or not.
func reportGate(w io.Writer, g *gate.Record) {
	table.Text(w, "", "Gate: %d positions of sequences of %s tokens. Mean KL %.3g; the kernel's own roundings cost %.3g, the framework's bf16 %.3g. "+
		"Closest to their limits: sequence %d with %.3g of %.3g, and position %s with %.3g of %.3g. %d flips of %d sure tokens; the widest margin of a flip is %.2g of what makes one sure. Faults caught: %s",
		g.Positions, counts(g.Lengths), float64(g.KLOurs), float64(g.KLOwn), float64(g.KLReference),
		g.WorstSeq.Sequence, float64(g.WorstSeq.KLOurs), float64(g.WorstSeq.Limit), g.WorstPos.Place(),
		float64(g.WorstPos.KLOurs), float64(g.WorstPos.Limit),
		g.Flips, g.Sure, float64(g.WidestFlip), strings.Join(g.FaultsCaught, ", "))
	if l := g.Launches; l != nil {
		table.Text(w, "", "Launches of prefill kernels: %d of one sequence, %d of several, %d of these beside sequences that decode; up to %d tokens; chunks of %s.",
			l.One, l.Several, l.Mixed, l.Tokens, cmp.Or(counts(l.Chunks), "no fixed size"))
	}
}

// counts are numbers with commas between.
func counts(all []int) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(all)), ", "), "[]")
}

// what is the first part of the record's name.
func (b *benchFlags) what(mk *megakernel.Kernel) string {
	if mk.Graph != nil {
		return "decode-graph-"
	}
	if b.opts.Tokens > 1 {
		return fmt.Sprintf("steps-of-%d-", b.opts.Tokens)
	}
	return "decode-"
}

// ceilings are the variants that were the fastest, each once.
func ceilings(cases []bench.Case) string {
	var all []string
	for _, c := range cases {
		if v := c.Ceiling.Variant.String(); !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	return strings.Join(all, "; ")
}

// reportExecutor prints what the executor can say: that it ran, and what must be
// read.
func reportExecutor(w io.Writer, s *bench.Suite, o *bench.Outcome) error {
	fmt.Fprintf(w, "%s on the executor with %d SMs: no speed of any GPU\n", s.Kernel.Config.Name, s.Kernel.Options.SMs)
	columns := []string{">context", ">tokens", ">bytes/token", ">executor s/token"}
	drawn := bench.Drawn(o.Cases)
	if drawn {
		columns = append(columns, "chosen")
	}
	t := table.New(columns...)
	for _, c := range o.Cases {
		cells := []any{c.Context, len(c.Rounds) * c.TokensPerRound, megakernel.FormatBytes(int64(c.BytesPerToken)),
			fmt.Sprintf("%.2f", c.DeviceMicros/1e6)}
		if drawn {
			cells = append(cells, bench.Choice{Name: c.Choice})
		}
		t.Row(cells...)
	}
	if err := t.Write(w, "  "); err != nil {
		return err
	}
	if o.Gate != nil {
		reportGate(w, &o.Gate.Gate)
		if err := reportLocal(w, o.Gate.Gate.Local); err != nil {
			return err
		}
		return o.Gate.Err()
	}
	return nil
}
