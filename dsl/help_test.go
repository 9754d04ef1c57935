package dsl_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
)

type (
	u32 = dsl.Val[dsl.U32]
	i32 = dsl.Val[dsl.I32]
	f32 = dsl.Val[dsl.F32]
)

func start() *dsl.Kernel { return dsl.New("test", dsl.Options{Warps: 4, SharedLimit: 4096}) }

// finish builds a kernel that must be right.
func finish(t *testing.T, build func(k *dsl.Kernel)) *ir.Kernel {
	t.Helper()
	k := start()
	build(k)
	p, err := k.Finish()
	require.NoError(t, err)
	return p
}

// body is the printed body of a kernel that must be right, without indentation.
func body(t *testing.T, build func(k *dsl.Kernel)) string {
	t.Helper()
	_, text, _ := strings.Cut(finish(t, build).String(), "\n{\n")
	var lines []string
	for _, l := range strings.Split(strings.TrimSuffix(text, "}\n"), "\n") {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	return strings.Join(lines, "\n")
}

// decls is the printed head of a kernel that must be right.
func decls(t *testing.T, build func(k *dsl.Kernel)) string {
	t.Helper()
	text, _, _ := strings.Cut(finish(t, build).String(), "\n{\n")
	return text
}

// text is the lines joined, as body gives them.
func text(lines ...string) string { return strings.Join(lines, "\n") }

// mistakes builds a kernel that must be wrong and gives its errors without
// their positions.
func mistakes(t *testing.T, build func(k *dsl.Kernel)) string {
	t.Helper()
	k := start()
	build(k)
	p, err := k.Finish()
	require.Error(t, err)
	require.Nil(t, p)
	var lines []string
	for _, l := range strings.Split(err.Error(), "\n") {
		require.True(t, strings.HasPrefix(l, "dsl/"), l)
		_, rest, _ := strings.Cut(l, ": ")
		lines = append(lines, rest)
	}
	return strings.Join(lines, "\n")
}

// out stores values one after the other.
func out[T dsl.Elem](k *dsl.Kernel, vs ...dsl.Val[T]) {
	b := dsl.Global[T](k, "out", 0)
	for i, v := range vs {
		b.Store(dsl.At(i), v)
	}
}

// outPred stores predicates as numbers.
func outPred(k *dsl.Kernel, ps ...dsl.Pred) {
	b := dsl.Global[dsl.U32](k, "out", 0)
	for i, p := range ps {
		b.Store(dsl.At(i), dsl.Select(p, k.U32(1), k.U32(0)))
	}
}
