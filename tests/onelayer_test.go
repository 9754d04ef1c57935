//go:build unix

package tests

import (
	"flag"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/verify"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

var (
	real  = flag.Bool("real", false, "run a layer of llama3.2-1b at real size on the executor; minutes, and some GiB")
	vocab = flag.Int("vocab", 128256, "with -real, rows of the embedding and of the LM head")
)

// layerRecord is bench/results/executor/…-one-layer.json.
type layerRecord struct {
	What         string              `json:"what"`
	Host         host                `json:"host"`
	Model        string              `json:"model"`
	Layers       int                 `json:"layers"`
	Vocab        int                 `json:"vocab"`
	SMs          int                 `json:"sms"`
	Splits       int                 `json:"kv_splits"`
	Context      int                 `json:"context"`
	Steps        int                 `json:"steps"`
	Instructions int64               `json:"warp_instructions"`
	PrepareS     float64             `json:"prepare_s"` // weights, packing and the reference
	RunS         float64             `json:"run_s"`     // all steps, packing for the device included
	CPUS         float64             `json:"cpu_s"`     // processor time of all of it; the machine may have had other work
	MemoryBytes  uint64              `json:"memory_bytes"`
	Conditions   []verify.Condition  `json:"conditions"`
	Values       []verify.Comparison `json:"values"`
	Findings     []verify.Finding    `json:"findings"`
	Passed       bool                `json:"passed"`
}

// One layer of llama3.2-1b, at real size over 132 SMs, with as many KV splits as
// on the GPU and a token in each.
func TestOneLayerAtRealSize(t *testing.T) {
	if !*real {
		t.Skip("only with -real")
	}
	c, err := models.Lookup("llama3.2-1b")
	require.NoError(t, err)
	c.Layers, c.Vocab, c.BOS, c.EOS = 1, *vocab, models.NoToken, nil
	mk, err := megakernel.Build(c, megakernel.Options{})
	require.NoError(t, err)
	start := time.Now()
	trial, err := verify.NewTrial(mk, 2)
	require.NoError(t, err)
	prepared := time.Now()
	run, err := trial.Run(t.Context(), mk.IR, 1)
	require.NoError(t, err)
	took := time.Since(prepared)
	report := trial.Judge(run)
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	if *record != "" {
		writeRecord(t, "", layerRecord{
			What: "one layer at real size on the executor", Host: thisHost(), Model: c.Name, Layers: c.Layers, Vocab: c.Vocab,
			SMs: mk.Options.SMs, Splits: mk.Options.Splits, Context: trial.Context(), Steps: report.Steps,
			Instructions: report.Instructions,
			PrepareS:     prepared.Sub(start).Seconds(), RunS: took.Seconds(), CPUS: cpuSeconds(t), MemoryBytes: mem.Sys,
			Conditions: report.Conditions, Values: report.Values, Findings: report.Findings, Passed: report.OK()})
	}
	t.Logf("%d warp instructions in %.0f s", report.Instructions, took.Seconds())
	for _, cond := range report.Conditions {
		t.Logf("%s: %s, want %s", cond.Name, cond.Have, cond.Want)
	}
	require.NoError(t, report.Err())
}

// cpuSeconds is the processor time of this process.
func cpuSeconds(t *testing.T) float64 {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
