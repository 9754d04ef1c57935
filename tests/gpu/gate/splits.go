//go:build cuda

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/runtime/cuda"
	"github.com/mkgen/mkgen/tests/gate"
)

// sweepRecord is what -splits leaves: the same kernel with other numbers of KV
// splits, without planted faults.
type sweepRecord struct {
	What        string         `json:"what"`
	GPU         string         `json:"gpu"`
	Driver      string         `json:"driver"`
	CUDA        string         `json:"cuda"`
	Commit      string         `json:"commit"`
	Model       string         `json:"model"`
	Contexts    []int          `json:"contexts"`
	WeightsHash string         `json:"weights_hash"`
	Splits      []splitVerdict `json:"splits"`
}

type splitVerdict struct {
	Count int `json:"count"`
	verdict
}

// sweep judges MODEL-splitsN.cubin for every N of a list like "1,16,64".
func sweep(model, kernels, list string, dev *cuda.Device, ref *gate.Reference, out string) error {
	r := sweepRecord{What: "numerics of KV splits", Model: model, WeightsHash: ref.WeightsHash}
	for _, field := range strings.Split(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil || n < 1 {
			return fmt.Errorf("-splits %q: %q, want numbers of splits with commas", list, field)
		}
		v, err := judgeSplits(&r, model, kernels, n, dev, ref)
		if err != nil {
			return fmt.Errorf("%d splits: %w", n, err)
		}
		r.Splits = append(r.Splits, splitVerdict{n, v})
		fmt.Printf("%3d splits: mean KL(o‖k) %.6g, KL(o‖h) %.6g, %d flips, passed %v\n", n, float64(v.KLOurs), float64(v.KLRef), v.Flips, v.Passed)
	}
	text, err := json.MarshalIndent(&r, "", "  ")
	if err != nil || out == "" {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	return os.WriteFile(out, append(text, '\n'), 0o644)
}

// judgeSplits loads the kernel with n splits, judges it and gives the memory back.
func judgeSplits(r *sweepRecord, model, kernels string, n int, dev *cuda.Device, ref *gate.Reference) (verdict, error) {
	b, err := newBench(model, kernels, megakernel.Options{Splits: n}, dev, ref)
	if err != nil {
		return verdict{}, err
	}
	defer b.gpu.Close()
	result, err := b.judge(nothing)
	if err != nil {
		return verdict{}, err
	}
	all := b.record(ref, gate.Record{}, nil)
	r.GPU, r.Driver, r.CUDA, r.Commit, r.Contexts = all.GPU, all.Driver, all.CUDA, all.Commit, all.Cases[0].Contexts
	return describe("", result), nil
}
