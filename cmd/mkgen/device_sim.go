//go:build !cuda

package main

import (
	"context"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/megakernel"
)

const (
	hasCUDA       = false
	defaultDevice = deviceSim
)

// openDevices opens a device for each kernel: executors, the only ones of this build.
func openDevices(_ context.Context, kernels []*megakernel.Kernel, o deviceOptions) ([]runtime.Device, error) {
	if o.name == deviceCUDA {
		return nil, errNoCUDA
	}
	return openSims(kernels)
}

// openPrefill opens a device for a prefill kernel.
func openPrefill(_ context.Context, p *megakernel.Prefill, _ runtime.Device, _ deviceOptions) (runtime.Device, error) {
	return simPrefill(p)
}
