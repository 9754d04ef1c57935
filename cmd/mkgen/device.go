package main

import (
	"errors"
	"fmt"

	"github.com/mkgen/mkgen/engine/compile"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
)

// deviceName is a flag that is one of the devices.
type deviceName string

const (
	deviceSim  deviceName = "sim"
	deviceCUDA deviceName = "cuda"
)

func (d *deviceName) String() string { return string(*d) }

func (d *deviceName) Type() string { return "name" }

func (d *deviceName) want() string { return "sim or cuda" }

func (d *deviceName) Set(s string) error {
	if s != string(deviceSim) && s != string(deviceCUDA) {
		return errors.New("unknown")
	}
	*d = deviceName(s)
	return nil
}

// deviceOptions say which device to open, and how its kernel is compiled.
type deviceOptions struct {
	name     deviceName
	arch     string
	compile  compile.Options
	compiled func(*compile.Result) error // is told what came of it, and may refuse it
}

var errNoCUDA = errors.New(
	"--device cuda: this mkgen was built without CUDA; `scripts/build-cuda build -o out/ ./cmd/mkgen` makes out/mkgen with it")

// simWeights is the most bytes of weights that the executor is given: beyond, a
// token takes many minutes.
const simWeights = 1 << 30

// fitsSim refuses a model that is too big for the executor.
func fitsSim(c *models.Config) error {
	if n := c.WeightBytes(); n > simWeights {
		return fmt.Errorf("--device sim: %s has %s of weights, the executor takes up to %s", c.Name,
			megakernel.FormatBytes(n), megakernel.FormatBytes(simWeights))
	}
	return nil
}

// openSims opens the executor for each kernel of a model.
func openSims(kernels []*megakernel.Kernel) (devices []runtime.Device, err error) {
	for _, mk := range kernels {
		if err := fitsSim(&mk.Config); err != nil {
			return nil, err
		}
		sim, err := runtime.NewSim(mk.IR, 1)
		if err != nil {
			return nil, err
		}
		devices = append(devices, sim)
	}
	return devices, nil
}
