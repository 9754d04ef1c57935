package megakernel

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// mapped is hashed as a Reader, every row at an odd address.
type mapped struct{ hashed }

func (h mapped) Reading(f func(row) error) error {
	return f(func(tensor string, row int, scratch []half.BF16) ([]byte, error) {
		err := h.Row(tensor, row, scratch)
		out := make([]byte, 1, 2*len(scratch)+1)
		for _, v := range scratch {
			out = v.Append(out)
		}
		return out[1:], err
	})
}

// slowly packs a layer row by row through Plan.Pack and the layout's sources.
func slowly(t *testing.T, mk *Kernel, layer int, bytes int64) []byte {
	t.Helper()
	image := make([]byte, bytes)
	first := 0
	if layer == pipeline.FinalLayer {
		first = layerMatrices
	}
	for i := range mk.Plan.Matrices(layer) {
		require.NoError(t, mk.Plan.Pack(image, layer, i, func(row int, scratch []half.BF16) ([]half.BF16, error) {
			s := mk.Sources(first + i)(row)
			name := s.Tensor
			if layer >= 0 {
				name = fmt.Sprintf(name, layer)
			}
			return scratch, hashed{}.Row(name, s.Row, scratch)
		}))
	}
	return image
}

func oddModel(t *testing.T) models.Config {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.Hidden, c.Intermediate, c.Vocab, c.TieEmbeddings = 104, 200, 77, false
	return c
}

// interleave plans the weights in batches of n tiles at most; 0 leaves them.
func interleave(t testing.TB, mk *Kernel, most int) {
	t.Helper()
	r := mk.request()
	r.BatchTiles = most
	p, err := pipeline.New(r)
	require.NoError(t, err)
	mk.Plan = p
}

func TestBlocksOfAnySizePackTheSameImage(t *testing.T) {
	tiny, err := models.Lookup("tiny")
	require.NoError(t, err)
	for i, c := range []models.Config{tiny, oddModel(t), tiny, oddModel(t), tiny, oddModel(t)} {
		for _, sms := range []int{1, 7, 60} {
			o := Options{SMs: sms}
			if i > 3 {
				o.MLP = MLPFused
			}
			mk, err := Build(c, o)
			require.NoError(t, err)
			if i <= 3 {
				interleave(t, mk, i/2*(i+1))
			}
			var want []byte
			for l := range c.Layers {
				image := slowly(t, mk, l, mk.Plan.LayerBytes)
				whole := make([]byte, len(image))
				require.NoError(t, mk.PackLayer(whole, l, hashed{}))
				require.Equal(t, image, whole)
				want = append(want, image...)
			}
			want = append(want, slowly(t, mk, pipeline.FinalLayer, mk.Plan.FinalBytes)...)
			for _, most := range []int64{1, 5000, 1 << 30} {
				for _, source := range []Tensors{hashed{}, mapped{}} {
					var got []byte
					p := mk.NewPacker(source)
					for _, b := range mk.Plan.Blocks(most) {
						dirty := make([]byte, b.Bytes)
						for i := range dirty {
							dirty[i] = 0xEE
						}
						require.NoError(t, p.Pack(dirty, &b))
						got = append(got, dirty...)
					}
					require.Equal(t, want, got, "%s on %d SMs in blocks of %d", c.Name, sms, most)
				}
			}
		}
	}
}

// withoutRow delivers no row of one tensor, and short rows of another.
type withoutRow struct {
	mapped
	tensor, short string
}

var errNoRow = errors.New("no such row")

func (f withoutRow) Reading(use func(row) error) error {
	return f.mapped.Reading(func(good row) error {
		return use(func(tensor string, row int, scratch []half.BF16) ([]byte, error) {
			if tensor == f.tensor {
				return nil, fmt.Errorf("%s: %w", tensor, errNoRow)
			}
			v, err := good(tensor, row, scratch)
			if tensor == f.short {
				v = v[2:]
			}
			return v, err
		})
	})
}

func TestPackRefusals(t *testing.T) {
	mk, err := Build(oddModel(t), Options{SMs: 3})
	require.NoError(t, err)
	image := make([]byte, mk.Plan.LayerBytes)
	err = mk.PackLayer(image, 1, withoutRow{tensor: "model.layers.1.mlp.up_proj.weight"})
	require.ErrorIs(t, err, errNoRow)
	require.ErrorContains(t, err, "model.layers.1.mlp.up_proj.weight")
	require.NoError(t, mk.PackLayer(image, 0, withoutRow{tensor: "model.layers.1.mlp.up_proj.weight"}))
	require.ErrorContains(t, mk.PackLayer(image, 0, withoutRow{short: "model.layers.0.self_attn.o_proj.weight"}),
		"model.layers.0.self_attn.o_proj.weight row 0 has")
	for _, layer := range []int{-2, 2} {
		require.ErrorContains(t, mk.PackLayer(image, layer, hashed{}), "want 0 to 1 or FinalLayer")
	}
	require.ErrorContains(t, mk.PackLayer(image[1:], 0, hashed{}), "whose image has")
	require.ErrorContains(t, mk.NewPacker(hashed{}).Pack(image[:5], &mk.Plan.Blocks(1)[0]),
		"room for 5 bytes of a block of")
}

// TestTheImageIsTheModels: kernels of one row and of several, of any options and for any
// number of SMs read the same bytes.
func TestTheImageIsTheModels(t *testing.T) {
	for _, c := range []models.Config{oddModel(t), mustLookup(t, "tiny")} {
		var want []byte
		for _, o := range []Options{{SMs: 1}, {SMs: 132}, {SMs: 7, Tokens: 2}, {SMs: 132, Tokens: 16},
			{SMs: 5, StageBytes: 2048}} {
			mk, err := Build(c, o)
			require.NoError(t, err)
			var got []byte
			for l := range c.Layers {
				image := make([]byte, mk.Plan.LayerBytes)
				require.NoError(t, mk.PackLayer(image, l, hashed{}))
				got = append(got, image...)
			}
			final := make([]byte, mk.Plan.FinalBytes)
			require.NoError(t, mk.PackLayer(final, pipeline.FinalLayer, hashed{}))
			got = append(got, final...)
			if want == nil {
				want = got
			}
			require.Equal(t, want, got, "%+v", o)
		}
	}
}

func mustLookup(t *testing.T, name string) models.Config {
	t.Helper()
	c, err := models.Lookup(name)
	require.NoError(t, err)
	return c
}
