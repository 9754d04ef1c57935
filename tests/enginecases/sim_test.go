package enginecases

import (
	"testing"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/stretchr/testify/require"
)

func TestOnTheExecutor(t *testing.T) {
	mk, err := Micro()
	require.NoError(t, err)
	text, err := Bytes()
	require.NoError(t, err)
	b := &Bench{Kernel: mk, Text: text, Soak: deep.Count(250, 50), Device: func() (runtime.Device, error) { return runtime.NewSim(mk.IR, 3) }}
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.Run(t, b)
		})
	}
}

func TestABatchOnTheExecutor(t *testing.T) {
	mk, err := MicroRagged(5)
	require.NoError(t, err)
	text, err := Bytes()
	require.NoError(t, err)
	b := &Bench{Kernel: mk, Text: text, Device: func() (runtime.Device, error) { return runtime.NewSim(mk.IR, 3) }}
	for _, c := range BatchCases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.Run(t, b)
		})
	}
}
