package runtime_test

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// prefillOfTiny is tiny's decode kernel of one row and its prefill kernel, over one image and one cache.
func prefillOfTiny(t *testing.T, o megakernel.PrefillOptions, page,
	pages int) (*runtime.Prefill, *runtime.Sequence, *runtime.Sim, *runtime.Sim, *megakernel.Kernel) {
	t.Helper()
	return prefillOfTinyIn(t, pipeline.FormatBF16, o, page, pages)
}

// prefillOfTinyIn is prefillOfTiny with weights of a format.
func prefillOfTinyIn(t *testing.T, weights pipeline.Format, o megakernel.PrefillOptions, page,
	pages int) (*runtime.Prefill, *runtime.Sequence, *runtime.Sim, *runtime.Sim, *megakernel.Kernel) {
	t.Helper()
	return prefillWith(t, megakernel.Options{SMs: 4, Page: page, Weights: weights}, runtime.Options{}, o, pages)
}

// prefillWith is prefillOfTiny with options of the decode kernel, and of its runtime.
func prefillWith(t *testing.T, of megakernel.Options, with runtime.Options, o megakernel.PrefillOptions,
	pages int) (*runtime.Prefill, *runtime.Sequence, *runtime.Sim, *runtime.Sim, *megakernel.Kernel) {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	return prefillOf(t, c, of, with, o, pages)
}

// prefillOf is prefillWith of another model.
func prefillOf(t *testing.T, c models.Config, of megakernel.Options, with runtime.Options, o megakernel.PrefillOptions,
	pages int) (*runtime.Prefill, *runtime.Sequence, *runtime.Sim, *runtime.Sim, *megakernel.Kernel) {
	t.Helper()
	mk, err := megakernel.Build(c, of)
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
	with.Pages, with.Table = pages, table
	s, err := runtime.OpenSequence(t.Context(), mk, sim,
		runtime.FromTensors(synth.NewWeights(1, c), runtime.LoadOptions{}), with)
	require.NoError(t, err)
	r, err := runtime.OpenPrefill(p, wide, sim, pages, 0)
	require.NoError(t, err)
	return r, s, wide, sim, mk
}

// cacheOf is a token's keys and values in a layer as the device has them.
func cacheOf(t *testing.T, sim *runtime.Sim, mk *megakernel.Kernel, pages int, table []uint32, layer, token,
	v int) []float64 {
	t.Helper()
	var out []float64
	var two [2]byte
	for head := range mk.KV.Heads {
		for d := range mk.KV.D {
			at := mk.KV.Index(pages, layer, int(table[token/mk.KV.Page]), head, token%mk.KV.Page, v, d)
			require.NoError(t, sim.Read("kv", int64(2*at), two[:]))
			out = append(out, float64(half.BF16At(two[:]).Float32()))
		}
	}
	return out
}

// A prompt goes through the prefill kernel in steps of different lengths: keys, values and
// logits are the float64 reference's, and as near to it as those of a prompt that the decode kernel read alone; and so
// are those of the decode kernel that reads the last token again.
func TestAPromptThroughThePrefillKernel(t *testing.T) {
	ofValues(t)
	formats := deep.Most([]pipeline.Format{pipeline.FormatBF16, pipeline.FormatI4G32, pipeline.FormatE4M3,
		pipeline.FormatI8, pipeline.FormatMXFP4, pipeline.FormatNVFP4, "i4g32-zeros-f16"}, 2)
	for _, format := range formats {
		t.Run(string(format), func(t *testing.T) { promptThroughPrefill(t, format) })
	}
}

