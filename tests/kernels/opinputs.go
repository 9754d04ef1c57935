package kernels

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/mkgen/mkgen/dsl"
)

// inputs are the buffers' contents, in order of declaration.
func (r *rows) inputs() []Input { return r.data }

func (r *rows) random() *rand.Rand { return rand.New(rand.NewPCG(20, uint64(len(r.data)))) }

// bytes adds the content of a buffer.
func (r *rows) bytes(name string, data []byte) { r.data = append(r.data, Input{name, data}) }

// zeros declares a writable buffer of n words that starts as zeros.
func (r *rows) zeros(name string, n int) dsl.Buf[dsl.U32] {
	r.bytes(name, make([]byte, 4*n))
	return dsl.Global[dsl.U32](r.k, name, int64(n), dsl.Align(16))
}

// words declares a read-only buffer of n words per thread: edge cases, then
// random bits.
func (r *rows) words(name string, n int) dsl.Buf[dsl.U32] {
	edges := []uint32{0, 1, 2, 31, 32, 33, 0x7fffffff, 0x80000000, 0x80000001, 0xffffffff, 0xfffffffe, 0xffff, 0x10000,
		0x55555555, 0xaaaaaaaa, 1000000007}
	rng, data := r.random(), []byte{}
	for i := range n * rowThreads {
		x := rng.Uint32()
		if t := i % rowThreads; t < len(edges)*len(edges) && t%3 != 2 {
			x = edges[(t+5*(i/rowThreads))%len(edges)]
		}
		data = binary.LittleEndian.AppendUint32(data, x)
	}
	r.bytes(name, data)
	return dsl.Global[dsl.U32](r.k, name, int64(n*rowThreads), dsl.ReadOnly(), dsl.Align(16))
}

// floats declares a read-only buffer of one float per thread and loads it.
func (r *rows) floats(name string, xs []float32) dsl.Val[dsl.F32] {
	data := []byte{}
	for _, x := range xs {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
	}
	r.bytes(name, data)
	return dsl.Global[dsl.F32](r.k, name, rowThreads, dsl.ReadOnly()).Load(r.at)
}

// edgeFloats is one float per thread: special values in an order that differs
// by turn, then numbers of every size.
func edgeFloats(turn int) []float32 {
	inf := float32(math.Inf(1))
	special := []float32{0, float32(math.Copysign(0, -1)), 1, -1, inf, -inf, float32(math.NaN()),
		math.SmallestNonzeroFloat32, -1e-39, 1.1754944e-38, math.MaxFloat32, -math.MaxFloat32, 0.5, 1.5, 2.5, -2.5, 16777217,
		2147483648, -2147483648, 4294967296, 0.1, 65504, 65520, 3.3895e38}
	rng := rand.New(rand.NewPCG(21, uint64(turn)))
	out := make([]float32, rowThreads)
	for i := range out {
		out[i] = float32(math.Ldexp(rng.Float64()*2-1, rng.IntN(240)-120))
		if i < 3*len(special) {
			out[i] = special[(i+turn*(i/len(special)))%len(special)]
		}
	}
	return out
}

// plainFloats is one number in [−π, π] per thread, the bounds and 0 included.
func plainFloats() []float32 {
	out := make([]float32, rowThreads)
	for i := range out {
		out[i] = float32(math.Pi * (2*float64(i)/(rowThreads-1) - 1))
	}
	out[0], out[rowThreads-1], out[1] = -3.1415925, 3.1415925, 0
	return out
}

// scalar declares a parameter and fixes its value.
func scalar[T dsl.Num](r *rows, name string, bits uint64) dsl.Val[T] {
	r.params[name] = bits
	return dsl.Scalar[T](r.k, name, "fixed")
}
