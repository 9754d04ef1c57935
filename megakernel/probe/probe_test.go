package probe_test

import (
	"testing"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/gate"
	"github.com/mkgen/mkgen/megakernel/probe"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/megakernel/runtime"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

const seed, page, pages = 2, 4, 24

// decoder is a kernel of tiny on the executor.
type decoder struct {
	mk      *megakernel.Kernel
	sim     *runtime.Sim
	session *runtime.Session
	weights megakernel.Tensors
	tokens  []int
	store   *probe.Store
}

func open(t *testing.T, o megakernel.Options, simSeed uint64) *decoder {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	o.SMs, o.Page, o.StageBytes = 2, page, 2048
	mk, err := megakernel.Build(c, o)
	require.NoError(t, err)
	sim, err := runtime.NewSim(mk.IR, simSeed)
	require.NoError(t, err)
	d := &decoder{mk: mk, sim: sim, weights: synth.NewWeights(seed, reference.ShapeOf(c).Dims()), tokens: synth.Tokens(seed, 0, page*pages, c.Vocab)}
	table := gate.ShuffledTable(pages)
	d.session, err = runtime.NewSession(mk, sim, d.weights, pages, table, 0)
	require.NoError(t, err)
	d.store = &probe.Store{Kernel: mk, Read: sim.Read, Pages: pages, Table: table}
	return d
}

// feed feeds tokens up to position last, and takes what the last step left.
func (d *decoder) feed(t *testing.T, last int) *probe.Sample {
	t.Helper()
	_, err := d.session.Generate(d.tokens[d.session.Pos():last+1], 1)
	require.NoError(t, err)
	s, err := probe.Take(d.mk, d.sim.Read, last, d.tokens[last])
	require.NoError(t, err)
	return s
}

func TestAProbedKernelIsRightLayerByLayer(t *testing.T) {
	d := open(t, megakernel.Options{Probe: true}, 1)
	var samples []*probe.Sample
	for _, p := range []int{0, 1, 15, 40, 63, 70} {
		samples = append(samples, d.feed(t, p))
	}
	f, err := (&probe.Checker{Kernel: d.mk, Weights: d.weights}).Check([]int{0, 1}, samples, d.store)
	require.NoError(t, err)
	for _, x := range f {
		t.Logf("%+v", x)
	}
	require.Empty(t, f.Problems())
}
