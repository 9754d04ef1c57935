package dsl_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
)

func TestDeclarations(t *testing.T) {
	require.Equal(t, text("kernel test warps=4 shared=256/4096",
		"param n:u32  // tokens", "param scale:f32",
		"global @w:bf16[] align=128 readonly  // weights", "shared @a:f32[16] offset=0 align=4",
		"shared @b:u64[2] offset=128 align=64",
		"shared @c:f16[4] offset=160 align=2", "shared @d:f32[22] offset=168 align=4"), decls(t, func(k *dsl.Kernel) {
		dsl.Scalar[dsl.U32](k, "n", "tokens")
		dsl.Scalar[dsl.F32](k, "scale", "")
		dsl.Global[dsl.BF16](k, "w", 0, dsl.ReadOnly(), dsl.Align(128), dsl.Doc("weights"))
		dsl.Shared[dsl.F32](k, "a", 16)
		dsl.Shared[dsl.U64](k, "b", 2, dsl.Align(64), dsl.PlaceAt(128))
		dsl.Shared[dsl.F16](k, "c", 4, dsl.PlaceAt(160))
		dsl.Shared[dsl.F32](k, "d", 22)
	}))
}

func TestDeclarationsRefuse(t *testing.T) {
	require.Equal(t, text(`name "w" is taken, by the declaration at dsl/memory_test.go:35`,
		`name "w" is taken, by the declaration at dsl/memory_test.go:35`, `name "2x" is not a C identifier`,
		`name "" is not a C identifier`, "buffer neg has -1 elements, want 0 to 2^40",
		"buffer far is placed at byte 64; only a shared buffer has a place, from 0 on",
		"buffer odd is aligned to 12 bytes, want a power of two", "view of @w as b128: 6 bytes are no multiple of 16"),
		mistakes(t, func(k *dsl.Kernel) {
			w := dsl.Global[dsl.BF16](k, "w", 3)
			dsl.Shared[dsl.BF16](k, "w", 1)
			dsl.Scalar[dsl.U32](k, "w", "")
			dsl.Global[dsl.BF16](k, "2x", 1)
			dsl.Global[dsl.BF16](k, "", 1)
			dsl.Global[dsl.BF16](k, "neg", -1)
			dsl.Global[dsl.BF16](k, "far", 1, dsl.PlaceAt(64))
			dsl.Global[dsl.BF16](k, "odd", 1, dsl.Align(12))
			dsl.View[dsl.B128](w)
		}))
}

func TestAViewCoversItsRootAndRaisesItsAlignment(t *testing.T) {
	p := finish(t, func(k *dsl.Kernel) {
		dsl.Shared[dsl.BF16](k, "first", 1)
		tile := dsl.Shared[dsl.BF16](k, "tile", 64)
		wide := dsl.View[dsl.B128](tile)
		require.Equal(t, int64(8), wide.Len())
		words := dsl.View[dsl.U32](wide)
		words.Store(dsl.At(31), k.U32(1))
		dsl.View[dsl.BF16](words).Store(dsl.At(63), dsl.Lit[dsl.BF16](k, 0))
		wide.Store(nil, dsl.View[dsl.B128](tile).Load(dsl.At(7)))
	})
	require.Len(t, p.Bufs, 4, "one view a type, and the root itself for its own")
	require.Equal(t, text("shared @tile:bf16[64] offset=16 align=16"), p.Bufs[1].Decl())
	require.Same(t, p.Bufs[1], p.Bufs[3].Root, "views of views point at the root")
}

func TestAViewOfHostBoundLengthIsHostBound(t *testing.T) {
	p := finish(t, func(k *dsl.Kernel) {
		out(k, dsl.Split(dsl.View[dsl.B128](dsl.Global[dsl.BF16](k, "w", 0, dsl.ReadOnly())).Load(k.Lane()))...)
	})
	require.Equal(t, "view @w:b128[] of @w offset=0", p.Bufs[1].Decl())
	require.True(t, p.Bufs[1].ReadOnly)
}

func TestVectorsRaiseTheAlignment(t *testing.T) {
	p := finish(t, func(k *dsl.Kernel) {
		x, y := dsl.Global[dsl.F32](k, "x", 0), dsl.Shared[dsl.F32](k, "y", 8)
		y.StoreN(nil, x.LoadN(k.Lane(), 2))
		y.StoreN(dsl.At(4), []f32{k.F32(0), k.F32(1), k.F32(2), k.F32(3)})
	})
	require.Equal(t, 8, p.Bufs[0].Align)
	require.Equal(t, 16, p.Bufs[1].Align)
}

func TestAccessThroughAViewAlignsTheRoot(t *testing.T) {
	p := finish(t, func(k *dsl.Kernel) {
		x := dsl.Global[dsl.BF16](k, "x", 0)
		out(k, dsl.View[dsl.U32](x).LoadN(k.Lane(), 4)...)
	})
	require.Equal(t, 16, p.Bufs[0].Align)
}

