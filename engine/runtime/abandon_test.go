//go:build cuda

package runtime

import (
	"testing"
	"time"

	"github.com/mkgen/mkgen/engine/runtime/cuda"
	"github.com/stretchr/testify/require"
)

// Freeing memory, or closing a device, waits for kernels that run: beside one that
// does not leave it would wait for ever.
func TestClosingBesideAKernelThatDoesNotEndReturns(t *testing.T) {
	dev := &cuda.Device{}
	g := &GPU{dev: dev, done: make(chan struct{})}
	ended := make(chan error, 2)
	go func() {
		ended <- g.Close()
		ended <- dev.Close()
	}()
	for _, want := range []error{ErrRunning, nil} {
		select {
		case err := <-ended:
			require.ErrorIs(t, err, want)
		case <-time.After(10 * time.Second):
			require.FailNow(t, "it waits")
		}
	}
}
