package runtime_test

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// prefillOfTiny is tiny's decode kernel of one row and its prefill kernel, over one image and one cache.
func prefillOfTiny(t *testing.T, o megakernel.PrefillOptions, page, pages int) (*runtime.Prefill, *runtime.Session, *runtime.Sim, *runtime.Sim, *megakernel.Kernel) {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 4, Page: page})
	require.NoError(t, err)
	p, err := megakernel.BuildPrefill(mk, o)
	require.NoError(t, err)
	sim, err := runtime.NewSim(mk.IR, 1)
	require.NoError(t, err)
	wide, err := runtime.NewSim(p.IR, 1)
	require.NoError(t, err)
	table := make([]uint32, pages-1)
	for i := range table {
		table[i] = uint32((5*i + 3) % pages) // not in order
	}
	s, err := runtime.OpenSession(t.Context(), mk, sim, runtime.FromTensors(synth.NewWeights(1, c), runtime.LoadOptions{}), runtime.SessionOptions{Pages: pages, Table: table})
	require.NoError(t, err)
	r, err := runtime.OpenPrefill(p, wide, sim, pages, 0)
	require.NoError(t, err)
	return r, s, wide, sim, mk
}

// cacheOf is a token's keys and values in a layer as the device has them.
func cacheOf(t *testing.T, sim *runtime.Sim, mk *megakernel.Kernel, pages int, table []uint32, layer, token, v int) []float64 {
	t.Helper()
	var out []float64
	var two [2]byte
	for head := range mk.KV.Heads {
		for d := range mk.KV.D {
			at := mk.KV.Index(pages, layer, int(table[token/mk.KV.Page]), head, token%mk.KV.Page, v, d)
			require.NoError(t, sim.Read("kv", int64(2*at), two[:]))
			out = append(out, float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(two[:]))<<16)))
		}
	}
	return out
}

// A prompt goes through the prefill kernel in steps of different lengths, its last token through the decode kernel: keys, values and
// logits are the float64 reference's, and as near to it as those of a prompt that the decode kernel read alone.
func TestAPromptThroughThePrefillKernel(t *testing.T) {
	ofValues(t)
	const pages = 12
	tokens := synth.Tokens(3, 0, 150, 320)
	r, s, wide, sim, mk := prefillOfTiny(t, megakernel.PrefillOptions{Tokens: 128}, 16, pages)
	table := make([]uint32, pages-1)
	for i := range table {
		table[i] = uint32((5*i + 3) % pages)
	}
	cached := 0
	for _, n := range []int{64, 17, 68} {
		require.NoError(t, r.Run(t.Context(), tokens[cached:cached+n], cached, table))
		t.Logf("%d tokens: %d instructions of warps", n, wide.Last.Steps)
		cached += n
	}
	ref, err := reference.NewModel(mk.Config, reference.Synthetic(mk.Config, 1), reference.Hooks{})
	require.NoError(t, err)
	var want []float64
	for _, token := range tokens {
		want = ref.Step(token)
	}
	var worst, size float64
	for layer := range mk.Config.Layers {
		keys, values := ref.Cache(layer)
		for token := range cached {
			for v, row := range [2][]float64{keys[token], values[token]} {
				for i, x := range cacheOf(t, sim, mk, pages, table, layer, token, v) {
					worst, size = worst+(x-row[i])*(x-row[i]), size+row[i]*row[i]
				}
			}
		}
	}
	t.Logf("relative error of keys and values: %.2g", math.Sqrt(worst/size))
	require.Less(t, math.Sqrt(worst/size), 0.01)
	require.NoError(t, s.Skip(cached))
	_, err = s.Step(tokens[cached])
	require.NoError(t, err)
	got := make([]float32, mk.Config.Vocab)
	require.NoError(t, s.Logits(got))
	error := relative([][]float64{want}, [][]float64{widened(got)})
	t.Logf("relative error of logits: %.2g", error)
	require.Less(t, error, 0.03)
	if deep.On() {
		_, alone, _, _, _ := prefillOfTiny(t, megakernel.PrefillOptions{Tokens: 128}, 16, pages)
		all := logitsOf(t, alone, mk, tokens)
		own := relative([][]float64{want}, all[len(all)-1:])
		t.Logf("that of the decode kernel alone: %.2g", own)
		require.Less(t, error, 1.5*own)
	}
}

