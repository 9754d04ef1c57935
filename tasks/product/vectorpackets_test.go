package product_test

import (
	"math"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/product"
	"github.com/stretchr/testify/require"
)

// packetsOf passes n elements from the two CTAs that write them to all, and never has the flag that packets begin with.
func packetsOf(r *rig.Rig, n int) *product.VectorPackets {
	return &product.VectorPackets{LL: &grid.LL{Flag: func() dsl.Val[dsl.U32] { return r.K.U32(7) }},
		Buf: rig.InOut[dsl.B128](r, "packets", make([]byte, 4*n), n/4), N: n, What: "waits for element %d"}
}

// roundedTo24 is the nearest f32 whose lowest 8 bits are 0, half away from zero; NaN and infinities stay.
func roundedTo24(x float32) float32 {
	v := float64(x)
	if x == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return x
	}
	unit := math.Ldexp(1, max(math.Ilogb(v), -126)-15)
	return float32(math.Round(v/unit) * unit) // beyond the largest: infinite
}

func TestResidualVectorsInPackets(t *testing.T) {
	rng := rig.Rand(24)
	edges := []float32{0, float32(math.Copysign(0, -1)), 1, -1, math.MaxFloat32, -math.MaxFloat32, float32(math.Inf(1)),
		float32(math.Inf(-1)), math.SmallestNonzeroFloat32, 0x1.0001p0, 0x1.00008p0, 0x1.0002fep0, -0x1.fffffep-1,
		0x1.fffep-127, float32(math.NaN()), -3}
	for _, n := range []int{4, 128, 520} {
		y, old := append(slices.Clone(edges), rig.Floats(rng, 512, 100)...)[:n], make([]float32, n)
		r := rig.New(t, rig.Setup{SMs: 2, Consumers: 2})
		yIn, zero := rig.In[dsl.F32](r, "y", rig.F32Bytes(y), n), rig.In[dsl.F32](r, "old", rig.F32Bytes(old), n)
		kept, seen := rig.Out[dsl.F32](r, "kept", n), rig.Out[dsl.F32](r, "seen", 2*n)
		input := dsl.Shared[dsl.BF16](r.K, "input", (n+31)/32*32, dsl.Align(16))
		r.Body(func(*pipeline.Consumer) {
			h := packetsOf(r, n)
			keep := func(row dsl.Val[dsl.U32], sum []dsl.Val[dsl.F32]) { kept.StoreN(row, sum) }
			r.EachRows(yIn, n, product.HandResidual(r.Env, h, product.FromBuf(zero), keep))
			e, mine := r.Env, r.Env.CTA.MulC(n)
			norm := product.NormInput{N: n, X: h.Residual(), Dst: input, None: true}
			norm.Emit(e, r.K.U32(0)) // waits for all of them, too
			e.EachConsumer(n/4, func(i dsl.Val[dsl.U32]) {
				seen.StoreN(mine.Add(i.MulC(4)), h.Vector(e)(i.MulC(4)))
			})
		}, nil)
		got := r.Run()
		for i, v := range rig.F32s(got["kept"]) {
			want := float64(roundedTo24(y[i] + 0))
			for _, at := range []float64{v, rig.F32s(got["seen"])[i], rig.F32s(got["seen"])[n+i]} {
				require.True(t, math.Float64bits(want) == math.Float64bits(at) || math.IsNaN(want) && math.IsNaN(at) ||
					want == 0 && at == 0, "element %d: %x, want %x", i, at, want)
			}
		}
	}
}

// What is passed in packets is what goes through memory, bit by bit, whoever stages it.
func TestInputsInPacketsAreThoseInMemory(t *testing.T) {
	rng := rig.Rand(25)
	for _, format := range []pipeline.Format{pipeline.FormatBF16, pipeline.FormatE4M3} {
		for _, n := range []int{8, 96, 264, 1040} {
			y := rig.Floats(rng, 2*n, 3)
			run := func(packets bool) []byte {
				r := rig.New(t, rig.Setup{SMs: 2, Consumers: 3})
				yIn, padded := rig.In[dsl.F32](r, "y", rig.F32Bytes(y), 2*n), (n+63)/64*64
				act := rig.InOut[dsl.BF16](r, "act", make([]byte, 2*n), n)
				counter := rig.InOut[dsl.U32](r, "barrier", rig.U32Bytes(0), 1)
				out := rig.Out[dsl.BF16](r, "out", padded)
				in := &product.PlainInput{N: n, Format: format,
					Dst: dsl.Shared[dsl.BF16](r.K, "input", padded, dsl.Align(16))}
				r.Body(func(*pipeline.Consumer) {
					by := product.KnownScale(r.K.F32(0.5))
					if packets {
						in.Packets = packetsOf(r, n)
						r.EachRows(yIn, 2*n, product.GLU{}.Packets(r.Env, in.Packets, format, by))
					} else {
						in.X = act
						r.EachRows(yIn, 2*n, product.GLU{}.Epilogue(r.Env, act, r.K.U32(0), format, by))
					}
					grid.NewGridBarrier(r.Env, counter, r.K.U32(0)).Sync()
					in.Emit(r.Env)
					r.K.If(r.Env.CTA.EqC(0), func() {
						r.Env.EachConsumer(n, func(i dsl.Val[dsl.U32]) { out.Store(i, in.Dst.Load(i)) })
					})
				}, nil)
				return r.Run()["out"]
			}
			require.Equal(t, run(false), run(true), "%d elements for %q", n, format)
		}
	}
}
