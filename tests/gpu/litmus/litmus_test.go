package main

import (
	"errors"
	"testing"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/engine/compile"
	"github.com/mkgen/mkgen/internal/nvcc/nvcctest"
	"github.com/stretchr/testify/require"
)

// What PTX promises the executor passes under every policy; what it does not promise is a fault, or a value that some
// schedule shows.
func TestTheExecutorAgreesWithWhatIsPromised(t *testing.T) {
	for _, lit := range tests() {
		t.Run(lit.name, func(t *testing.T) {
			k, err := lit.kernel(2)
			require.NoError(t, err)
			p, err := interp.Load(k)
			require.NoError(t, err)
			wrong, faults := 0, 0
			for seed := range uint64(12) {
				m := interp.NewMemory()
				for _, b := range k.Globals() {
					m.Bind(b.Name, make([]byte, b.Bytes()))
				}
				_, err := p.Run(m, interp.Options{Seed: seed, Params: map[string]uint64{"rounds": 3, "loads": 2}})
				var f *interp.Fault
				if errors.As(err, &f) {
					faults++
					continue
				}
				require.NoError(t, err)
				for _, b := range m.Bytes("bad") {
					wrong += int(b)
				}
			}
			if lit.promised != "" {
				require.Zero(t, wrong+faults, "%d wrong, %d faults", wrong, faults)
			} else {
				require.NotZero(t, wrong+faults, "the executor shows what PTX allows")
			}
		})
	}
}

// The machine code has the accesses and fences that the tests are about.
func TestTheirMachineCodeIsHeldAgainstThem(t *testing.T) {
	nvcctest.Need(t)
	for _, lit := range tests() {
		k, err := lit.kernel(132)
		require.NoError(t, err)
		src, err := compile.SourceOfKernel(lit.name, k, "sm_90a")
		require.NoError(t, err)
		r, err := compile.Kernel(t.Context(), src, compile.Options{With: compile.Nvcc})
		require.NoError(t, err)
		if err := r.Held(); !errors.Is(err, compile.ErrUnchecked) {
			require.NoError(t, err, lit.name)
		}
	}
}
