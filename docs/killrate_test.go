package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// killRecord is what a record of the kill rate says of each kernel.
type killRecord struct {
	Host struct {
		Date   string `json:"date"`
		Commit string `json:"commit"`
	} `json:"host"`
	Kernels []struct {
		Kernel       string `json:"kernel"`
		Mutants      int    `json:"mutants"`
		Kinds        int    `json:"kinds"`
		Reported     int    `json:"reported"`
		Excused      int    `json:"excused"`
		NoRule       int    `json:"no_rule"`
		Survivors    int    `json:"survivors"`
		Pairs        int    `json:"pairs"`
		PairReported int    `json:"pairs_reported"`
		PairExcused  int    `json:"pairs_excused"`
	} `json:"kernels"`
}

// The table of the kill rate is what the records say, with the date and the commit of each.
func TestTheKillRateIsTheRecords(t *testing.T) {
	paths, err := filepath.Glob("../bench/results/executor/*-killrate-*.json")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	page := read(t, "docs/verify.md")
	table := "| kernel | mutants | kinds | reported | excused | without a rule | nothing reports | " +
		"pairs | reported | excused | record |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		var r killRecord
		require.NoError(t, json.Unmarshal(text, &r))
		require.Regexp(t, regexp.MustCompile(`^[0-9a-f]{40}$`), r.Host.Commit, "%s: of a changed tree", path)
		require.NotEmpty(t, r.Kernels, path)
		for _, k := range r.Kernels {
			require.Equal(t, k.Mutants, k.Reported+k.Excused+k.Survivors, "%s: %s", path, k.Kernel)
			table += fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %d | %d | %d | %d | %s, %s |\n", k.Kernel, k.Mutants, k.Kinds,
				k.Reported, k.Excused-k.NoRule, k.NoRule, k.Survivors, k.Pairs, k.PairReported, k.PairExcused,
				r.Host.Date, r.Host.Commit[:7])
		}
	}
	require.True(t, strings.Contains(page, table), "docs/verify.md: want\n%s", table)
}
