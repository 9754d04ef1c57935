//go:build !cuda

package main

import (
	"context"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/runtime"
)

const (
	hasCUDA       = false
	defaultDevice = deviceSim
)

// openDevice opens a device for a kernel: the executor, the only one of this build.
func openDevice(_ context.Context, mk *megakernel.Kernel, o deviceOptions) (runtime.Device, error) {
	if o.name == deviceCUDA {
		return nil, errNoCUDA
	}
	return openSim(mk)
}
