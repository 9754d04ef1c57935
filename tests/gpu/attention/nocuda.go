//go:build !cuda

package main

import (
	"context"
	"errors"
)

func run(context.Context, *flags) error {
	return errors.New("this program was built without the tag cuda and cannot run a kernel")
}
