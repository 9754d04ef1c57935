//go:build !cuda

package main

import "errors"

func run(float64, string) error {
	return errors.New("built without the tag cuda; build it with: scripts/build-cuda build -o out/dev/ ./tests/gpu/litmus")
}
