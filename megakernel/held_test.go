package megakernel

import (
	"testing"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline/machine"
	"github.com/mkgen/mkgen/tasks/product"
	"github.com/stretchr/testify/require"
)

// Chunks held in registers are worth something, and not more than as many stages.
func TestPredictionOfChunksHeldIsThatOfADeeperRing(t *testing.T) {
	m := machine.H200()
	total := func(o Options) float64 {
		p := build(t, "llama3.2-1b", o).Predict(m, 1024, 1)
		return p.Total
	}
	for held := 1; held <= 4; held++ {
		with, without := total(Options{Stages: 6, Held: held}), total(Options{Stages: 6, Held: HeldNone})
		require.Less(t, with, without, "%d held", held)
		require.Greater(t, with, 0.99*total(Options{Stages: 6 + held, Held: HeldNone}), "%d held", held)
	}
}

func TestChunksHeldAreRefusedWhereTheyCannotBe(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for _, f := range []struct {
		o    Options
		want string
	}{
		{Options{Held: -2}, "options: -2 chunks, want 0 to 8"},
		{Options{Held: product.MaxPrefetch + 1}, "options: 9 chunks, want 0 to 8"},
		{Options{Held: 1, Tokens: 2}, "options: 1 chunk in registers with 2 query rows a step, want one row"},
		{Options{Held: 2, Launch: LaunchGraph}, "options: 2 chunks in registers in a graph of kernels, want one kernel"},
		{Options{Held: 4, StageBytes: 32 << 10, Consumers: 4},
			"options: 4 chunks of 32768 bytes, 64 registers of a thread each, want at most 3: beside 4 consumer warps a thread has 223 registers for them"},
	} {
		_, err := Build(c, f.o)
		var refused *OptionError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "Held", refused.Option)
		require.EqualError(t, err, f.want)
	}
}