// Whatever the schedule, steps of 64 and of 128 tokens, with one warpgroup or two and with clusters or without, write the same keys and
// values, without a race. The cache's pages are smaller than a block of attention in one case.
func TestThePrefillKernelUnderEverySchedule(t *testing.T) {
	ofValues(t)
	const pages = 40
	tokens := synth.Tokens(4, 0, 72, 320)
	table := make([]uint32, pages-1)
	for i := range table {
		table[i] = uint32(i)
	}
	var first []byte
	for i, o := range []megakernel.PrefillOptions{{Tokens: 64, Groups: 1}, {Tokens: 128, Groups: 1, Cluster: 2}, {Tokens: 128}} {
		r, _, wide, sim, mk := prefillOfTiny(t, o, 4, pages)
		for seed := range uint64(len(interp.Policies())) {
			wide.Reseed(seed)
			cached := 0
			for _, n := range []int{64, 8} {
				require.NoError(t, r.Run(t.Context(), tokens[cached:cached+n], cached, table), "%+v, seed %d", o, seed)
				cached += n
			}
			got := make([]byte, mk.Config.Layers*pages*mk.KV.PageBytes())
			require.NoError(t, sim.Read("kv", 0, got))
			if first == nil {
				first = got
			}
			require.Equal(t, first, got, "%+v, seed %d: other keys or values", o, seed)
			if !deep.On() && int(seed) == i+1 {
				break
			}
		}
	}
}

func widened(v []float32) (out []float64) {
	for _, x := range v {
		out = append(out, float64(x))
	}
	return out
}

// In a bundle, quiet launches of one sequence that have more tokens than the other kernels have rows go through the prefill kernel; what
// follows the prompt is what a kernel of one row chooses alone.
func TestABundleTakesThePrefillKernelForPrompts(t *testing.T) {
	ofValues(t)
	prompt := synth.Tokens(5, 0, 41, 320)
	want := chosenAlone(t, 3, prompt)[0]
	all := members(t, megakernel.Options{Page: 4}, 2, 1)
	b, err := openBundle(t, all, runtime.RaggedOptions{Steps: 3})
	require.NoError(t, err)
	require.Zero(t, b.PrefillRows())
	p, err := megakernel.BuildPrefill(all[0].Kernel, megakernel.PrefillOptions{Tokens: 64, Groups: 1})
	require.NoError(t, err)
	sim, err := runtime.NewSim(p.IR, 3)
	require.NoError(t, err)
	require.NoError(t, b.AddPrefill(p, sim))
	require.Equal(t, 64, b.PrefillRows())
	require.NoError(t, b.SetEnds(nil))
	pages := []uint32{6, 2, 9, 4, 0, 1, 3, 5, 7, 8, 10}
	launch := func(steps, cached int, quiet bool, feed ...int) [][]int {
		got, err := b.Run(t.Context(), batch.StepRequest{Sequences: []batch.Sequence{{New: feed, Cached: cached, Pages: pages}}, Steps: steps, Quiet: quiet})
		require.NoError(t, err)
		return got
	}
	require.Equal(t, [][]int{{batch.NoToken}}, launch(1, 0, true, prompt[:40]...))
	require.NotNil(t, sim.Last)
	require.False(t, ran(all[0]) || ran(all[1]))
	require.Equal(t, [][]int{{want[0]}, {want[1]}, {want[2]}}, launch(3, 40, false, prompt[40]))
	_, err = b.Run(t.Context(), batch.StepRequest{Sequences: []batch.Sequence{{New: prompt, Cached: 30, Pages: pages}}, Steps: 1, Quiet: true})
	require.ErrorContains(t, err, "a prefill step of 41 tokens behind 30 cached ones on 11 pages of 4, want pages for all")
}

// A launch that is given up, wherever it stands, is an error that names what was waited for, and the next one writes what it would have.
func TestAPrefillLaunchThatIsGivenUpLeavesAKernelThatGoesOn(t *testing.T) {
	ofValues(t)
	const pages = 8
	tokens := synth.Tokens(6, 0, 70, 320)
	r, _, wide, sim, mk := prefillOfTiny(t, megakernel.PrefillOptions{Tokens: 128, Groups: 1, Cluster: 2}, 16, pages)
	r.HangTimeout = time.Minute
	table := []uint32{3, 0, 5, 2, 7}
	kv := func() []byte {
		got := make([]byte, mk.Config.Layers*pages*mk.KV.PageBytes())
		require.NoError(t, sim.Read("kv", 0, got))
		return got
	}
	require.NoError(t, r.Run(t.Context(), tokens, 0, table))
	want := kv()
	for _, at := range []int64{500, 20000, 60000, 120000} {
		wide.ClaimStuck(at)
		err := r.Run(t.Context(), tokens, 0, table)
		var hang *runtime.HangError
		require.ErrorAs(t, err, &hang, "after %d instructions", at)
		require.NotEmpty(t, hang.Stuck)
		require.NoError(t, r.Run(t.Context(), tokens, 0, table))
		require.Equal(t, want, kv())
	}
}