func promptThroughPrefill(t *testing.T, format pipeline.Format) {
	const pages = 12
	tokens := synth.Tokens(3, 0, 150, 320)
	r, s, wide, sim, mk := prefillOfTinyIn(t, format, megakernel.PrefillOptions{Tokens: 128}, 16, pages)
	table := make([]uint32, pages-1)
	for i := range table {
		table[i] = uint32((5*i + 3) % pages)
	}
	r.SplitMost = format != pipeline.FormatBF16 // the last step sees two blocks of attention
	cached, steps := 0, []int{64, 17, len(tokens) - 81}
	if format != pipeline.FormatBF16 && !deep.On() {
		steps = []int{81, len(tokens) - 81}
	}
	for _, n := range steps {
		_, err := r.Run(t.Context(), tokens[cached:cached+n], cached, table, cached+n < len(tokens))
		require.NoError(t, err)
		t.Logf("%d tokens: %d instructions of warps", n, wide.Last.Steps)
		cached += n
	}
	weights, rounded := reference.Synthetic(mk.Config, 1), mk.Rounded(synth.NewWeights(1, mk.Config))
	for _, tensor := range synth.Tensors(mk.Config) {
		columns := tensor.Shape[len(tensor.Shape)-1]
		for row := range len(weights[tensor.Name]) / columns {
			require.NoError(t, rounded.Row(tensor.Name, row, weights[tensor.Name][row*columns:][:columns]))
		}
	}
	ref, err := reference.NewModel(mk.Config, weights, reference.Hooks{})
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
	got := make([]float32, mk.Config.Vocab)
	require.NoError(t, r.Logits(0, got))
	error := relative([][]float64{want}, [][]float64{widened(got)})
	t.Logf("relative error of logits: %.2g", error)
	require.Less(t, error, 0.03)
	require.NoError(t, s.Skip(cached-1))
	_, err = s.Step(tokens[cached-1])
	require.NoError(t, err)
	require.NoError(t, s.Logits(got))
	require.Less(t, relative([][]float64{want}, [][]float64{widened(got)}), 0.03)
	if deep.On() && format == pipeline.FormatBF16 { // others' decode kernels round inputs less
		_, alone, _, _, _ := prefillOfTinyIn(t, format, megakernel.PrefillOptions{Tokens: 128}, 16, pages)
		all := logitsOf(t, alone, mk, tokens)
		own := relative([][]float64{want}, all[len(all)-1:])
		t.Logf("that of the decode kernel alone: %.2g", own)
		require.Less(t, error, 1.5*own)
	}
}

// Whatever the schedule, steps of 64 and of 128 tokens, with one warpgroup or two and with clusters or without, write
// the same keys and values, without a race, and so they do with inputs of products in e4m3. The cache's pages are
// smaller than a block of attention in one case.
func TestThePrefillKernelUnderEverySchedule(t *testing.T) {
	ofValues(t)
	const pages = 40
	tokens := synth.Tokens(4, 0, 72, 320)
	table := make([]uint32, pages-1)
	for i := range table {
		table[i] = uint32(i)
	}
	var first []byte
	var activations pipeline.Format
	for i, o := range []megakernel.PrefillOptions{{Tokens: 64, Groups: 1}, {Tokens: 128, Groups: 1, Cluster: 2},
		{Tokens: 128}, {Tokens: 64, Groups: 1, Cluster: 1}, {Tokens: 128, Activations: pipeline.FormatE4M3},
		{Tokens: 64, Groups: 1, Cluster: 2, Activations: pipeline.FormatE4M3}} {
		if o.Activations != activations {
			first, activations = nil, o.Activations
		}
		r, _, wide, sim, mk := prefillOfTinyIn(t, cmp.Or(o.Activations, pipeline.FormatBF16), o, 8, pages)
		for seed := range uint64(len(interp.Policies())) {
			if !deep.On() && int(seed) != i+1 { // each has a schedule of its own
				continue
			}
			wide.Reseed(seed)
			cached, chosen := 0, 0
			var err error
			for _, n := range []int{64, 8} {
				chosen, err = r.Run(t.Context(), tokens[cached:cached+n], cached, table, cached+n < len(tokens))
				require.NoError(t, err, "%+v, seed %d", o, seed)
				cached += n
			}
			logits := make([]float32, mk.Config.Vocab)
			require.NoError(t, r.Logits(0, logits))
			require.Equal(t, slices.Max(logits), logits[chosen])
			require.NotContains(t, logits[:chosen], logits[chosen])
			got := make([]byte, mk.Config.Layers*pages*mk.KV.PageBytes())
			require.NoError(t, sim.Read("kv", 0, got))
			if first == nil {
				first = got
			}
			require.Equal(t, first, got, "%+v, seed %d: other keys or values", o, seed)
		}
	}
}

