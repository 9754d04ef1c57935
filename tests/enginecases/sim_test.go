package enginecases

import (
	"fmt"
	"testing"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/stretchr/testify/require"
)

func TestOnTheExecutor(t *testing.T) {
	for _, rows := range deep.Most([]int{5, 1}, 1) {
		t.Run(fmt.Sprintf("%d rows", rows), func(t *testing.T) {
			mk, err := Micro(rows)
			require.NoError(t, err)
			text, err := Bytes()
			require.NoError(t, err)
			b := &Bench{Kernel: mk, Text: text, Soak: deep.Count(250, 50),
				Device: func() (runtime.Device, error) { return runtime.NewSim(mk.IR, 3) }}
			for _, c := range b.Cases() {
				t.Run(c.Name, func(t *testing.T) {
					t.Parallel()
					c.Run(t, b)
				})
			}
		})
	}
}
