package verify

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// place is a line of a template, found by what it says; any line of the file
// when text is empty.
type place struct{ file, text string }

// line is "product/vector.go:82", as positions have it.
func (p place) line(t *testing.T) string {
	t.Helper()
	if p.text == "" {
		return position(p.file) + ":"
	}
	data, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(p.file)))
	require.NoError(t, err)
	found := ""
	for i, l := range strings.Split(string(data), "\n") {
		if strings.Contains(l, p.text) {
			require.Empty(t, found, "%q is in %s more than once", p.text, p.file)
			found = fmt.Sprintf("%s:%d", position(p.file), i+1)
		}
	}
	require.NotEmpty(t, found, "%q is not in %s", p.text, p.file)
	return found
}

// position is a file of the repository as positions name it: by its folder and itself.
func position(file string) string { return path.Join(path.Base(path.Dir(file)), path.Base(file)) }

var (
	ringCopy     = place{"pipeline/ring.go", "dsl.BulkCopy(p.r.Data"}
	ringFullWait = place{"pipeline/ring.go", "c.wait(stage, c.next.parity"}
	weightCopy   = place{"tasks/product/gemv.go", "p.Copy(base, w, at"}
	weightLoad   = place{"tasks/product/gemv.go", "[dsl.BF16x2](r.Data).LoadN("}
	inputLoad    = place{"tasks/product/gemv.go", "[dsl.BF16x2](g.X).LoadN("}
	inputStore   = place{"tasks/product/vector.go", "dst.Store(at, v[0])"}
	actStore     = place{"tasks/product/glu.go", "act.Store(from.Add("}
	actLoad      = place{"tasks/product/vector.go", "v := x.LoadN(i.MulC(4)"}
	cacheCopy    = place{"tasks/attention/attention.go", "p.Copy(base.Add("}
	cacheStore   = place{"tasks/attention/qkv.go", ""}
)

// A template broken in the ways that templates are broken in is reported, and
// the report names the template's lines, under every
// schedule.
func TestBrokenTemplatesAreReportedWithTheirLines(t *testing.T) {
	for _, test := range []broken{
		{"missing barrier", mutant("remove bar.sync", "o", "product/vector.go"),
			map[string][]place{"data race": {inputLoad, inputStore}, "uninitialised read": {inputLoad}}},
		{"wrong phase parity", mutant("parity wait.mbar @full: the other parity", "qkv", "product/gemv.go"),
			map[string][]place{"data race": {weightLoad, weightCopy}, "uninitialised read": {weightLoad},
				"deadlock": {ringFullWait}, "mbarrier phase skipped": {}}},
		{"missing proxy fence", mutant("remove fence.proxy.async", "gate_up", "product/gemv.go"),
			map[string][]place{"missing proxy fence": {ringCopy, weightCopy, weightLoad}}},
		{"off-by-one page", nextPage,
			map[string][]place{"data race": {cacheCopy, cacheStore}, "uninitialised read": {cacheCopy}}},
		{"missing sync", noSync("sync after gate_up"), map[string][]place{"data race": {actLoad, actStore},
			"uninitialised read": {actLoad}}},
		{"stage released too early", releaseEarly, map[string][]place{"data race": {weightLoad, weightCopy}}},
		{"too many bytes expected", mutant("bytes mbar.expect @full: 16 bytes more", "down", "product/gemv.go"),
			map[string][]place{"deadlock": {ringFullWait}}},
		{"too few bytes expected", mutant("bytes mbar.expect @full: 16 bytes less", "down", "product/gemv.go"),
			map[string][]place{"deadlock": {ringFullWait}}},
	} {
		t.Run(test.name, func(t *testing.T) { test.isReported(t, megakernel.HeldNone) })
	}
}

