package probe_test

import (
	"testing"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/lab/probe"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

const seed, page, pages = 2, 4, 24

// decoder is a kernel of tiny on the executor.
type decoder struct {
	mk      *megakernel.Kernel
	sim     *runtime.Sim
	session *runtime.Sequence
	weights megakernel.Tensors
	tokens  []int
	store   *probe.Store
}

func open(t *testing.T, o megakernel.Options, simSeed uint64) *decoder {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	o.SMs, o.Page, o.StageBytes = 2, page, 2176
	mk, err := megakernel.Build(c, o)
	require.NoError(t, err)
	sim, err := runtime.NewSim(mk.IR, simSeed)
	require.NoError(t, err)
	d := &decoder{mk: mk, sim: sim, weights: synth.NewWeights(seed, c), tokens: synth.Tokens(seed, 0, page*pages, c.Vocab)}
	table := gate.ShuffledTable(pages)
	d.session, err = runtime.NewSequence(mk, sim, d.weights, pages, table, 0)
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

// Every way in which vectors can be handed on has a probe, which changes no bit of the logits and
// of which the executor names no race, in launches of several steps either.
func TestAProbeChangesNoBit(t *testing.T) {
	for i, o := range []megakernel.Options{
		{},
		{Queries: megakernel.SyncBarrier, Merge: megakernel.MergePhase, Vectors: "barrier", Splits: 2},
		{Merge: megakernel.MergePhase, Vectors: "counted", Splits: 2, KV: "e4m3"},
		{Weights: "i4g32"},
	} {
		want := logitsOf(t, open(t, o, 1))
		o.Probe = true
		seeds := 1
		if deep.On() {
			seeds = 3
		}
		for simSeed := range uint64(seeds) {
			d := open(t, o, uint64(i)*8+simSeed)
			require.Equal(t, want, logitsOf(t, d), "%+v", o)
			s, err := probe.Take(d.mk, d.sim.Read, 5, d.tokens[5])
			require.NoError(t, err)
			f, err := (&probe.Checker{Kernel: d.mk, Weights: d.mk.Rounded(d.weights)}).Check([]int{0, 1}, []*probe.Sample{s},
				d.store)
			require.NoError(t, err)
			require.Empty(t, f.Problems(), "%+v", o)
		}
	}
}

// logitsOf feeds six tokens in two launches.
func logitsOf(t *testing.T, d *decoder) []float32 {
	t.Helper()
	for _, end := range []int{2, 6} {
		_, err := d.session.Generate(d.tokens[d.session.Pos():end], 1)
		require.NoError(t, err)
	}
	logits := make([]float32, d.mk.Config.Vocab)
	require.NoError(t, d.session.Logits(logits))
	return logits
}

func TestWhatHasNoProbeRefusesOne(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for _, x := range []struct {
		o    megakernel.Options
		want string
	}{
		{megakernel.Options{Tokens: 4}, "options: a probe with 4 query rows a step, want one row"},
		{megakernel.Options{Launch: megakernel.LaunchGraph}, "options: a probe of a graph of kernels, want a single one"},
		{megakernel.Options{MLP: megakernel.MLPFused},
			`options: a probe with MLP "fused", where no SM has the residual vector behind a layer; want rows`},
	} {
		_, err := megakernel.Build(c, x.o)
		require.NoError(t, err)
		x.o.Probe = true
		require.False(t, x.o.CanProbe())
		_, err = megakernel.Build(c, x.o)
		require.EqualError(t, err, x.want)
	}
}

func TestAKernelWithoutAProbeHasNoTraceOfIt(t *testing.T) {
	mk := open(t, megakernel.Options{}, 1).mk
	for _, b := range mk.IR.Globals() {
		require.NotContains(t, b.Name, "probe")
	}
}

func TestAProbedKernelIsRightLayerByLayer(t *testing.T) {
	for _, format := range deep.Most(pipeline.Formats(), 2) {
		d := open(t, megakernel.Options{Probe: true, Weights: format}, 1)
		var samples []*probe.Sample
		positions := []int{0, 1, 15, 35}
		if !deep.On() && format != pipeline.FormatBF16 {
			positions = positions[:3] // what formats differ in is the same at each
		}
		for _, p := range positions {
			samples = append(samples, d.feed(t, p))
		}
		f, err := (&probe.Checker{Kernel: d.mk, Weights: d.mk.Rounded(d.weights)}).Check([]int{0, 1}, samples, d.store)
		require.NoError(t, err)
		for _, x := range f {
			t.Logf("%s: %+v", format, x)
		}
		require.Empty(t, f.Problems(), format)
	}
}

// A token's row that another one's replaces reads back as that, in either format of the cache, and
// nothing else changes.
func TestARowIsOverwrittenByAnother(t *testing.T) {
	for _, format := range []megakernel.KVType{"bf16", "e4m3"} {
		d := open(t, megakernel.Options{KV: format}, 1)
		_, err := d.session.Generate(d.tokens[:7], 1)
		require.NoError(t, err)
		want, err := d.store.Layer(1, 0, 7)
		require.NoError(t, err)
		require.NoError(t, d.store.Overwrite(d.sim.Write, 1, 1, 5, 2))
		for v := range 2 {
			copy(want.Row(v, 5, 1), want.Row(v, 2, 1))
		}
		got, err := d.store.Layer(1, 0, 7)
		require.NoError(t, err)
		require.Equal(t, want, got, format)
		_, err = d.store.Layer(0, 3, page*pages+1)
		require.EqualError(t, err, "probe: tokens 3 to 97 of a cache for 96")
	}
}
