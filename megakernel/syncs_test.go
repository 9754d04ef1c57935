package megakernel

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// TestFlagsOfEveryVector counts the flag through three layers of the phases that a built kernel has, sync by sync, and
// compares the flag that a reader expects with the one that the packet was written with. It also demands that a
// vector's packets never have the flag of the layer before, and that act has two places where no barrier lies between
// its reader and its next writer.
func TestFlagsOfEveryVector(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for _, queries := range Syncs() {
		for _, merge := range Mergings() {
			for _, vectors := range VectorWays() {
				for _, mlp := range MLPs() {
					o := Options{Queries: queries, Merge: merge, Vectors: string(vectors), MLP: mlp}
					t.Run(fmt.Sprint(queries, " ", merge, " ", vectors, " ", mlp), func(t *testing.T) {
						mk, err := Build(c, o)
						if vectors == VectorsAll && mlp == MLPFused {
							require.ErrorContains(t, err, `"all" with a fused MLP, where gate_up passes no vector; want counted`)
							return
						}
						if vectors == VectorsAll && (queries == SyncBarrier || merge == MergePhase) {
							require.ErrorContains(t, err, "which want a barrier a layer; want words of both, or vectors counted")
							return
						}
						require.NoError(t, err)
						checkFlags(t, mk)
					})
				}
			}
		}
	}
}

// checkFlags walks mk.Phases, which is what the consumers run.
func checkFlags(t *testing.T, mk *Kernel) {
	o := &mk.Options
	layer := slices.DeleteFunc(slices.Clone(mk.Phases), func(p Phase) bool { return !p.PerLayer })
	writer := "attention"
	if slices.ContainsFunc(layer, func(p Phase) bool { return p.Name == "merge" }) {
		writer = "merge"
	}
	flag, written := 0, map[string]int{}
	read := func(from, to string) {
		if at, is := written[from]; is && o.handsOn(map[bool]string{true: phaseAttention, false: from}[from == writer]) {
			require.Equal(t, at, flag-o.flagsSince(from, to), "%s read in %s", from, to)
		}
	}
	barriers := 0 // since down has read act
	for range 3 {
		for _, p := range layer {
			switch p.Name {
			case "qkv":
				read("down", "qkv")
			case "o":
				read(writer, "o")
				if o.MLP != MLPFused {
					read("down", "o")
				}
			case "gate_up":
				read("o", "gate_up")
				if len(written) == 4 {
					require.Equal(t, barriers > 0, o.ordered("down", "gate_up"), "act")
				}
			case "down":
				read("gate_up", "down")
				if o.MLP != MLPFused {
					read("o", "down")
				}
				barriers = 0
			}
			if last, is := written[p.Name]; is {
				require.NotEqual(t, last, flag, "%s writes packets with the flag of the layer before", p.Name)
			}
			if slices.Contains([]string{writer, "o", "gate_up", "down"}, p.Name) {
				written[p.Name] = flag
			}
			switch p.Sync {
			case "grid barrier":
				barriers++
				flag++
			case "counted":
				flag++
			}
		}
	}
	require.Len(t, written, 4)
}

// Packets of all vectors are the default where they were measured to gain.
func TestVectorsAreInPacketsByDefaultWhereStepsReadLittle(t *testing.T) {
	for _, c := range []struct {
		model   string
		weights pipeline.Format
		want    Sync
	}{
		{"llama3-8b", "i4g128", VectorsAll},
		{"llama3-8b", "i4g32", VectorsAll},
		{"llama3-8b", "i4g128-zeros", SyncCounted},
		{"llama3-8b", "i8,down=i4g128", SyncCounted},
		{"llama3-8b", "i4g128,o=bf16", SyncCounted},
		{"llama3-8b", "mxfp4", SyncCounted},
		{"llama3-8b", "i8", SyncCounted},
		{"llama3-8b", "bf16", SyncCounted},
		{"llama3-70b", "i4g128", SyncCounted},
	} {
		of, err := models.Lookup(c.model)
		require.NoError(t, err)
		mk, err := Build(of, Options{Weights: c.weights})
		require.NoError(t, err)
		require.Equal(t, string(c.want), mk.Options.Vectors, "%s in %s", c.model, c.weights)
	}
}