// prefillEquivalent says how many mutants of a name of the prefill kernel break nothing in a grid of one cluster, and why.
var prefillEquivalent = map[string]struct {
	n   int
	why string
}{
	"producer: remove wait.mbar @tiles_empty":                      {2, "o and down have one tile: what fills stages for a further one does not run"},
	"producer: parity wait.mbar @tiles_empty: the other parity":    {2, "the same"},
	"producer: remove mbar.expect @tiles_full":                     {2, "the same"},
	"producer: bytes mbar.expect @tiles_full: 16 bytes more":       {2, "the same"},
	"producer: bytes mbar.expect @tiles_full: 16 bytes less":       {2, "the same"},
	"producer: remove syncwarp":                                    {14, "a warp of the executor goes in step; of a GPU's a lane could stay behind and miss a phase"},
	": remove bar.cluster":                                         {1, "the last one: a barrier of the grid lies before it, behind the last arrival at another CTA"},
	"consumers: count mbar.arrive.at @tiles_empty: at another CTA": {8, "each of two lanes arrives at the other's CTA instead of its own"},
	"consumers: remove wait @barrier":                              {4, "the producer waits for the same barrier, and the next product's consumers for what it copies then"},
	"consumers: count wait @barrier: one less":                     {4, "the same"},
	"consumers: weaken wait @barrier: acquire to relaxed":          {4, "the same"},
	"consumers: remove bar.sync":                                   {4, "behind that wait: the same"},
	"consumers: remove fence.proxy.async":                          {3, "a CTA's copies read what it has written itself, and its producer fences; not so in a grid of two clusters"},
}

// Every synchronisation of the whole kernel that is left out, weakened or miscounted is reported, in a ring of two stages; of fences also in
// a grid of two clusters. (What is only moved: see the templates' own tests.)
func TestMutantsOfThePrefillKernelAreReported(t *testing.T) {
	deep.Only(t)
	left := unreported(t, 2, func(mu mutate.Mutation) bool { return mu.Class != mutate.Earlier && mu.Class != mutate.Later })
	for name, n := range left {
		require.Equal(t, prefillEquivalent[name].n, n, "%d mutants %q are not reported", n, name)
	}
	for name, want := range prefillEquivalent {
		require.Equal(t, want.n, left[name], "mutants %q are reported, but were thought to be equivalent: %s", name, want.why)
	}
	require.Empty(t, unreported(t, 4, func(mu mutate.Mutation) bool {
		return mu.Class == mutate.Remove && mu.Role == "consumers" && strings.Contains(mu.Name, "fence.proxy")
	}))
}

// unreported counts the mutants of tiny's prefill kernel in so many CTAs that no schedule shows, by role and name.
func unreported(t *testing.T, sms int, wanted func(mu mutate.Mutation) bool) map[string]int {
	t.Helper()
	const pages = 8
	tokens := synth.Tokens(7, 0, 40, 320)
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{SMs: sms, SharedLimit: 80 << 10})
	require.NoError(t, err)
	p, err := megakernel.BuildPrefill(mk, megakernel.PrefillOptions{Tokens: 64, Groups: 1, Cluster: 2})
	require.NoError(t, err)
	sim, err := runtime.NewSim(mk.IR, 1)
	require.NoError(t, err)
	wide, err := runtime.NewSim(p.IR, 1)
	require.NoError(t, err)
	_, err = runtime.OpenSession(t.Context(), mk, sim, runtime.FromTensors(synth.NewWeights(1, c), runtime.LoadOptions{}), runtime.SessionOptions{Pages: pages, Table: []uint32{1}})
	require.NoError(t, err)
	r, err := runtime.OpenPrefill(p, wide, sim, pages, 0)
	require.NoError(t, err)
	require.NoError(t, r.Run(t.Context(), tokens, 0, []uint32{3, 1, 6})) // writes the tokens and the table
	left, all := map[string]int{}, 0
	for _, mu := range mutate.List(p.IR) {
		if !wanted(mu) {
			continue
		}
		broken, err := mutate.Apply(p.IR, mu)
		require.NoError(t, err)
		require.NoError(t, wide.Swap(broken))
		wide.Options.MaxSteps = 3e6
		found := false
		for seed := uint64(1); seed < 7 && !found; seed++ {
			wide.Reseed(seed)
			require.NoError(t, errors.Join(wide.Zero("barrier"), wide.Zero("epoch")))
			err := runtime.Launch(wide, map[string]uint64{megakernel.ScalarPos: 0, megakernel.ScalarRows: uint64(len(tokens)), megakernel.ScalarPages: pages})
			var f *interp.Fault
			if found = errors.As(err, &f); !found {
				require.NoError(t, err)
			}
		}
		if all++; !found {
			left[mu.Role+": "+mu.Name]++
		}
	}
	t.Logf("%d CTAs, %d stages: %d mutants", sms, p.Stages, all)
	return left
}
