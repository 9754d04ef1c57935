package interp_test

import (
	"errors"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/stretchr/testify/require"
)

// Each outcome of two stores and two loads of a word needs at most three ordering constraints (1 and then 2: store,
// load, store, load), so by the theorem a run of n agents and k steps shows it with probability 1/(n·k²) at least.
func TestPCTKeepsItsGuarantee(t *testing.T) {
	p := litmusProgram(t, 2, false, []func(*lit){
		func(l *lit) { l.st(0, 1, rlx); l.st(0, 2, rlx) },
		func(l *lit) { l.ld(0, rlx); l.ld(0, rlx) },
	})
	seen := map[[4]uint32]int{}
	const runs = 4000
	length := int64(0)
	for s := range runs {
		m := bufs(p)
		r, err := p.Run(m, interp.Options{Seed: interp.FirstPCT + uint64(s), Length: length})
		require.NoError(t, err)
		length = r.Steps
		x := u32s(m.Bytes("r"))
		seen[[4]uint32{x[0] + 10*x[1], x[4] + 10*x[5], x[8] + 10*x[9], 0}]++
	}
	bound := float64(runs) / (2 * float64(length) * float64(length))
	_, classes, err := explored(t, p, interp.Bounds{})
	require.NoError(t, err)
	for o := range classes {
		require.Greater(t, float64(seen[o]), bound, "%v of %v, %d steps", o, seen, length)
	}
}

func TestPCTFindsFaultsAndSaysSo(t *testing.T) {
	built := build(t, 1, 2, func(k *dsl.Kernel) {
		x := dsl.Global[dsl.U32](k, "x", 1)
		k.If(k.CTA().EqC(0), func() { x.Store(dsl.At(0), k.U32(1)) })
		k.If(k.CTA().EqC(1), func() { k.Assert(x.Load(dsl.At(0)).LtC(2), "small") })
	})
	_, err := built.Run(bufs(built), interp.Options{Policy: interp.PolicyPCT})
	var f *interp.Fault
	require.True(t, errors.As(err, &f))
	require.Equal(t, interp.DataRace, f.Kind)
	require.Equal(t, "pct", f.Policy.String())
}

func TestSeedsDoNotComeToPCTInTurn(t *testing.T) {
	require.Equal(t, interp.PolicyUniform, interp.PolicyOf(1))
	require.Equal(t, interp.PolicyRoundRobin, interp.PolicyOf(6))
	require.Equal(t, interp.PolicyUniform, interp.PolicyOf(7))
	require.Equal(t, interp.PolicyPCT, interp.PolicyOf(interp.FirstPCT+5))
}
