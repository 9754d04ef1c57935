package megakernel_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/internal/nvcc"
	"github.com/mkgen/mkgen/internal/nvcc/nvcctest"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/stretchr/testify/require"
)

// What the planner chooses for 8B on 132 SMs, and what ptxas makes of it.
func TestThePrefillKernelOf8BDoesNotSpill(t *testing.T) {
	c, err := models.Lookup("llama3-8b")
	require.NoError(t, err)
	for _, x := range deep.Most([]struct {
		tokens  int
		weights pipeline.Format // of the LM head, too
		scratch int64
		of      int // sequences
		kv      attention.KVType
	}{
		{tokens: 128, of: 16, kv: attention.KVE4M3},
		{1024, pipeline.FormatI4G128, 2 * (6144*4096 + 4096*4096 + 3*14336*4096), 1, ""}, {tokens: 512},
		{tokens: 1024, of: 16}, {128, pipeline.FormatE4M3, 436207616, 1, attention.KVE4M3},
		{128, "i4g32-zeros-f16", 436207616, 1, ""},
	}, 2) {
		mk, err := megakernel.Build(c, megakernel.Options{Weights: x.weights, Head: x.weights, KV: x.kv})
		require.NoError(t, err)
		p, err := megakernel.BuildPrefill(mk, megakernel.PrefillOptions{Tokens: x.tokens, Sequences: x.of})
		require.NoError(t, err)
		require.Equal(t, 2, p.Options.Cluster)
		require.Equal(t, x.scratch, p.Scratch())
		require.Equal(t, x.scratch > 0, p.Columns[len(p.Columns)-1] == 0, "an LM head with codes has no tiles")
		if deep.On() {
			compiles(t, p)
		}
	}
}

// Gemma 2 has heads of 256 dimensions: the ring has fewer stages beside the queries.
func TestThePrefillKernelOfWideHeadsHasRoomForQueries(t *testing.T) {
	c, err := models.Lookup("gemma-2-9b")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{})
	require.NoError(t, err)
	for tokens, stages := range map[int]int{128: 5, 1024: 4} {
		p, err := megakernel.BuildPrefill(mk, megakernel.PrefillOptions{Tokens: tokens})
		require.NoError(t, err)
		require.Equal(t, stages, p.Stages)
		if deep.On() && tokens == 1024 {
			compiles(t, p)
		}
	}
}

// compiles compiles a kernel as it ships, which must not spill registers.
func compiles(t *testing.T, p *megakernel.Prefill) {
	compiler := nvcctest.Need(t)
	target, err := emit.TargetFor("sm_90a")
	require.NoError(t, err)
	src, err := emit.Print(p.IR, target, megakernel.EmitOptions())
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "prefill.cu")
	require.NoError(t, os.WriteFile(path, src.Text, 0o644))
	report, err := compiler.Compile(t.Context(), path, path+"bin",
		nvcc.Options{Arch: target.Arch, Flags: []string{"-Werror", "all-warnings"}})
	require.NoError(t, err)
	require.NotContains(t, report.Text, "(C75", "ptxas serialises products")
	f := report.Functions[0]
	t.Logf("tiles %v, %d stages, %d lines, %+v", p.Columns, p.Stages, len(src.Lines), f)
	require.Zero(t, f.SpillStores+f.SpillLoads, "bytes spilled")
}

func TestPrefillKernelsThatCannotBeAreRefused(t *testing.T) {
	build := func(name string, o megakernel.Options, change func(c *models.Config), p megakernel.PrefillOptions) error {
		c, err := models.Lookup(name)
		require.NoError(t, err)
		if change != nil {
			change(&c)
		}
		mk, err := megakernel.Build(c, o)
		require.NoError(t, err)
		_, err = megakernel.BuildPrefill(mk, p)
		return err
	}
	for _, c := range []struct {
		o      megakernel.Options
		change func(c *models.Config)
		p      megakernel.PrefillOptions
		want   string
	}{
		{p: megakernel.PrefillOptions{Tokens: 5000}, want: "prefill kernel of tiny: steps of 5000 tokens, want 1 to 4096"},
		{o: megakernel.Options{SMs: 3}, p: megakernel.PrefillOptions{Cluster: 2}, want: "clusters of 2 in a grid of 3 CTAs"},
		{p: megakernel.PrefillOptions{Groups: 3}, want: "3 consumer warpgroups"},
		{o: megakernel.Options{MLP: megakernel.MLPFused}, want: `an MLP of "fused", want weights packed by rows`},
		{o: megakernel.Options{Attention: "streaming=64+sinks=4"},
			want: `attention "streaming=64+sinks=4", which rotates cached keys anew in each step: want window with the same sinks`},
		{o: megakernel.Options{Tokens: 4, Attention: "causal/mask"},
			want: `attention "mask", whose bits only a request of rows has: want no prefill kernel`},
		{o: megakernel.Options{Tokens: 4, Selection: true},
			want: "selected pages, which only a request of rows names: want no prefill kernel"},
		{change: func(c *models.Config) { c.Intermediate = 360 },
			want: "inputs of 96, 192 and 360 columns, want multiples of 32"},
	} {
		if c.o.SMs == 0 {
			c.o.SMs = 4
		}
		require.ErrorContains(t, build("tiny", c.o, c.change, c.p), c.want)
	}
}
