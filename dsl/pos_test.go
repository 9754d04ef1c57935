package dsl_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
)

// positions are where the instructions with the op were made.
func positions(p *ir.Kernel, op ir.Op) (at []ir.Pos) {
	p.Instrs(func(in *ir.Instr) {
		if in.Op == op {
			at = append(at, in.Pos)
		}
	})
	return at
}

func TestPositionIsTheTemplateLineAndItsCaller(t *testing.T) {
	p := finish(t, func(k *dsl.Kernel) {
		template(k) // line 24: the caller
	})
	want := []ir.Pos{
		{Line: "dsl/template_test.go:10", Caller: "dsl/pos_test.go:24"},
		{Line: "dsl/template_test.go:13", Caller: "dsl/pos_test.go:24"}, // in closures of the builder
		{Line: "dsl/template_test.go:20", Caller: "dsl/pos_test.go:24"}, // in a function of the same file
	}
	require.Equal(t, want, positions(p, ir.OpNanosleep))
	require.Equal(t, "dsl/template_test.go:12", p.Body.Stmts[2].(*ir.For).Pos.Line)
}

func TestPositionOfALibraryOpIsTheTemplates(t *testing.T) {
	p := finish(t, func(k *dsl.Kernel) { reduce(k) })
	for _, at := range positions(p, ir.OpShflXor) {
		require.Equal(t, "dsl/template_test.go:24", at.Line, "not a line of package dsl")
	}
	require.Len(t, positions(p, ir.OpShflXor), 5)
}

func TestPositionWithoutACallerHasOnlyALine(t *testing.T) {
	k := start()
	k.Nanosleep(k.U32(1))
	p, err := k.Finish()
	require.NoError(t, err)
	require.Equal(t, []ir.Pos{{Line: "dsl/pos_test.go:45"}}, positions(p, ir.OpNanosleep))
	require.Equal(t, "dsl/pos_test.go:45", positions(p, ir.OpNanosleep)[0].String())
}

func TestRequireNamesTheTemplateAndItsCaller(t *testing.T) {
	k := start()
	demanding(k, 3)
	require.EqualError(t, k.Err(), "dsl/template_test.go:28 (called from dsl/pos_test.go:54): 3 rows, want an even number")
}

// The caller may be further up than the frames that are looked at first.
func TestPositionHasItsCallerBehindManyFrames(t *testing.T) {
	for frames := range 40 {
		p := finish(t, func(k *dsl.Kernel) { nested(k, frames) })
		require.Equal(t, []ir.Pos{{Line: "dsl/template_test.go:34", Caller: "dsl/pos_test.go:61"}},
			positions(p, ir.OpNanosleep), frames)
	}
}

// A template's line has the caller of each call, wherever on the stack the two calls differ.
func TestPositionsOfOneKernelHaveTheCallersOfTheirOwn(t *testing.T) {
	for frames := range 40 {
		p := finish(t, func(k *dsl.Kernel) {
			for range 2 {
				nested(k, frames)
				nested(k, frames)
			}
		})
		first := ir.Pos{Line: "dsl/template_test.go:34", Caller: "dsl/pos_test.go:72"}
		second := ir.Pos{Line: "dsl/template_test.go:34", Caller: "dsl/pos_test.go:73"}
		require.Equal(t, []ir.Pos{first, second, first, second}, positions(p, ir.OpNanosleep), frames)
	}
}

// What a function made before it said that it helps is not where it helps.
func TestPositionOfAHelperIsItsCallersFromThenOn(t *testing.T) {
	p := finish(t, func(k *dsl.Kernel) {
		for helps := range 2 {
			sometimesHelper(k, helps > 0)
		}
	})
	at := positions(p, ir.OpNanosleep)
	require.Equal(t, "dsl/template_test.go:44", at[0].Line)
	require.Equal(t, "dsl/pos_test.go:86", at[1].Line)
}
