package rig

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/stretchr/testify/require"
)

// Classes of mutants that hit one synchronisation: what comes too early, and what comes too late.
var (
	MutantEarlier = []mutate.Class{mutate.Earlier}
	MutantLater   = []mutate.Class{mutate.Later}
)

// Survivors are the mutants that none of some kernels reports under any of 12 schedules. The kernels are the same but
// for the sizes of their buffers; run executes the program of the i-th.
func Survivors(t *testing.T, kernels []*ir.Kernel, run func(i int, program *interp.Program,
	seed uint64) error, of ...func(mu mutate.Mutation) bool) (left []mutate.Mutation) {
	t.Helper()
	lists := make([][]mutate.Mutation, len(kernels))
	for i, k := range kernels {
		lists[i] = mutate.List(k)
		require.Len(t, lists[i], len(lists[0]))
	}
	reported := func(i, at int) bool {
		b, err := mutate.Apply(kernels[i], lists[i][at])
		require.NoError(t, err)
		program, err := interp.Load(b)
		require.NoError(t, err)
		for seed := uint64(1); seed < 13; seed++ {
			err := run(i, program, seed)
			var f *interp.Fault
			if errors.As(err, &f) {
				return true
			}
			require.NoError(t, err)
		}
		return false
	}
	for at, mu := range lists[0] {
		found := slices.ContainsFunc(of, func(of func(mu mutate.Mutation) bool) bool { return !of(mu) })
		for i := 0; i < len(kernels) && !found; i++ {
			found = reported(i, at)
		}
		if !found {
			left = append(left, mu)
		}
	}
	return left
}

// SurvivorsOf are those of the mutants of a template's file, of which there must be some.
func SurvivorsOf(t *testing.T, file string, kernels []*ir.Kernel,
	run func(i int, program *interp.Program, seed uint64) error) []mutate.Mutation {
	t.Helper()
	own := func(mu mutate.Mutation) bool { return strings.Contains(mu.Pos.String(), file) }
	return SurvivorsWhere(t, own, kernels, run)
}

// SurvivorsWhere are those of the mutants that are a test's own, of which there must be some.
func SurvivorsWhere(t *testing.T, own func(mu mutate.Mutation) bool, kernels []*ir.Kernel,
	run func(i int, program *interp.Program, seed uint64) error) []mutate.Mutation {
	t.Helper()
	all := 0
	left := Survivors(t, kernels, run, func(mu mutate.Mutation) bool {
		if !own(mu) {
			return false
		}
		all++
		return true
	})
	t.Logf("%d mutants, %d not reported", all, len(left))
	require.NotZero(t, all)
	return left
}
