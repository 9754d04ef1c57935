package tests

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/internal/revision"
	"github.com/stretchr/testify/require"
)

// host is the part of a record that says where it was made.
type host struct {
	Date   string `json:"date"`
	Commit string `json:"commit"`
	Go     string `json:"go"`
	Arch   string `json:"arch"`
	CPUs   int    `json:"cpus"`
}

func thisHost() host {
	return host{time.Now().UTC().Format(time.DateOnly), checkout(), runtime.Version(), runtime.GOARCH,
		runtime.GOMAXPROCS(0)}
}

// checkout is the commit that the test was stamped with, else that of the checkout that the working directory is in, as
// revision.String writes it: a test's build records none. It is "unknown" where git does not say.
func checkout() string {
	if stamped := revision.String(); stamped != "unknown" {
		return stamped
	}
	head, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	changes, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no").Output()
	if err != nil {
		return "unknown"
	}
	revision := strings.TrimSpace(string(head))
	if len(changes) > 0 {
		revision += "+modified"
	}
	return revision
}

// writeRecord writes v to the file of the flag -record, of several records to that with what in its name.
func writeRecord(t *testing.T, what string, v any) {
	t.Helper()
	path := *record
	if what != "" {
		path = strings.TrimSuffix(path, ".json") + "-" + what + ".json"
	}
	if !filepath.IsAbs(path) { // from the module's root, not from this package
		path = filepath.Join("..", path)
	}
	text, err := json.MarshalIndent(v, "", "  ")
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
	require.NoError(t, os.WriteFile(path, append(text, '\n'), 0o666))
}

// mutantsRecord is bench/results/executor/…-mutants.json.
type mutantsRecord struct {
	What      string         `json:"what"`
	Host      host           `json:"host"`
	Seconds   float64        `json:"seconds"`
	Mutants   int            `json:"mutants"`
	Reported  int            `json:"reported"`
	Runs      int            `json:"runs"` // of all mutants, on all subjects
	ByClass   map[string]int `json:"by_class"`
	ByReport  map[string]int `json:"by_report"`
	BySeed    map[uint64]int `json:"by_seed"`
	Survivors []survivor     `json:"survivors"`
}

type survivor struct {
	Mutant string `json:"mutant"`
	Runs   int    `json:"runs"` // that showed nothing
	Why    string `json:"why"`
}

func newMutantsRecord(what string, outcomes []outcome, excuses mutate.Excuses, took time.Duration) *mutantsRecord {
	r := &mutantsRecord{What: what, Host: thisHost(), Seconds: took.Round(time.Second / 10).Seconds(),
		Mutants: len(outcomes), ByClass: map[string]int{}, ByReport: map[string]int{}, BySeed: map[uint64]int{}}
	for _, o := range outcomes {
		r.Runs += o.Runs
		r.ByClass[string(o.Class)]++
		if o.Report == "" {
			r.Survivors = append(r.Survivors, survivor{o.String(), o.Runs, excuses.Of(o.Mutation).Why})
			continue
		}
		r.Reported++
		r.ByReport[o.Report]++
		r.BySeed[o.Seed]++
	}
	return r
}

// What is run is counted, on one subject after the other, and nothing else.
func TestARecordOfMutantsSaysHowOftenTheyWereRun(t *testing.T) {
	barrier := func(line string) ir.Stmt { return &ir.Instr{Op: ir.OpBarCTA, Pos: ir.Pos{Line: line}} }
	s := &subject{seeds: 5, ir: &ir.Kernel{Name: "k", Warps: 1,
		Body: &ir.Block{Stmts: []ir.Stmt{barrier("tests/record_test.go:1"), barrier("tests/record_test.go:2"),
			barrier("tests/record_test.go:3")}}}}
	var removed []mutant
	for _, m := range mutantsOf(s.ir) {
		if m.Class == mutate.Remove {
			removed = append(removed, m)
		}
	}
	require.Len(t, removed, 3)
	lines := func(k *ir.Kernel) (all string) {
		for _, b := range k.Body.Stmts {
			all += b.(*ir.Instr).Pos.Line
		}
		return all
	}
	s.run = func(_ context.Context, k *ir.Kernel, seed uint64) (report, place string, err error) {
		if seed == 3 && !strings.Contains(lines(k), "tests/record_test.go:2") {
			report = "data race"
		}
		return report, "", nil
	}
	excuses := mutate.Excuses{{Op: "bar.cta", Classes: []mutate.Class{mutate.Remove}, Why: "nobody needs it"}}
	outcomes := s.tryAll(t, removed, nil) // 5, 3 and 5 runs
	other := *s
	other.seeds = 4
	other.run = func(_ context.Context, k *ir.Kernel, seed uint64) (report, place string, err error) {
		if seed == 2 && !strings.Contains(lines(k), "tests/record_test.go:3") {
			report = "deadlock"
		}
		return report, "", nil
	}
	other.tryAgain(t, outcomes, nil) // 4 and 2
	other.tryAgain(t, outcomes, excuses)
	r := newMutantsRecord("mutants", outcomes, excuses, time.Second)
	require.Equal(t, 5+4+3+5+2, r.Runs)
	require.Equal(t, map[uint64]int{2: 1, 3: 1}, r.BySeed)
	require.Equal(t, []survivor{{"remove bar.cta at tests/record_test.go:1", 5 + 4, "nobody needs it"}}, r.Survivors)
	outcomes = s.tryAll(t, removed[:1], excuses)
	require.Equal(t, knownSeeds, newMutantsRecord("mutants", outcomes, excuses, time.Second).Runs,
		"what a table explains is run less often")
}