// A down projection in parts of its columns has the same bits under every schedule, and but for the order of sums those
// of one in one.
func TestPartsOfTheDownProjection(t *testing.T) {
	ofValues(t)
	const pages = 12
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.Intermediate = 512
	tokens, table := synth.Tokens(4, 0, 72, 320), make([]uint32, pages-1)
	for i := range table {
		table[i] = uint32(i)
	}
	var want []float32
	for _, o := range []megakernel.PrefillOptions{{Tokens: 128, DownParts: 1}, {Tokens: 128, DownParts: 4},
		{Tokens: 64, DownParts: 2}, {Tokens: 256, DownParts: 2, Sequences: 3}} {
		r, _, wide, _, mk := prefillOf(t, c, megakernel.Options{SMs: 4, Page: 8}, runtime.Options{}, o, pages)
		var first []float32
		for seed := range uint64(len(interp.Policies())) {
			wide.Reseed(seed)
			for at := 0; at < len(tokens); at += 64 {
				_, err := r.Run(t.Context(), tokens[at:min(at+64, len(tokens))], at, table, at+64 < len(tokens))
				require.NoError(t, err, "%+v, seed %d", o, seed)
			}
			logits := make([]float32, mk.Config.Vocab)
			require.NoError(t, r.Logits(0, logits))
			if first == nil {
				first = logits
			}
			require.Equal(t, first, logits, "%+v, seed %d", o, seed)
		}
		if want == nil {
			want = first
		}
		for i := range want {
			require.InDelta(t, want[i], first[i], 0.02, "%+v, logit %d", o, i)
		}
		p, err := megakernel.BuildPrefill(mk, o)
		require.NoError(t, err)
		require.Equal(t, o.DownParts, p.KParts[megakernel.MatrixDown], "%+v", o)
	}
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 4, Page: 8})
	require.NoError(t, err)
	_, err = megakernel.BuildPrefill(mk, megakernel.PrefillOptions{Tokens: 128, DownParts: 3})
	require.ErrorContains(t, err, "a down projection of 512 columns in 3 parts, want a multiple of 384")
}

func widened(v []float32) (out []float64) {
	for _, x := range v {
		out = append(out, float64(x))
	}
	return out
}

