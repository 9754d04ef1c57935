package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// host is the part of a record that says where it was made.
type host struct {
	Date string `json:"date"`
	Go   string `json:"go"`
	Arch string `json:"arch"`
	CPUs int    `json:"cpus"`
}

func thisHost() host {
	return host{time.Now().UTC().Format(time.DateOnly), runtime.Version(), runtime.GOARCH, runtime.GOMAXPROCS(0)}
}

// writeRecord writes v to the file of the flag -record.
func writeRecord(t *testing.T, v any) {
	t.Helper()
	path := *record
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
	Seeds     int            `json:"seeds"` // tried before a mutant counts as a survivor
	ByClass   map[string]int `json:"by_class"`
	ByReport  map[string]int `json:"by_report"`
	BySeed    map[uint64]int `json:"by_seed"`
	Survivors []survivor     `json:"survivors"`
}

type survivor struct {
	Mutant string `json:"mutant"`
	Why    string `json:"why"`
}

func writeMutants(t *testing.T, what string, outcomes []outcome, reasons table, took time.Duration) {
	t.Helper()
	r := mutantsRecord{What: what, Host: thisHost(), Seconds: took.Round(time.Second / 10).Seconds(),
		Mutants: len(outcomes), Seeds: mutantSeeds, ByClass: map[string]int{}, ByReport: map[string]int{}, BySeed: map[uint64]int{}}
	for _, o := range outcomes {
		r.ByClass[string(o.Class)]++
		if o.Report == "" {
			r.Survivors = append(r.Survivors, survivor{o.String(), reasons.explain(t, o.Mutation).why})
			continue
		}
		r.Reported++
		r.ByReport[o.Report]++
		r.BySeed[o.Seed]++
	}
	writeRecord(t, r)
}
