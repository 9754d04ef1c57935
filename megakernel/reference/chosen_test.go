package reference_test

import (
	"testing"

	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// Random weights of a model that scales its embedding and has it as LM head choose other tokens than those that they
// are given. With gains near 1 the logit of a step's own token would be the largest of all, always.
func TestRandomModelsDoNotRepeatTheirToken(t *testing.T) {
	for _, name := range []string{"gemma-2-9b", "gemma-3-1b", "granite-3.3-2b", "llama3.2-1b"} {
		c, err := models.Lookup(name)
		require.NoError(t, err)
		c.Layers, c.Hidden, c.Intermediate, c.Vocab, c.Heads, c.KVHeads, c.HeadDim = 2, 160, 320, 1000, 2, 1, 32
		m, err := reference.NewModel(c, reference.Synthetic(c, 1), reference.Hooks{})
		require.NoError(t, err)
		same := 0
		for token := range 20 {
			if reference.Argmax(m.Step(token)) == token {
				same++
			}
		}
		require.LessOrEqual(t, same, 5, name)
	}
}
