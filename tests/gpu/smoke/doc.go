//go:build !cuda

// Command smoke shows that the driver package works on a real GPU. It needs the build tag cuda: scripts/build-cuda
// build -o out/ ./tests/gpu/smoke. Without the tag it only says so.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "smoke: built without the tag cuda; build it with: scripts/build-cuda build -o out/ ./tests/gpu/smoke")
	os.Exit(2)
}
