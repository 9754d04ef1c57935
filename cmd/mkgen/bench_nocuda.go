//go:build !cuda

package main

import (
	"github.com/mkgen/mkgen/lab/bench"
)

// openBenchMachine opens the executor; this build knows no GPU.
func openBenchMachine(device deviceName, _ string) (bench.Machine, func() error, error) {
	if device == deviceSim {
		return bench.Executor{Seed: 1}, func() error { return nil }, nil
	}
	return nil, nil, errNoCUDA
}
