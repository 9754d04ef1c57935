package families

import (
	"slices"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// Where tiles are dealt out in pieces, SMs give parts of rows, which every reader adds up: the kernel computes the same
// model as with whole tiles.
func TestPiecesOfTilesAddUp(t *testing.T) {
	all := cases(t)
	for _, of := range []struct {
		name    string
		down, o int // chunks of a tile
		pieces  [2]int
	}{{"gemma2", 2, 2, [2]int{2, 2}}, {"gemma2", 3, 1, [2]int{3, 1}}, {"gemma3", 6, 1, [2]int{3, 1}},
		{"olmo2", 4, 1, [2]int{2, 1}}} {
		t.Run(of.name, func(t *testing.T) {
			t.Parallel()
			c := all[slices.IndexFunc(all, func(c Case) bool { return c.Name == of.name })]
			config, err := c.Config(nil)
			require.NoError(t, err)
			o := small
			o.SMs, o.StageBytes = 3, max(512, 16*2*2*config.HeadDim)
			columns := o.StageBytes / 16
			width := config.Intermediate
			config.Hidden, config.Intermediate = 128, of.down*columns
			if of.o > 1 {
				config.Heads = of.o * columns / config.HeadDim
			}
			w := reference.Weights{}
			for _, x := range c.Tensors() {
				for i, n := range x.Shape {
					switch {
					case strings.Contains(x.Name, "mlp.") && n == width:
						x.Shape[i] = config.Intermediate
					case n == 64 && !(i == 0 && strings.Contains(x.Name, "self_attn")) && !strings.Contains(x.Name, "o_proj"):
						x.Shape[i] = config.Hidden
					}
				}
				switch {
				case strings.Contains(x.Name, "q_proj"):
					x.Shape[0] = config.Heads * config.HeadDim
				case strings.Contains(x.Name, "o_proj"):
					x.Shape = []int{config.Hidden, config.Heads * config.HeadDim}
				}
				w[x.Name] = make([]half.BF16, x.Elems())
				require.NoError(t, synth.Fill(w[x.Name], Seed, x, 0))
			}
			mk, err := megakernel.Build(config, o)
			require.NoError(t, err)
			require.Equal(t, of.pieces, [2]int{mk.Plan.Layer[megakernel.MatrixDown].Pieces,
				mk.Plan.Layer[megakernel.MatrixO].Pieces})
			tokens := c.Tokens[:5]
			want := logitsOf(t, config, w, tokens, reference.AsKernel(config))
			far, own := distance(decode(t, mk, w, tokens), want),
				distance(want, logitsOf(t, config, w, tokens, reference.Hooks{}))
			t.Logf("%.4f, limit %.4f", far, limit(own))
			require.Less(t, far, limit(own))
		})
	}
}
