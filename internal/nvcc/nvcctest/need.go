// Package nvcctest lets tests need nvcc.
package nvcctest

import (
	"errors"
	"os"
	"testing"

	"github.com/mkgen/mkgen/internal/nvcc"
)

// Need returns nvcc, or skips the test where there is none or tests are to be short. With MKGEN_NEED_NVCC set, as
// .ci/run has it, a missing one is a failure.
func Need(t testing.TB) *nvcc.Compiler {
	t.Helper()
	if testing.Short() {
		t.Skip("compiling takes a while")
	}
	c, err := nvcc.Find("")
	if errors.Is(err, nvcc.ErrNotFound) && os.Getenv("MKGEN_NEED_NVCC") == "" {
		t.Skip("needs nvcc: " + err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}
