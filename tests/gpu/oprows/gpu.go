//go:build cuda

package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/mkgen/mkgen/megakernel/runtime"
	"github.com/mkgen/mkgen/megakernel/runtime/cuda"
	"github.com/mkgen/mkgen/tests/kernels"
)

// onGPU launches the cubin rounds times on fresh inputs and returns "out",
// which must be the same bytes every time.
func onGPU(rows *kernels.OpRows, cubin string, rounds int) (out []byte, err error) {
	code, err := os.ReadFile(cubin)
	if err != nil {
		return nil, err
	}
	dev, err := cuda.Open(0)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	gpu, err := runtime.NewGPU(rows.IR, dev, code)
	if err != nil {
		return nil, err
	}
	defer gpu.Close()
	for _, in := range rows.Inputs {
		if err := gpu.Alloc(in.Name, int64(len(in.Data))); err != nil {
			return nil, err
		}
	}
	for round := range max(rounds, 1) {
		got, err := launch(rows, gpu)
		if err != nil {
			return nil, fmt.Errorf("launch %d: %w", round, err)
		}
		if out != nil && !bytes.Equal(out, got) {
			return nil, fmt.Errorf("launch %d gives other bytes than the first", round)
		}
		out = got
	}
	return out, nil
}

func launch(rows *kernels.OpRows, gpu *runtime.GPU) ([]byte, error) {
	for _, in := range rows.Inputs {
		if err := gpu.Write(in.Name, 0, in.Data); err != nil {
			return nil, err
		}
	}
	if err := gpu.Launch(rows.Params); err != nil {
		return nil, err
	}
	out := make([]byte, 4*rows.Words)
	return out, gpu.Read("out", 0, out)
}