// The same of chunks held in registers.
func TestBrokenHoldsAreReportedWithTheirLines(t *testing.T) {
	for _, test := range []broken{
		{"held before it has landed", mutant("remove wait.mbar @full", "chunks held for o", "product/held.go"),
			map[string][]place{"data race": {weightLoad, weightCopy}, "uninitialised read": {weightLoad},
				"mbarrier phase skipped": {}}},
		{"wrong phase parity", mutant("parity wait.mbar @full: the other parity", "chunks held for gate_up", "product/held.go"),
			map[string][]place{"data race": {weightLoad, weightCopy}, "uninitialised read": {weightLoad},
				"deadlock": {ringFullWait}, "mbarrier phase skipped": {}}},
		{"stage not released", mutant("remove mbar.arrive @empty", "chunks held for down", "product/held.go"),
			map[string][]place{"deadlock": {}, "mbarrier misuse": {}}},
	} {
		t.Run(test.name, func(t *testing.T) { test.isReported(t, 2) })
	}
}

// broken is a template broken in one way.
type broken struct {
	name string
	edit func(*ir.Kernel) (*ir.Kernel, error)
	want map[string][]place // by kind: lines of the sides or of their callers
}

// isReported wants a finding of a kernel that holds n chunks under every schedule,
// and in each the lines of its kind.
func (b *broken) isReported(t *testing.T, held int) {
	t.Helper()
	r := b.report(t, Request{Options: megakernel.Options{Held: held}, Seeds: deep.Count(3, 1)})
	require.NotEmpty(t, r.Findings)
	require.Empty(t, r.Values, "a schedule came to its end")
	require.ErrorContains(t, r.Err(), r.Findings[0].Kind)
	var text strings.Builder
	require.NoError(t, r.Write(&text))
	for _, f := range r.Findings {
		require.Contains(t, b.want, f.Kind, f.Text)
		for _, want := range b.want[f.Kind] {
			line := regexp.QuoteMeta(want.line(t)) + `\b`
			require.Regexp(t, line, linesOf(f), f.Text)
			require.Regexp(t, line, text.String())
		}
	}
}

// report checks tiny, broken, in two steps.
func (b *broken) report(t *testing.T, r Request) *Report {
	t.Helper()
	var err error
	r.Config, err = models.Lookup("tiny")
	require.NoError(t, err)
	r.Steps = 2
	report, err := check(t.Context(), r, b.edit)
	require.NoError(t, err)
	return report
}

// linesOf lists the lines of all sides of a finding and their callers'.
func linesOf(f Finding) string {
	var lines strings.Builder
	for _, s := range f.Sides {
		fmt.Fprintf(&lines, "%s %s ", s.Pos.Line, s.Pos.Caller)
	}
	return lines.String()
}

// Mistakes in what is computed have no lines; the values show them.
func TestPlantedFaultsAreReportedByTheValues(t *testing.T) {
	for _, fault := range deep.Most(megakernel.Faults(), 2) {
		c, err := models.Lookup("tiny")
		require.NoError(t, err)
		r, err := Check(t.Context(), Request{Config: c, Options: megakernel.Options{Fault: fault}, Seeds: 1, Steps: 3})
		require.NoError(t, err)
		require.Empty(t, r.Findings)
		require.ErrorContains(t, r.Err(), "logits, seed 1 off by", "%s", fault)
	}
}

// mutant breaks the first instruction in a region, called from a file, as the
// mutation of that name does.
func mutant(name, region, caller string) func(*ir.Kernel) (*ir.Kernel, error) {
	return func(k *ir.Kernel) (*ir.Kernel, error) {
		for _, m := range mutate.List(k) {
			if m.Name == name && m.Region == region && strings.HasPrefix(m.Pos.Caller, caller) {
				return mutate.Apply(k, m)
			}
		}
		return nil, fmt.Errorf("no %s in %s", name, region)
	}
}

