package attend_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/internal/nvcc"
	"github.com/mkgen/mkgen/internal/nvcc/nvcctest"
	"github.com/mkgen/mkgen/lab/attend"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/stretchr/testify/require"
)

func TestWhatAKernelOfPromptsAttentionRefuses(t *testing.T) {
	for want, c := range map[string]attend.PrefillConfig{
		"attend: 0 KV heads":                         {Heads: 4, HeadDim: 32},
		"want at least 1, at most 2, and a multiple": {Heads: 4, KVHeads: 4, HeadDim: 32, SMs: 3, Cluster: 2},
		"head dimension 272, want a multiple of 16":  {Heads: 4, KVHeads: 4, HeadDim: 272, Page: 16},
		"page size 24 is not a power of two":         {Heads: 4, KVHeads: 4, HeadDim: 64, Page: 24},
	} {
		_, err := attend.BuildPrefill(c)
		require.ErrorContains(t, err, want)
	}
	p, err := attend.BuildPrefill(attend.PrefillConfig{Heads: 16, KVHeads: 16, HeadDim: 128, Page: 16})
	require.NoError(t, err)
	require.Equal(t, []int{2, 2, 6, 512}, []int{p.Config.Groups, p.Config.Cluster, p.Stages, p.Room(257)})
	p, err = attend.BuildPrefill(attend.PrefillConfig{Heads: 16, KVHeads: 16, HeadDim: 128, Page: 1})
	require.NoError(t, err)
	require.Equal(t, []int{2, 6, 16 * 33, 128 * 16 * 512},
		[]int{p.Config.Cluster, p.Stages, p.Blocks(16, 4097), p.BlockBytes()})
	p, err = attend.BuildPrefill(attend.PrefillConfig{Heads: 16, KVHeads: 16, HeadDim: 128, Page: 1,
		Variant: attend.PrefillVariant{Window: 9}})
	require.NoError(t, err)
	require.Equal(t, []int{1, 0}, []int{p.Config.Cluster, p.Blocks(16, 4097)}, "small pages of a window are gathered")
	p, err = attend.BuildPrefill(attend.PrefillConfig{Heads: 16, KVHeads: 8, HeadDim: 256, Page: 16})
	require.NoError(t, err)
	require.Equal(t, 5, p.Stages, "beside the queries")
}

// The kernel of 16 heads of 128, over pages of 16 tokens and of one, which are copied, or with a window gathered.
func TestTheKernelOfPromptsAttentionCompilesWithoutSpills(t *testing.T) {
	deep.Only(t)
	compiler := nvcctest.Need(t)
	target, err := emit.TargetFor("sm_90a")
	require.NoError(t, err)
	for _, c := range []attend.PrefillConfig{{Page: 16}, {Page: 1}, {Page: 1, Variant: attend.PrefillVariant{Window: 9}}} {
		c.Heads, c.KVHeads, c.HeadDim = 16, 16, 128
		p, err := attend.BuildPrefill(c)
		require.NoError(t, err)
		src, err := emit.Print(p.IR, target, megakernel.EmitOptions())
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "attention.cu")
		require.NoError(t, os.WriteFile(path, src.Text, 0o644))
		report, err := compiler.Compile(t.Context(), path, path+"bin",
			nvcc.Options{Arch: target.Arch, Flags: []string{"-Werror", "all-warnings"}})
		require.NoError(t, err)
		require.NotContains(t, report.Text, "(C75", "ptxas serialises products")
		require.Zero(t, report.Functions[0].SpillStores, "page %d: %+v", c.Page, report.Functions[0])
	}
}
