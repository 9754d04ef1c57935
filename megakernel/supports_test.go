package megakernel

import (
	"testing"

	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

func TestRegisteredModelsMissNothing(t *testing.T) {
	for _, c := range models.All() {
		a := c.Arch()
		require.Empty(t, Supports(&a), c.Name)
	}
}

func TestModelWithFeaturesOfNoTemplateIsRefusedByTheirNames(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	half := c.Rope
	half.Dims = c.HeadDim / 2
	c.Traits.Kinds, c.Traits.Pattern = []models.Kind{{}, {Rope: &half}}, []int{0, 1}
	_, err = Build(c, Options{})
	require.EqualError(t, err,
		"model tiny: the kernel does not have rotary embeddings that pair other elements in some layers yet")
}

func TestOptionsThatAModelExcludesAreRefused(t *testing.T) {
	normed, err := models.Lookup("tiny")
	require.NoError(t, err)
	normed.Traits.QKNorm = models.QKNormByHead
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Queries: SyncBarrier}, `options: "barrier" of a model with norms of q and k, want words`},
		{Options{MLP: MLPFused}, `options: "fused" of a model with norms of q and k, want rows`},
		{Options{Launch: LaunchGraph}, `options: a graph of kernels of a model with norms of q and k; want a single kernel`},
		{Options{Attention: "streaming=8"},
			`options: streaming in "streaming=8" of a model whose rotary embeddings differ by layer, have a factor or come behind a norm, or whose scores grow; want another kind of attention`},
	} {
		_, err := Build(normed, c.o)
		require.EqualError(t, err, c.want)
	}
}
