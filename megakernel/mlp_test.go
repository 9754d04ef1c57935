package megakernel

import (
	"slices"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline/machine"
	"github.com/stretchr/testify/require"
)

func TestFusedMLPSharesBytesAsTheDefaultDoes(t *testing.T) {
	for _, name := range []string{"llama3.2-1b", "llama3.2-3b", "llama3-8b"} {
		rows, fused := build(t, name, Options{}), build(t, name, Options{MLP: MLPFused})
		require.Equal(t, rows.Plan.PackedBytes, fused.Plan.PackedBytes, "nothing is padded")
		require.Equal(t, rows.Plan.MaxSMBytes(0), fused.Plan.MaxSMBytes(0), "%s: the busiest SM's bytes of a layer", name)
		require.Equal(t, rows.Barriers()-rows.Config.Layers, fused.Barriers())
		require.GreaterOrEqual(t, fused.Options.Stages, rows.Options.Stages)
		require.Equal(t, fused.Plan.Layer[MatrixGateUp].Count, fused.Plan.Layer[MatrixDown].Count)
	}
}

func TestHostIsToldToZeroWhatTheFusedMLPAddsTo(t *testing.T) {
	mk := build(t, "tiny", Options{SMs: 4, MLP: MLPFused})
	require.Subset(t, mk.Zeroed(), []string{BufferX, BufferTurn})
	require.NotContains(t, unfilled(t, mk), BufferX)
	require.NotContains(t, unfilled(t, mk), BufferTurn)
	l := readLayout(t, mk)
	require.Equal(t, MLPFused, l.Options.MLP)
	rows := readLayout(t, build(t, "tiny", Options{SMs: 4}))
	require.Empty(t, rows.Options.MLP)
}

func TestFusedMLPHandsOnAllVectorsButDowns(t *testing.T) {
	for given, want := range map[string]string{"": "counted", "counted": "counted", "barrier": gridBarrier} {
		mk := build(t, "tiny", Options{SMs: 4, MLP: MLPFused, Vectors: given})
		have := map[string]string{}
		for _, p := range mk.Phases {
			have[p.Name] = p.Sync
		}
		require.Equal(t, want, have[phaseAttention], given)
		require.Equal(t, want, have[phaseO], given)
		require.Equal(t, "none", have["gate_up"])
		require.Equal(t, gridBarrier, have[phaseDown], "what has no tag must be ordered")
		require.Equal(t, given == "barrier",
			slices.ContainsFunc(mk.IR.Globals(), func(b *ir.Buf) bool { return b.Name == "mid" }), given)
	}
}

func TestPredictionOfPhasesWithoutASync(t *testing.T) {
	p := build(t, "llama3-8b", Options{MLP: MLPFused}).Predict(machine.H200(), 1024, 1)
	rows := build(t, "llama3-8b", Options{}).Predict(machine.H200(), 1024, 1)
	require.Less(t, p.Total, rows.Total)
	require.Greater(t, p.Total, p.Stream)
	sum := 0.0
	for _, f := range p.Phases {
		require.InEpsilon(t, f.Time, f.Work+f.Chunks+f.Sync, 1e-9, f.Name)
		require.Positive(t, f.Work, f.Name)
		if f.Name == "gate_up" {
			require.Zero(t, f.Sync)
		}
		sum += float64(f.Runs) * f.Time
	}
	require.InEpsilon(t, p.Total, sum, 1e-9)
}

func TestWhatTheFusedMLPRefuses(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for want, o := range map[string]Options{
		`"fused" with 4 query rows a step, want one row`:               {MLP: MLPFused, Tokens: 4},
		`"fused" in a graph of kernels`:                                {MLP: MLPFused, Launch: LaunchGraph},
		`"fused" with weights of down in i8, want bf16 there, or rows`: {MLP: MLPFused, Weights: "i8"},
		`"fused" with weights of down in e4m3, want bf16 there`:        {MLP: MLPFused, Weights: "i4,down=e4m3"},
		`found "columns", want rows or fused`:                          {MLP: "columns"},
	} {
		_, err := Build(c, o)
		require.ErrorContains(t, err, want)
		var refused *OptionError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "MLP", refused.Option)
	}
	c.Hidden, c.Heads, c.KVHeads, c.HeadDim = 8192, 8, 8, 16
	_, err = Build(c, Options{MLP: MLPFused, Consumers: 4})
	require.ErrorContains(t, err, "sums a thread with 4 consumer warps, want 128 at most")
}