// In a bundle, quiet launches of one sequence that have more tokens than the other kernels have rows go through the
// prefill kernel; what follows the prompt is what a kernel of one row chooses alone.
func TestABundleTakesThePrefillKernelForPrompts(t *testing.T) {
	ofValues(t)
	prompt := synth.Tokens(5, 0, 41, 320)
	want := chosenAlone(t, 3, prompt)[0]
	all := members(t, megakernel.Options{Page: 4}, 2, 1)
	b, err := openBundle(t, all, runtime.Options{Steps: 3})
	require.NoError(t, err)
	require.Zero(t, b.PrefillRows())
	p, err := megakernel.BuildPrefill(all[0].Kernel, megakernel.PrefillOptions{Tokens: 64, Groups: 1})
	require.NoError(t, err)
	sim, err := runtime.NewSim(p.IR, 3)
	require.NoError(t, err)
	require.NoError(t, b.AddPrefill(p, sim))
	require.Equal(t, 64, b.PrefillRows())
	require.Equal(t, 3, b.PrefillLeast())
	require.NoError(t, b.SetEnds(nil))
	pages := []uint32{6, 2, 9, 4, 0, 1, 3, 5, 7, 8, 10}
	launch := func(steps, cached int, quiet bool, feed ...int) [][]int {
		got, err := b.Run(t.Context(),
			batch.StepRequest{Sequences: []batch.Sequence{{New: feed, Cached: cached, Pages: pages}}, Steps: steps,
				Quiet: quiet})
		require.NoError(t, err)
		return got
	}
	require.Equal(t, [][]int{{batch.NoToken}}, launch(1, 0, true, prompt[:40]...))
	require.NotNil(t, sim.Last)
	require.False(t, ran(all[0]) || ran(all[1]))
	require.Equal(t, [][]int{{want[0]}, {want[1]}, {want[2]}}, launch(3, 40, false, prompt[40]))
	require.Equal(t, [][]int{{want[0]}}, launch(1, 0, false, prompt...)) // the whole prompt at once
	logits := make([]float32, 320)
	require.NoError(t, b.Logits(0, logits))
	require.Equal(t, want[0], slices.Index(logits, slices.Max(logits)))
	for seed := range uint64(deep.Count(5, 2)) { // drawn from those logits, not the highest
		sampled := sampling.Params{Temperature: 5, Seed: seed}
		drawn, err := b.Run(t.Context(), batch.StepRequest{Sequences: []batch.Sequence{{New: prompt, Pages: pages,
			Draw: sampled.Rule(&sampling.Penalties{}, nil, nil, 0)}}, Steps: 1})
		require.NoError(t, err)
		token, err := sampling.Sample(logits, sampled, len(prompt))
		require.NoError(t, err)
		require.Equal(t, [][]int{{token}}, drawn)
	}
	require.ErrorContains(t, b.TokenLogits(0, 3, logits),
		"logits of new token 3 of sequence 0, there are those of the last one")
	_, err = b.Run(t.Context(), batch.StepRequest{Sequences: []batch.Sequence{{New: prompt, Cached: 30, Pages: pages}},
		Steps: 1, Quiet: true})
	require.ErrorContains(t, err, "a prefill step of 41 tokens behind 30 cached ones on 11 pages of 4, want pages for all")
}

// Prefill kernels of a bundle make the matrices of a layer in bf16 in one place.
func TestPrefillKernelsShareTheLayerInBF16(t *testing.T) {
	all := members(t, megakernel.Options{Page: 4, Weights: pipeline.FormatE4M3}, 2)
	b, err := openBundle(t, all, runtime.Options{Steps: 1})
	require.NoError(t, err)
	var sims []*runtime.Sim
	for _, tokens := range []int{64, 128} {
		p, err := megakernel.BuildPrefill(all[0].Kernel, megakernel.PrefillOptions{Tokens: tokens, Groups: 1})
		require.NoError(t, err)
		sim, err := runtime.NewSim(p.IR, 3)
		require.NoError(t, err)
		require.NoError(t, b.AddPrefill(p, sim))
		sims = append(sims, sim)
		require.Equal(t, p.Scratch(), sim.Size(megakernel.BufferLayer))
	}
	require.Equal(t, 65, b.PrefillLeast())
	mark, got := []byte{1, 2, 3}, make([]byte, 3)
	require.NoError(t, sims[0].Write(megakernel.BufferLayer, 5, mark))
	require.NoError(t, sims[1].Read(megakernel.BufferLayer, 5, got))
	require.Equal(t, mark, got)
}

// A launch that is given up, wherever it stands, is an error that names what was waited for, and the next one writes
// what it would have.
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
	token, err := r.Run(t.Context(), tokens, 0, table, false)
	require.NoError(t, err)
	want := kv()
	for _, at := range []int64{500, 20000, 60000, 120000} {
		wide.ClaimStuck(at)
		_, err := r.Run(t.Context(), tokens, 0, table, false)
		var hang *runtime.HangError
		require.ErrorAs(t, err, &hang, "after %d instructions", at)
		require.NotEmpty(t, hang.Stuck)
		got, err := r.Run(t.Context(), tokens, 0, table, false)
		require.NoError(t, err)
		require.Equal(t, token, got)
		require.Equal(t, want, kv())
	}
}
