package sass_test

import (
	"regexp"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/engine/compile"
	"github.com/stretchr/testify/require"
)

// TestOneStoreForBothSidesOfACondition has a template's statement on both sides of a condition. The compiler may make
// one store of them, to an address that it selects, as it does in kernels with norms of queries and keys: that is no
// loss. Where one side has no store, or none is left, or another statement's is missing, there is a finding.
func TestOneStoreForBothSidesOfACondition(t *testing.T) {
	k := dsl.New("sides", dsl.Options{Warps: 1, Grid: 1, SharedLimit: 1024})
	a, b := dsl.Global[dsl.B128](k, "a", 64), dsl.Global[dsl.B128](k, "b", 64)
	in, out := dsl.Global[dsl.U32](k, "in", 64), dsl.Global[dsl.U32](k, "out", 64)
	store := func(to dsl.Buf[dsl.B128], v dsl.Val[dsl.U32]) {
		to.Store(k.Tid(), dsl.Join(v, v, v, v), dsl.Relaxed(dsl.GPUScope))
	}
	v := in.Load(k.Tid())
	k.IfElse(v.Gt(k.U32(7)), func() { store(a, v) }, func() { store(b, v.AddC(1)) })
	out.Store(k.Tid(), v, dsl.Relaxed(dsl.GPUScope))
	kernel, err := k.Finish()
	require.NoError(t, err)
	s, err := compile.SourceOfKernel("sides", kernel, "sm_90a")
	require.NoError(t, err)
	whole := machineCode(t, s)
	require.NoError(t, check(t, s, whole).Err())
	const wide = `STG\.E\.128\.STRONG\.GPU`
	first := whole.find(t, 0, wide)
	guard := regexp.MustCompile(`@!?U?P\d `)
	require.Regexp(t, guard, whole.lines[first].text, "a store a side")

	one := whole.clone()
	one.drop(one.find(t, first+1, wide))
	require.Error(t, check(t, s, one).Err(), "one side has lost its store")
	one.lines[first].text = guard.ReplaceAllString(one.lines[first].text, "")
	require.NoError(t, check(t, s, one).Err(), "one store for both sides")

	for _, kind := range []string{wide, `STG\.E\.STRONG\.GPU`} {
		lost := one.clone()
		lost.drop(lost.find(t, 0, kind))
		require.Error(t, check(t, s, lost).Err(), kind)
	}
}
