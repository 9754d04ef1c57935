package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/stretchr/testify/require"
)

// killRecord is what a record of the kill rate says of a family of kernels, and of each.
type killRecord struct {
	Host struct {
		Date   string `json:"date"`
		Commit string `json:"commit"`
	} `json:"host"`
	Kinds        int           `json:"kinds"`
	Pairs        int           `json:"pairs"`
	PairReported int           `json:"pairs_reported"`
	PairExcused  int           `json:"pairs_excused"`
	Kernels      []killCount   `json:"kernels"`
	Excuses      []killExcused `json:"excuses"`
}

type killCount struct {
	Kernel       string `json:"kernel"`
	Mutants      int    `json:"mutants"`
	Kinds        int    `json:"kinds"`
	Reported     int    `json:"reported"`
	Excused      int    `json:"excused"`
	Survivors    int    `json:"survivors"`
	Pairs        int    `json:"pairs"`
	PairReported int    `json:"pairs_reported"`
	PairExcused  int    `json:"pairs_excused"`
}

type killExcused struct {
	Rule mutate.Rule `json:"rule"`
	Why  string      `json:"why"`
}

// shown are the kernels that have a row of their own in the table; all count in their family's.
var shown = regexp.MustCompile(`^(bf16|e4m3|e4m3b128|i4g128|i8|mxfp4|nvfp4|i4g128-zeros|i4g128,down=i8|` +
	`LM head i8|bf16, KV e4m3|e4m3, activations e4m3), ` +
	`(1 row|1 row, draws, all waits watched|8 rows|16 rows|prefill|prefill of 16 sequences)$`)

// rows are a record's part of the table.
func (r *killRecord) rows(t *testing.T, path string) (text string) {
	all := killCount{Kernel: "all " + plural.Of(len(r.Kernels), "kernel"), Kinds: r.Kinds, Pairs: r.Pairs,
		PairReported: r.PairReported, PairExcused: r.PairExcused}
	row := func(k killCount) {
		text += fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %d | %d | %d | %s, %s |\n", k.Kernel, k.Mutants, k.Kinds,
			k.Reported, k.Excused, k.Survivors, k.Pairs, k.PairReported, k.PairExcused, r.Host.Date, r.Host.Commit[:7])
	}
	for _, k := range r.Kernels {
		require.Equal(t, k.Mutants, k.Reported+k.Excused+k.Survivors, "%s: %s", path, k.Kernel)
		all.Mutants, all.Reported, all.Excused = all.Mutants+k.Mutants, all.Reported+k.Reported, all.Excused+k.Excused
		all.Survivors += k.Survivors
		if shown.MatchString(k.Kernel) {
			row(k)
		}
	}
	row(all)
	return text
}

// The table of the kill rate is what the records say, with the date and the commit of each.
func TestTheKillRateIsTheRecords(t *testing.T) {
	paths, err := filepath.Glob("../bench/results/executor/*-killrate-*.json")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	page := read(t, "docs/verify.md")
	table := "| kernel | mutants | kinds | reported | excused | nothing reports | " +
		"pairs | reported | excused | record |\n|---|---|---|---|---|---|---|---|---|---|\n"
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		var r killRecord
		require.NoError(t, json.Unmarshal(text, &r))
		require.Regexp(t, regexp.MustCompile(`^[0-9a-f]{40}$`), r.Host.Commit, "%s: of a changed tree", path)
		require.NotEmpty(t, r.Kernels, path)
		for _, x := range r.Excuses {
			require.Contains(t, mutate.Rules(), x.Rule, "%s: %s", path, x.Why)
		}
		table += r.rows(t, path)
	}
	require.True(t, strings.Contains(page, table), "docs/verify.md: want\n%s", table)
}
