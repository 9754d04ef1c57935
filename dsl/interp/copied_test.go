package interp_test

import (
	"errors"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/stretchr/testify/require"
)

// Bytes that nobody wrote may be copied; the read that finds them in shared
// memory names the copy that brought them, since the mistake is there.
func TestReadOfCopiedUninitialisedBytesNamesTheCopy(t *testing.T) {
	p := build(t, 1, 1, func(k *dsl.Kernel) {
		x, out := dsl.Global[dsl.U32](k, "x", 32), dsl.Global[dsl.U32](k, "out", 32)
		dst, bar := dsl.Shared[dsl.U32](k, "dst", 32, dsl.Align(16)), dsl.NewMBars(k, "bar", 1)
		k.If(k.Lane().EqC(0), func() {
			bar.Init(dsl.At(0), k.U32(1))
			k.FenceMBarInit()
			bar.ArriveExpect(dsl.At(0), k.U32(128))
			dsl.BulkCopy(dst, dsl.At(0), x, dsl.At(0), k.U32(128), bar, dsl.At(0))
		})
		k.SyncWarp()
		bar.Wait(dsl.At(0), k.U32(0))
		out.Store(k.Lane(), dst.Load(k.Lane()))
	})
	m := bufs(p)
	m.MarkUninit("x")
	m.MarkInit("x", 0, 64)
	_, err := p.Run(m, interp.Options{})
	var f *interp.Fault
	require.True(t, errors.As(err, &f))
	require.Equal(t, interp.Uninitialised, f.Kind)
	require.Equal(t, "reads element 16 of @dst, which a bulk copy brought from where nobody has written", f.Text)
	require.Len(t, f.Sides, 2)
	require.Equal(t, "interp/copied_test.go:26", f.Sides[0].Pos.Line)
	require.Equal(t, "interp/copied_test.go:22", f.Sides[1].Pos.Line)
}
