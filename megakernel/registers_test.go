package megakernel

import (
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl"
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
		{Options{Tokens: 8}, false},
		{Options{Tokens: 8, Weights: pipeline.FormatI8}, false},
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
	}
	const all = 64 << 10 // registers of an SM
	require.LessOrEqual(t, dsl.WarpSize*(DefaultConsumers*consumerRegisters+dsl.WarpsPerGroup*producerRegisters), all)
	require.LessOrEqual(t, ampleRegisters, all/(12*dsl.WarpSize)/8*8, "what a thread has before they move")
}