func TestBulkCopiesAndMatricesAlignTheirBuffers(t *testing.T) {
	p := finish(t, func(k *dsl.Kernel) {
		dsl.Shared[dsl.U16](k, "first", 1)
		dst, src := dsl.Shared[dsl.U32](k, "dst", 8), dsl.Global[dsl.U16](k, "src", 0)
		tile, bar := dsl.Shared[dsl.BF16](k, "tile", 256), dsl.NewMBars(k, "bar", 1)
		bar.Init(nil, k.U32(1))
		dsl.BulkCopy(dst, nil, src, nil, k.U32(16), bar, nil)
		dsl.LoadMatrix(tile, k.Lane().MulC(8), false)
	})
	require.Equal(t, text("shared @dst:u32[8] offset=16 align=16", "global @src:u16[] align=16",
		"shared @tile:bf16[256] offset=48 align=16"),
		text(p.Bufs[1].Decl(), p.Bufs[2].Decl(), p.Bufs[3].Decl()))
}

func TestMemoryOptions(t *testing.T) {
	require.Equal(t, text(
		"v0:u32 = ld.u32 @x[0]", "v1:u32 = ld.relaxed.gpu.u32 @x[0]", "v2:u32 = ld.acquire.cta.u32 @x[0]",
		"v3:u32 = ld.volatile.u32 @x[0]",
		"v4:u32 = ld.u32 @x[0] hint=evict_first", "v5:u32 = ld.u32 @x[0] hint=no_allocate",
		"st.release.sys.u32 @x[1], v0", "red.add.release.gpu.u32 @x[1], v0",
		"v6:u32 = atom.exch.acq_rel.gpu.u32 @x[1], v0"), body(t, func(k *dsl.Kernel) {
		x := dsl.Global[dsl.U32](k, "x", 2)
		v := x.Load(nil)
		x.Load(dsl.At(0), dsl.Relaxed(dsl.GPUScope))
		x.Load(dsl.At(0), dsl.Acquire(dsl.CTAScope))
		x.Load(dsl.At(0), dsl.Volatile())
		x.Load(dsl.At(0), dsl.CacheHint(ir.EvictFirst))
		x.Load(dsl.At(0), dsl.CacheHint(ir.NoAllocate))
		x.Store(dsl.At(1), v, dsl.Release(dsl.SysScope))
		dsl.ReduceAdd(x, dsl.At(1), v, dsl.Release(dsl.GPUScope))
		dsl.AtomicExch(x, dsl.At(1), v, dsl.AcqRel(dsl.GPUScope))
	}))
}

func TestAtomics(t *testing.T) {
	require.Equal(t, text("v0:u64 = atom.add.relaxed.gpu.u64 @x[0], 1", "v1:u64 = atom.max.relaxed.gpu.u64 @x[0], v0",
		"v2:u64 = atom.min.relaxed.gpu.u64 @x[0], v1", "v3:u64 = atom.or.relaxed.gpu.u64 @x[0], v2",
		"v4:u64 = atom.cas.relaxed.gpu.u64 @x[0], v3, 0"), body(t, func(k *dsl.Kernel) {
		x, o := dsl.Global[dsl.U64](k, "x", 2), dsl.Relaxed(dsl.GPUScope)
		v := dsl.AtomicAdd(x, nil, k.U64(1), o)
		v = dsl.AtomicMax(x, nil, v, o)
		v = dsl.AtomicMin(x, nil, v, o)
		v = dsl.AtomicOr(x, nil, v, o)
		dsl.AtomicCAS(x, nil, v, k.U64(0), o)
	}))
	require.Equal(t, text("atom.add: has order weak, want relaxed, acquire, release or acq_rel",
		"atom.or: has no form for i32"), mistakes(t, func(k *dsl.Kernel) {
		x := dsl.Global[dsl.I32](k, "x", 2)
		dsl.AtomicAdd(x, nil, k.I32(1))
		dsl.AtomicOr(x, nil, k.I32(1), dsl.Relaxed(dsl.GPUScope))
	}))
}

func TestConstantIndicesAreRefusedAsWritten(t *testing.T) {
	require.Equal(t, text("st: @x[-3] is before the buffer's first element",
		"st: @x[8589934592] reaches element 8589934592, but the buffer ends with element 1"),
		mistakes(t, func(k *dsl.Kernel) {
			x := dsl.Global[dsl.U32](k, "x", 2)
			x.Store(dsl.At(-3), k.U32(0))
			x.Store(dsl.At(1<<33), k.U32(0))
		}))
}

func TestLoadMatrixWantsSharedMemory(t *testing.T) {
	require.Equal(t, "ldmatrix: reads @x in global memory, want shared", mistakes(t, func(k *dsl.Kernel) {
		dsl.LoadMatrix(dsl.Global[dsl.BF16](k, "x", 256), k.Lane(), true)
	}))
}
