package megakernel

import (
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

func TestProducersWarpgroupLeavesItsRegistersToTheConsumers(t *testing.T) {
	for _, c := range []struct {
		o     Options
		moves bool
	}{
		{Options{Tokens: 8, Weights: pipeline.FormatI4G128}, true},
		{Options{Tokens: 16, Weights: pipeline.FormatMXFP4}, true},
		{Options{Tokens: 2, Weights: "i8,down=i4g128"}, true},
		{Options{Tokens: 16, Weights: pipeline.FormatE4M3B128}, true},
		{Options{Tokens: 8, Weights: pipeline.FormatE4M3}, true},
		{Options{Tokens: 8}, true},
		{Options{Tokens: 16, Weights: pipeline.FormatI8}, true},
		{Options{Tokens: 1}, false},
		{Options{Tokens: 1, Weights: pipeline.FormatI4G128}, false},
		{Options{Tokens: 8, Weights: pipeline.FormatI4G128, Consumers: 7}, false}, // two warps a part: a thread has 255
	} {
		mk := build(t, "llama3-8b", c.o)
		text := mk.IR.String()
		require.Equal(t, c.moves, strings.Contains(text, "setmaxreg"), "%+v", c.o)
		if !c.moves {
			require.Equal(t, mk.Options.Consumers+1, mk.IR.Warps)
			continue
		}
		require.Equal(t, 12, mk.IR.Warps)
		require.Equal(t, 12*132*pipeline.RecordWords, RecordWords(mk))
		requireAllRegisters(t, mk.IR)
	}
	const all = 64 << 10 // registers of an SM
	require.LessOrEqual(t, dsl.WarpSize*(DefaultConsumers*consumerRegisters+dsl.WarpsPerGroup*producerRegisters), all)
	require.LessOrEqual(t, ampleRegisters, all/(12*dsl.WarpSize)/8*8, "what a thread has before they move")
}

// requireAllRegisters requires that the warps of a kernel together have as many registers as a launch gives them: fewer
// would make the compiler spill what has room, more would be waited for for ever. It also requires that a kernel whose
// warps leave one of their moves out is told from it.
func requireAllRegisters(t *testing.T, k *ir.Kernel) {
	t.Helper()
	require.Equal(t, k.Warps*k.LaunchRegisters(), registersOf(k))
	moves := 0
	for _, m := range mutate.List(k) {
		if m.Name != "remove setmaxreg" {
			continue
		}
		moves++
		without, err := mutate.Apply(k, m)
		require.NoError(t, err)
		require.NotEqual(t, k.Warps*k.LaunchRegisters(), registersOf(without), m)
	}
	require.Equal(t, 2, moves)
}

// registersOf is how many registers a thread of each warp has, together, behind the beginning of its role.
func registersOf(k *ir.Kernel) (n int) {
	n = k.Warps * k.LaunchRegisters()
	ir.Walk(k.Body, func(s ir.Stmt) bool {
		if roles, ok := s.(*ir.Roles); ok {
			for _, r := range roles.Roles {
				for _, s := range r.Body.Stmts {
					if in, ok := s.(*ir.Instr); ok && in.Op == ir.OpSetMaxReg {
						n += (r.End - r.First) * (in.Attr.N - k.LaunchRegisters())
					}
				}
			}
		}
		return true
	})
	return n
}

func TestPrefillKernelsLeaveNoRegisters(t *testing.T) {
	p, err := BuildPrefill(build(t, "llama3-8b", Options{}), PrefillOptions{Tokens: 1024})
	require.NoError(t, err)
	requireAllRegisters(t, p.IR)
}
