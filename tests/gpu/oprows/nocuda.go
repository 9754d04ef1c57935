//go:build !cuda

package main

import (
	"errors"

	"github.com/mkgen/mkgen/tests/kernels"
)

func compare(*kernels.OpRows, string, string) error {
	return errors.New("this program was built without the tag cuda and cannot run a kernel")
}
