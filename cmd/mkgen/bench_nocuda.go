//go:build !cuda

package main

import (
	"errors"

	"github.com/mkgen/mkgen/megakernel/runtime/bench"
)

// openBenchMachine opens the executor; this build knows no GPU.
func openBenchMachine(device string) (bench.Machine, func() error, error) {
	if device == deviceExecutor {
		return bench.Executor{Seed: 1}, func() error { return nil }, nil
	}
	return nil, nil, errors.New("this mkgen was built without CUDA; scripts/build-cuda build ./cmd/mkgen makes one with it, and --device sim needs none")
}
