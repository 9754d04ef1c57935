package interp_test

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/stretchr/testify/require"
)

// build makes a kernel through the DSL and loads it.
func build(t testing.TB, warps, grid int, body func(k *dsl.Kernel)) *interp.Program {
	t.Helper()
	return load(t, buildIR(t, warps, grid, body))
}

func buildIR(t testing.TB, warps, grid int, body func(k *dsl.Kernel)) *ir.Kernel {
	t.Helper()
	k := dsl.New("test", dsl.Options{Warps: warps, Grid: grid, SharedLimit: 227 << 10})
	body(k)
	p, err := k.Finish()
	require.NoError(t, err)
	return p
}

func load(t testing.TB, k *ir.Kernel) *interp.Program {
	t.Helper()
	p, err := interp.Load(k)
	require.NoError(t, err)
	return p
}

// bufs is a memory with zeroed buffers of the kernel's own lengths.
func bufs(p *interp.Program) *interp.Memory {
	m := interp.NewMemory()
	for _, b := range p.Kernel().Globals() {
		m.Bind(b.Name, make([]byte, b.Bytes()))
	}
	return m
}

// run expects a run without fault.
func run(t testing.TB, p *interp.Program, m *interp.Memory, seed uint64) *interp.Result {
	t.Helper()
	r, err := p.Run(m, interp.Options{Seed: seed})
	require.NoError(t, err)
	return r
}

// faultIn runs seeds until one shows a fault and returns it.
func faultIn(t testing.TB, p *interp.Program, seeds int) *interp.Fault {
	t.Helper()
	return faultUnder(t, p, interp.PolicyBySeed, seeds)
}

// faultUnder is faultIn with one policy.
func faultUnder(t testing.TB, p *interp.Program, policy interp.Policy, seeds int) *interp.Fault {
	t.Helper()
	for s := range seeds {
		_, err := p.Run(bufs(p), interp.Options{Seed: uint64(s), Policy: policy, MaxSteps: 1e6})
		var f *interp.Fault
		if errors.As(err, &f) {
			return f
		}
		require.NoError(t, err)
	}
	t.Fatalf("no fault in %d seeds", seeds)
	return nil
}

// clean expects no fault in any of the seeds.
func clean(t testing.TB, p *interp.Program, seeds int) {
	t.Helper()
	for s := range seeds {
		_, err := p.Run(bufs(p), interp.Options{Seed: uint64(s), MaxSteps: 1e6})
		require.NoError(t, err, "seed %d", s)
	}
}

func u32s(b []byte) []uint32 {
	out := make([]uint32, len(b)/4)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return out
}

func f32s(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i, u := range u32s(b) {
		out[i] = math.Float32frombits(u)
	}
	return out
}

func putU32s(xs ...uint32) []byte {
	b := make([]byte, 4*len(xs))
	for i, x := range xs {
		binary.LittleEndian.PutUint32(b[4*i:], x)
	}
	return b
}
