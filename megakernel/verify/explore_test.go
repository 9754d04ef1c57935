package verify

import (
	"testing"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

func TestALayerHasNoFaultInTheFirstExecutions(t *testing.T) {
	config, err := models.Lookup("tiny")
	require.NoError(t, err)
	x, err := Explore(t.Context(), config, megakernel.Options{}, interp.Bounds{Executions: 10})
	require.NoError(t, err)
	require.Equal(t, 10, x.Executions+x.Cut)
	require.Greater(t, x.Executions, 1)
	require.Greater(t, x.Longest, 1000)
	require.False(t, x.Complete)

	x, err = Explore(t.Context(), config, registers, interp.Bounds{Executions: 2})
	require.NoError(t, err)
	require.Contains(t, x.What, "consumers warps 0-7, producer warps 8-11 each, 4 rows of 2 sequences")
	require.Equal(t, 2, x.Executions+x.Cut)
	require.Greater(t, x.Longest, 1000)

	_, err = Explore(t.Context(), config, megakernel.Options{Tokens: 99}, interp.Bounds{Executions: 1})
	require.Error(t, err)
}