// region is the body of the region of that name that edit is called with.
func region(k *ir.Kernel, name string, edit func(*ir.Region)) (*ir.Kernel, error) {
	k = mutate.Clone(k)
	found := 0
	ir.Walk(k.Body, func(s ir.Stmt) bool {
		if r, ok := s.(*ir.Region); ok && r.Name == name {
			edit(r)
			found++
		}
		return true
	})
	if found == 0 {
		return nil, fmt.Errorf("no region %s", name)
	}
	return k, nil
}

// noSync leaves out a sync, both its barriers included.
func noSync(name string) func(*ir.Kernel) (*ir.Kernel, error) {
	return func(k *ir.Kernel) (*ir.Kernel, error) {
		return region(k, name, func(r *ir.Region) {
			var kept []ir.Stmt
			for _, s := range r.Body.Stmts {
				if in, ok := s.(*ir.Instr); ok && in.Op != ir.OpBarSync {
					kept = append(kept, s)
				}
			}
			r.Body.Stmts = kept
		})
	}
}

// nextPage looks a page of the cache up one entry too far in the table.
func nextPage(k *ir.Kernel) (*ir.Kernel, error) { return nextPageIn(k, "page_table") }

func nextPageIn(k *ir.Kernel, table string) (*ir.Kernel, error) {
	return region(k, "attention", func(r *ir.Region) {
		eachBlock(r.Body, func(b *ir.Block) {
			for i, s := range b.Stmts {
				in, ok := s.(*ir.Instr)
				if !ok || in.Op != ir.OpLd || in.Mem[0].Buf.Name != table {
					continue
				}
				v := &ir.Value{ID: k.NumValues, Type: ir.U32}
				k.NumValues++
				v.Def = &ir.Instr{Pos: in.Pos, Op: ir.OpAdd, T: ir.U32, Args: []*ir.Value{in.Mem[0].Index, ir.ConstInt(ir.U32, 1)},
					Res: []*ir.Value{v}}
				in.Mem[0].Index = v
				b.Stmts = append(b.Stmts[:i:i], append([]ir.Stmt{v.Def}, b.Stmts[i:]...)...)
				return
			}
		})
	})
}

// releaseEarly moves the release of a stage from behind its use to right behind
// the wait for it, with the arithmetic that it needs.
func releaseEarly(k *ir.Kernel) (*ir.Kernel, error) {
	return region(k, "gate_up", func(r *ir.Region) {
		eachBlock(r.Body, func(b *ir.Block) {
			wait, release := -1, -1
			for i, s := range b.Stmts {
				if in, ok := s.(*ir.Instr); ok && in.Op == ir.OpWaitMBar && in.Mem[0].Buf.Name == "full" {
					wait = i
				}
				if c, ok := s.(*ir.If); ok && arrives(c) && wait >= 0 && release < 0 {
					release = i
				}
			}
			if release < 0 {
				return
			}
			needed := map[*ir.Value]bool{b.Stmts[release].(*ir.If).Cond: true}
			first, rest := []ir.Stmt{b.Stmts[release]}, []ir.Stmt{}
			for i := release - 1; i > wait; i-- {
				if in, ok := b.Stmts[i].(*ir.Instr); ok && len(in.Res) > 0 && needed[in.Res[0]] {
					first = append([]ir.Stmt{in}, first...)
					for _, a := range in.Args {
						needed[a] = true
					}
					continue
				}
				rest = append([]ir.Stmt{b.Stmts[i]}, rest...)
			}
			copy(b.Stmts[wait+1:], append(first, rest...))
		})
	})
}

// arrives reports whether all that c does is to arrive.
func arrives(c *ir.If) bool {
	in, ok := c.Then.Stmts[0].(*ir.Instr)
	return ok && in.Op == ir.OpMBarArrive && in.Mem[0].Buf.Name == "empty"
}

func eachBlock(b *ir.Block, visit func(*ir.Block)) {
	visit(b)
	for _, s := range b.Stmts {
		for _, inner := range ir.Blocks(s) {
			eachBlock(inner, visit)
		}
	}
}
