package interp_test

import (
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/stretchr/testify/require"
)

// boxOf copies a box of 8 rows of 128 bytes at a row of a buffer of any length to a word of shared memory, and stores
// its first word of each row.
func boxOf(t *testing.T, row, to int) *interp.Program {
	return build(t, 1, 1, func(k *dsl.Kernel) {
		src := dsl.Global[dsl.B128](k, "src", 0, dsl.ReadOnly())
		out := dsl.Global[dsl.U32](k, "out", 8)
		tile := dsl.Shared[dsl.U32](k, "tile", 512)
		bars := dsl.NewMBars(k, "landed", 1)
		m := dsl.NewTensorMap(k, "map", src, 0, [3]int64{64, 1, 0}, [2]int64{128, 128}, [3]int{64, 1, 8})
		k.If(k.Lane().EqC(0), func() {
			at := dsl.Opaque(k.U32(to))
			bars.Init(dsl.At(0), k.U32(1))
			k.FenceMBarInit()
			bars.ArriveExpect(dsl.At(0), k.U32(m.BoxBytes()))
			dsl.TensorCopy(tile, at, m, [3]dsl.Val[dsl.I32]{k.I32(0), k.I32(0), k.I32(row)}, bars, dsl.At(0), 0)
		})
		k.SyncWarp()
		bars.Wait(dsl.At(0), k.U32(0))
		k.If(k.Lane().LtC(8), func() { out.Store(k.Lane(), tile.Load(k.Lane().MulC(32).AddC(to))) })
	})
}

func boxMemory(p *interp.Program, bytes int) *interp.Memory {
	m, src := bufs(p), make([]byte, bytes)
	for i := 0; i < bytes; i += 128 {
		src[i] = byte(i/128 + 1)
	}
	m.Bind("src", src)
	return m
}

// What lies outside of a map comes as zeros and counts as bytes, as the GPU has it: nobody is told of a box that lies
// outside wholly, of which the last tiles of a product have some.
func TestABoxOutsideOfItsMapBringsZeros(t *testing.T) {
	for row, want := range map[int][]uint32{0: {1, 2, 3, 4, 5, 6, 7, 8}, 14: {15, 16, 0, 0, 0, 0, 0, 0},
		-3: {0, 0, 0, 1, 2, 3, 4, 5}, 16: make([]uint32, 8), -8: make([]uint32, 8)} {
		p := boxOf(t, row, 0)
		m := boxMemory(p, 16*128)
		run(t, p, m, 1)
		require.Equal(t, want, u32s(m.Bytes("out")), "from row %d on", row)
	}
}

// The driver refuses to encode such a map.
func TestAMapWithoutElementsIsAFault(t *testing.T) {
	p := boxOf(t, 0, 0)
	_, err := p.Run(boxMemory(p, 64), interp.Options{})
	require.ErrorContains(t, err,
		"a tensor map of 0 elements in its last dimension, over @src of 64 bytes, want 1 to 2^31")
}

func TestABoxGoesToAMultipleOf128BytesOfItsBuffer(t *testing.T) {
	run(t, boxOf(t, 0, 32), boxMemory(boxOf(t, 0, 32), 16*128), 1)
	for to, want := range map[int]string{16: "want a multiple of 128", 256 + 32: "a box of 1024 bytes at element 288"} {
		p := boxOf(t, 0, to)
		_, err := p.Run(boxMemory(p, 16*128), interp.Options{})
		require.ErrorContains(t, err, want)
	}
}
