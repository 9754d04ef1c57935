package main

import (
	"flag"
	"testing"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/tests/gpu/choice"
	"github.com/stretchr/testify/require"
)

// What -write writes packs to what the generator packs.
func TestWrittenCheckpointHoldsTheRandomWeights(t *testing.T) {
	old := flag.CommandLine
	defer func() { flag.CommandLine = old }()
	for _, dtype := range []string{"bf16", "f32"} {
		flag.CommandLine = flag.NewFlagSet("", flag.PanicOnError)
		f := &flags{Choice: choice.Flags(), write: t.TempDir(), dtype: dtype, seed: 9}
		require.NoError(t, write(f))
		c, err := checkpoint.Open(f.write)
		require.NoError(t, err)
		require.NoError(t, c.Check(t.Context(), nil))
		mk, err := f.BuildFor(c.Config(), megakernel.NoFault)
		require.NoError(t, err)
		blocks := mk.Plan.Blocks(100000)
		require.Greater(t, len(blocks), 3)
		from, of := mk.NewPacker(c), mk.NewPacker(synth.NewWeights(9, mk.Config))
		for i := range blocks {
			got, want := make([]byte, blocks[i].Bytes), make([]byte, blocks[i].Bytes)
			require.NoError(t, from.Pack(got, &blocks[i]))
			require.NoError(t, of.Pack(want, &blocks[i]))
			require.Equal(t, want, got)
		}
		require.NoError(t, c.Close())
	}
	require.ErrorContains(t, write(&flags{Choice: choiceOf(), write: t.TempDir(), dtype: "f16"}), "want bf16 or f32")
}

func choiceOf() *choice.Choice {
	flag.CommandLine = flag.NewFlagSet("", flag.PanicOnError)
	return choice.Flags()
}
