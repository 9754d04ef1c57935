package verify

import (
	"math/rand/v2"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// Whatever kernel can be built can be shrunk, still exercises what it must, and
// is right. More configurations take longer; these are drawn once and for all.
func TestRandomConfigurationsPass(t *testing.T) {
	if !deep.On() {
		t.Skip("runs kernels")
	}
	r := rand.New(rand.NewPCG(7, 7))
	for n := 0; n < 8; {
		req := oddRequest(t, r)
		if _, err := megakernel.Build(req.Config, req.Options); err != nil {
			require.ErrorContains(t, err, "pipeline:") // it does not fit
			continue
		}
		n++
		report, err := Check(t.Context(), req)
		require.NoError(t, err, "%+v", req)
		require.NoError(t, report.Err(), "%+v", req)
	}
}

// oddRequest makes a request of odd sizes and options.
func oddRequest(t *testing.T, r *rand.Rand) Request {
	t.Helper()
	pick := func(v ...int) int { return v[r.IntN(len(v))] }
	c, err := models.Lookup("llama3-8b")
	require.NoError(t, err)
	c.BOS, c.EOS = models.NoToken, nil
	c.KVHeads = pick(1, 2, 3, 8)
	c.Heads = c.KVHeads * pick(1, 2, 3, 7, 16)
	c.HeadDim = 16 * pick(1, 2, 3, 5, 8, 16)
	c.Hidden = 8 * pick(1, 3, 20, 33, 512)
	c.Intermediate = 8 * pick(1, 5, 44, 700, 1792)
	c.Vocab = pick(1, 2, 9, 100, 1000, 128256)
	c.Layers = pick(1, 2, 32)
	c.TieEmbeddings = r.IntN(2) == 0
	if r.IntN(2) == 0 {
		c.Rope.Scaling = nil
	}
	o := megakernel.Options{SMs: pick(0, 1, 2, 132, 1024), Page: pick(0, 1, 8, 128), Consumers: pick(0, 1, 2, 31),
		Splits: pick(0, 0, 1, 2, 128), Stages: pick(0, 0, 2, 5), InFlight: pick(0, 0, 1), StageBytes: pick(0, 0, 8192, 65536)}
	return Request{Config: c, Options: o, Seeds: 2, Steps: 2}
}
