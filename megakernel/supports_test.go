package megakernel

import (
	"testing"

	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

func TestRegisteredLlamasMissNothing(t *testing.T) {
	for _, c := range models.Checked() {
		a := c.Arch()
		require.Empty(t, Supports(&a), c.Name)
	}
}

func TestModelWithFeaturesOfNoTemplateIsRefusedByTheirNames(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.Traits.ResidualScale, c.Traits.LogitScale = 0.5, 0.25
	_, err = Build(c, Options{})
	require.EqualError(t, err, "model tiny: the kernel does not have scaled residuals, scaled logits yet")
}
