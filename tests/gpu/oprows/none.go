//go:build !cuda

package main

import (
	"errors"

	"github.com/mkgen/mkgen/tests/kernels"
)

// onGPU cannot run: this program was built without CUDA.
func onGPU(*kernels.OpRows, string, int) ([]byte, error) {
	return nil, errors.New("built without the tag cuda; see the head of tests/gpu/oprows/main.go")
}
