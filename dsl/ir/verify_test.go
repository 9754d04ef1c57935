package ir_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
)

// refusals pairs a template with the number of mistakes in it.
var refusals = []struct {
	name  string
	n     int
	build func(kern)
}{
	{"a value leaves its loop", 1, func(k kern) { valueLeavesLoop(k) }},
	{"an index leaves its loop", 1, func(k kern) { indexLeavesLoop(k) }},
	{"a value leaves its if", 1, func(k kern) { valueLeavesIf(k) }},
	{"a value goes from then to else", 1, func(k kern) { valueLeavesThenForElse(k) }},
	{"a value leaves its role", 1, func(k kern) { valueLeavesRole(k) }},
	{"a variable leaves its if", 2, func(k kern) { variableLeavesIf(k) }},
	{"a value of another kernel", 1, func(k kern) { valueOfAnotherKernel(k) }},
	{"a buffer of another kernel", 1, func(k kern) { bufferOfAnotherKernel(k) }},
	{"an unused value", 1, func(k kern) { unusedValue(k) }},
	{"an unused reduction", 1, func(k kern) { unusedReduction(k) }},
	{"a shuffle where lanes part", 1, func(k kern) { shuffleInLaneBranch(k) }},
	{"a shuffle in a loop of its lane's length", 1, func(k kern) { shuffleInLaneLoop(k) }},
	{"a matrix load in a loop of loaded length", 1, func(k kern) { matrixInLoadedLoop(k) }},
	{"a vote under a variable lanes set apart", 1, func(k kern) { voteUnderVariable(k) }},
	{"a CTA barrier where lanes part", 1, func(k kern) { barrierInLaneBranch(k) }},
	{"a CTA barrier where warps part", 1, func(k kern) { barrierInWarpBranch(k) }},
	{"a CTA barrier in else", 1, func(k kern) { barrierInElse(k) }},
	{"a CTA barrier in a loop of loaded length", 1, func(k kern) { barrierInLoadedLoop(k) }},
	{"a CTA barrier in a role", 1, func(k kern) { barrierInRole(k) }},
	{"a named barrier where the role's warps part", 1, func(k kern) { namedBarrierInWarpBranch(k) }},
	{"a named arrive where lanes part", 1, func(k kern) { namedArriveInLaneBranch(k) }},
	{"roles where warps part", 1, func(k kern) { rolesInBranch(k) }},
	{"roles in a role", 1, func(k kern) { rolesInRole(k) }},
	{"a named barrier of more warps than the CTA has", 1, func(k kern) { namedBarrierOfTooManyWarps(k) }},
	{"a named barrier of fewer warps than reach it", 1, func(k kern) { namedBarrierOfTooFewWarps(k) }},
	{"named barrier 0", 1, func(k kern) { namedBarrierZero(k) }},
	{"a role without warps", 1, func(k kern) { emptyRole(k) }},
	{"a role beyond the CTA", 1, func(k kern) { roleBeyondCTA(k) }},
	{"roles that overlap", 1, func(k kern) { overlappingRoles(k) }},
	{"mbarriers nothing initialises", 1, func(k kern) { mbarrierNeverInitialised(k) }},
	{"mbarrier constants", 4, func(k kern) { mbarrierLiterals(k) }},
	{"bulk copies", 6, func(k kern) { bulkCopies(k) }},
	{"stores to read-only memory", 2, func(k kern) { storeToReadOnly(k) }},
	{"constant indices out of bounds", 4, func(k kern) { indexOutOfBounds(k) }},
	{"a misaligned vector", 1, func(k kern) { misalignedVector(k) }},
	{"shared memory over budget", 1, func(k kern) { sharedOverBudget(k) }},
	{"shared buffers that overlap", 2, func(k kern) { sharedOverlap(k) }},
	{"shared memory nobody can fill", 2, func(k kern) { sharedReadOnlyOrEmpty(k) }},
	{"accesses of no such form", 6, func(k kern) { accessForms(k) }},
	{"types without a form", 4, func(k kern) { typesWithoutForm(k) }},
	{"constants out of range", 6, func(k kern) { literalsOutOfRange(k) }},
	{"several mistakes come back together", 4, func(k kern) { several(k) }},
	{"mistakes of building and of the program", 4, func(k kern) { buildAndProgram(k) }},
}

func TestRefusals(t *testing.T) {
	var all strings.Builder
	for _, r := range refusals {
		k := dsl.New("bad", dsl.Options{Warps: 4, SharedLimit: 2048})
		r.build(k)
		p, err := k.Finish()
		require.Error(t, err, r.name)
		require.Nil(t, p, r.name)
		fmt.Fprintf(&all, "== %s\n%v\n\n", r.name, err)
		lines := strings.Split(err.Error(), "\n")
		if len(lines) != r.n {
			t.Errorf("%s: %d errors, want %d:\n%v", r.name, len(lines), r.n, err)
		}
		for _, l := range lines {
			require.True(t, strings.HasPrefix(l, "ir/badtemplates_test.go:"), l)
			require.Contains(t, l, "(called from ir/verify_test.go:", r.name)
		}
	}
	golden(t, "refusals.txt", all.String())
}

func TestVerifyErrorsAreTyped(t *testing.T) {
	k := dsl.New("bad", dsl.Options{Warps: 4, SharedLimit: 2048})
	several(k)
	_, err := k.Finish()
	var kinds []ir.Kind
	for _, e := range ir.Errors(err) {
		kinds = append(kinds, e.Kind)
	}
	require.Equal(t, []ir.Kind{ir.KindControl, ir.KindValue, ir.KindUnused, ir.KindControl}, kinds)
	require.Nil(t, ir.Errors(nil))
	require.Equal(t, []string{"control", "value", "unused"},
		[]string{kinds[0].String(), kinds[1].String(), kinds[2].String()})
}
