//go:build cuda

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/engine/runtime/cuda"
	"github.com/mkgen/mkgen/internal/revision"
	"github.com/mkgen/mkgen/tests/kernels"
)

// record is what a comparison leaves under bench/results.
type record struct {
	GPU        string   `json:"gpu"`
	Driver     string   `json:"driver"`
	Commit     string   `json:"commit"`
	Ops        int      `json:"ops"`        // rows of the op table with results compared
	Spans      int      `json:"spans"`      // parts of the output, several an op
	Words      int      `json:"words"`      // 32-bit words compared
	Exact      int      `json:"exact"`      // words that must agree bit for bit, or as floats
	Mismatches []string `json:"mismatches"` // at most 100
	Passed     bool     `json:"passed"`
}

func compare(rows *kernels.OpRows, cubin, path string) error {
	want, err := simulate(rows)
	if err != nil {
		return err
	}
	dev, err := cuda.Open(0)
	if err != nil {
		return err
	}
	defer dev.Close()
	got, err := onGPU(rows, dev, cubin)
	if err != nil {
		return err
	}
	bad, err := rows.Compare(got, want)
	if err != nil {
		return err
	}
	r := record{GPU: dev.Name(), Driver: cuda.DriverRelease(), Commit: revision.String(), Spans: len(rows.Spans),
		Mismatches: []string{}, Passed: len(bad) == 0}
	ops := map[string]bool{}
	for _, s := range rows.Spans {
		ops[s.Op.String()] = true
		r.Words += s.Words
		if s.Check != kernels.Near {
			r.Exact += s.Words
		}
	}
	r.Ops = len(ops)
	for _, m := range bad[:min(len(bad), 100)] {
		r.Mismatches = append(r.Mismatches, m.String())
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	fmt.Println(string(text))
	if path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func onGPU(rows *kernels.OpRows, dev *cuda.Device, cubin string) ([]byte, error) {
	code, err := os.ReadFile(cubin)
	if err != nil {
		return nil, err
	}
	gpu, err := runtime.NewGPU(rows.IR, dev, code)
	if err != nil {
		return nil, err
	}
	defer gpu.Close()
	for _, in := range rows.Inputs {
		if err := gpu.Alloc(in.Name, int64(len(in.Data))); err != nil {
			return nil, err
		}
		if err := gpu.Write(in.Name, 0, in.Data); err != nil {
			return nil, err
		}
	}
	if err := runtime.Launch(gpu, rows.Params); err != nil {
		return nil, err
	}
	out := make([]byte, 4*rows.Words)
	return out, gpu.Read("out", 0, out)
}
