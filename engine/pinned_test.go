package engine

import (
	"context"
	"fmt"
	"testing"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// hears is a bundle that keeps all logits that were read.
type hears struct {
	*runtime.Bundle
	vocab int
	all   [][]float32
	ends  map[int][]float32 // of the last step of each launch of one sequence, by the tokens before
}

func (h *hears) Run(ctx context.Context, q batch.StepRequest) ([][]int, error) {
	q.Quiet = false // the logits of prompts are compared, too
	chosen, err := h.Bundle.Run(ctx, q)
	if s := q.Sequences[0]; err == nil && len(q.Sequences) == 1 {
		dst := make([]float32, h.vocab)
		h.ends[s.Cached+len(s.New)+len(chosen)-1] = dst
		err = h.Bundle.Logits(0, dst)
	}
	return chosen, err
}

func (h *hears) Logits(i int, dst []float32) error {
	err := h.Bundle.Logits(i, dst)
	h.all = append(h.all, append([]float32(nil), dst...))
	return err
}

// pinned is what a pinnedEngine is made of.
type pinned struct {
	page      int
	attention string
	prefill   int  // tokens of a prefill kernel's launch; 0: there is none
	parts     bool // prefill launches split keys and values into as many parts as there can be
	several   int  // sequences that a prefill kernel takes; 0: one
	draws     bool // the kernel draws tokens and makes log-probabilities; else the host does, of logits that it reads
}

// pinnedEngine is an engine of a real kernel of tiny on the executor.
func pinnedEngine(t *testing.T, z pinned) (*Engine, *hears) {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 2, Tokens: 16, Page: z.page, Attention: z.attention,
		Draws: z.draws})
	require.NoError(t, err)
	sim, err := runtime.NewSim(mk.IR, 1)
	require.NoError(t, err)
	weights := runtime.FromTensors(synth.NewWeights(1, c), runtime.LoadOptions{})
	o := Options{Kernel: mk, Device: sim, Weights: weights, KVTokens: 512, TokensPerLaunch: 4, Ends: []int{},
		Pin: 2 * mk.ChunkTokens()}
	o, err = o.complete()
	require.NoError(t, err)
	n := o.KVTokens / z.page
	r, err := runtime.OpenBundle(t.Context(), []runtime.Member{{Kernel: mk, Device: sim}}, weights,
		runtime.Options{Pages: n + 1, Guard: uint32(n), Steps: o.TokensPerLaunch, Pin: o.Pin})
	require.NoError(t, err)
	if z.prefill > 0 {
		p, err := megakernel.BuildPrefill(mk, megakernel.PrefillOptions{Tokens: z.prefill, Groups: 1, Sequences: z.several})
		require.NoError(t, err)
		long, err := runtime.NewSim(p.IR, 1)
		require.NoError(t, err)
		require.NoError(t, r.AddPrefill(p, long))
	}
	r.SplitMost(z.parts)
	h := &hears{Bundle: r, vocab: c.Vocab, ends: map[int][]float32{}}
	b, err := newEngine(o, h, sim.Close)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b, h
}

// With Pin every logit of a request has the same bits alone, among others that take
// rows and pages, and with a prefix that another one has left, in pages smaller and
// larger than a piece.
func TestPinnedRequestsHaveTheSameBitsWhateverElseRuns(t *testing.T) {
	if !deep.On() {
		t.Skip("values of long runs on the executor, with -short")
	}
	for _, z := range []pinned{{page: 4}, {page: 32, attention: "window=40+sinks=3/causal"}, {page: 4, prefill: 32}} {
		t.Run(fmt.Sprintf("%+v", z), func(t *testing.T) {
			piece := max(16, z.prefill)
			prompt := make([]int, 70)
			for i := range prompt {
				prompt[i] = 7 * i % 320
			}
			// only its logits are read
			request := Request{Tokens: prompt, MaxTokens: 6, Logprobs: true}
			b, h := pinnedEngine(t, z)
			alone, err := b.Generate(t.Context(), request, nil)
			require.NoError(t, err)
			require.Zero(t, alone.Usage.Reused)
			want := h.all
			require.Len(t, want, 6)

			h.all = nil
			again, err := b.Generate(t.Context(), request, nil)
			require.NoError(t, err)
			require.Equal(t, 64, again.Usage.Reused)
			require.True(t, sameBits(want, h.all), "after itself")

			b, h = pinnedEngine(t, z)
			request.Logprobs = false // now many steps a launch
			_, err = b.Generate(t.Context(), request, nil)
			require.NoError(t, err)
			require.Less(t, len(h.ends), 5+6)
			for i, logits := range want {
				if end := h.ends[70+i]; end != nil {
					require.True(t, sameBits([][]float32{logits}, [][]float32{end}), "token %d, chosen in a launch of many", i)
					delete(h.ends, 70+i)
				}
			}
			require.Len(t, h.ends, 64/piece, "pieces before the prompt's last")

			b, h = pinnedEngine(t, z)
			request.Logprobs = true
			other := func(n, from int) []int { return append(append([]int(nil), prompt[:n]...), prompt[from:from+21]...) }
			var beside []*Stream
			for _, tokens := range [][]int{other(0, 9), other(37, 5), other(0, 30)} {
				beside = append(beside, ask(t, b, Request{Tokens: tokens, MaxTokens: 30}))
			}
			crowded, err := b.Generate(t.Context(), request, nil)
			require.NoError(t, err)
			require.Equal(t, alone.Tokens, crowded.Tokens)
			require.True(t, sameBits(want, h.all), "among others, %d tokens of its prefix another one's", crowded.Usage.Reused)
			for _, s := range beside {
				s.Cancel()
			}
		})
	}
}

// Where prefill launches split keys and values, and their kernels would take other sequences along, a pinned prompt's
// bits are the same alone and among others, too.
func TestPinnedPromptsInPartsHaveTheSameBitsWhateverElseRuns(t *testing.T) {
	deep.Only(t)
	prompt := make([]int, 200)
	for i := range prompt {
		prompt[i] = 11 * i % 320
	}
	request := Request{Tokens: prompt, MaxTokens: 3, Logprobs: true}
	alone := func(parts bool) [][]float32 {
		b, h := pinnedEngine(t, pinned{page: 16, prefill: 32, parts: parts, several: 4})
		_, err := b.Generate(t.Context(), request, nil)
		require.NoError(t, err)
		require.Len(t, h.all, 3)
		return h.all
	}
	want := alone(true)
	require.False(t, sameBits(alone(false), want), "parts round otherwise: there are some")

	b, h := pinnedEngine(t, pinned{page: 16, prefill: 32, parts: true, several: 4})
	var beside []*Stream
	for _, from := range []int{0, 90} {
		beside = append(beside, ask(t, b, Request{Tokens: prompt[from : from+60], MaxTokens: 20}))
	}
	_, err := b.Generate(t.Context(), request, nil)
	require.NoError(t, err)
	require.True(t, sameBits(want, h.all), "among others")
	for _, s := range beside {
		s.Cancel()
	}
}

// More pinned parts than the kernel has work items are more than one launch, and no
// request's error.
func TestPinnedRequestsOfMorePartsThanItemsAreAllAnswered(t *testing.T) {
	deep.Only(t)
	if !deep.On() {
		t.Skip("long prompts on the executor, with -short")
	}
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 1, Tokens: 4, Consumers: 1, StageBytes: 2048})
	require.NoError(t, err)
	limits, parts := mk.Limits(0), 0
	sim, err := runtime.NewSim(mk.IR, 1)
	require.NoError(t, err)
	weights := runtime.FromTensors(synth.NewWeights(1, c), runtime.LoadOptions{})
	b, err := New(t.Context(), Options{Kernel: mk, Device: sim, Weights: weights, KVTokens: 512, Ends: []int{},
		Pin: mk.ChunkTokens()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	var all []*Stream
	for i := range 3 {
		tokens := make([]int, 150)
		for j := range tokens {
			tokens[j] = (7*j + i) % 320
		}
		parts += len(tokens) / mk.ChunkTokens() * c.KVHeads
		all = append(all, ask(t, b, Request{Tokens: tokens, MaxTokens: 3}))
	}
	require.Greater(t, parts, limits.CTAs*limits.ItemsPerCTA)
	for _, s := range all {
		got, err := s.Wait()
		require.NoError(t, err)
		require.Len(t, got.Tokens, 3)
	}
}

// A prompt whose pieces have more parts than the kernel has room for is fed in halves of them, as alone so beside
// others, and one that is longer than a row's parts is refused.
func TestPinnedPromptsOfMorePartsThanAPieceMayHave(t *testing.T) {
	deep.Only(t)
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 2, Tokens: 4, Consumers: 1, StageBytes: 2048})
	require.NoError(t, err)
	limits, pin := mk.Limits(0), 2*mk.ChunkTokens()
	tokens := make([]int, 470)
	for i := range tokens {
		tokens[i] = 7 * i % 320
	}
	require.Greater(t, 4*c.KVHeads*((len(tokens)+pin-1)/pin), limits.Partials)
	var want []int
	for others := range 2 {
		sim, err := runtime.NewSim(mk.IR, 1)
		require.NoError(t, err)
		e, err := New(t.Context(), Options{Kernel: mk, Device: sim, KVTokens: 1024, Ends: []int{}, Pin: pin,
			Weights: runtime.FromTensors(synth.NewWeights(1, c), runtime.LoadOptions{})})
		require.NoError(t, err)
		require.Equal(t, min(c.MaxPositions, limits.PinnedTokens(pin)), e.KVTokens())
		for range others {
			ask(t, e, Request{Tokens: tokens[9:40], MaxTokens: 60})
		}
		got, err := e.Generate(t.Context(), Request{Tokens: tokens, MaxTokens: 4}, nil)
		require.NoError(t, err)
		if others == 0 {
			want = got.Tokens
		}
		require.Equal(t, want, got.Tokens)

		var full *FullError
		_, err = e.Generate(t.Context(), Request{Tokens: make([]int, e.KVTokens()+1), MaxTokens: 1}, nil)
		require.ErrorAs(t, err, &full)
		require.Equal(t, FullError{Prompt: e.KVTokens() + 1, Limit: e.KVTokens(), Pinned: true}, *full)
		require.NoError(t, e.Close())
	}
}

func sameBits(a, b [][]float32) bool { return fmt.Sprintf("%x", a) == fmt.Sprintf("%x", b) }

// With Pin a request draws the same tokens alone and among others that draw and do not, in other rows and in launches
// of other lengths, and as the host does from the logits.
func TestDrawsDependOnSeedAndPositionOnly(t *testing.T) {
	prompt := make([]int, 18)
	for i := range prompt {
		prompt[i] = 11 * i % 320
	}
	request := Request{Tokens: prompt, MaxTokens: 5, Sampling: sampling.Params{Temperature: 1.3, TopK: 60, TopP: 0.9,
		Seed: 5}}
	b, _ := pinnedEngine(t, pinned{page: 16, draws: true})
	alone, err := b.Generate(t.Context(), request, nil)
	require.NoError(t, err)

	host, _ := pinnedEngine(t, pinned{page: 16}) // of a kernel that does not draw
	drawn, err := host.Generate(t.Context(), request, nil)
	require.NoError(t, err)
	require.Equal(t, drawn.Tokens, alone.Tokens)

	b, _ = pinnedEngine(t, pinned{page: 16, draws: true})
	var beside []*Stream
	for i, p := range []sampling.Params{{}, {Temperature: 2, Seed: 5}, {Temperature: 0.5, TopP: 0.5, MinP: 0.01}} {
		beside = append(beside, ask(t, b, Request{Tokens: prompt[i : 12+i], MaxTokens: 3 + 4*i, Sampling: p}))
	}
	crowded, err := b.Generate(t.Context(), request, nil)
	require.NoError(t, err)
	require.Equal(t, alone.Tokens, crowded.Tokens)
	for _, s := range beside {
		_, err := s.Wait()
		require.NoError(t, err)
	}
	request.Sampling.Seed++
	other, err := b.Generate(t.Context(), request, nil)
	require.NoError(t, err)
	require.NotEqual(t, alone.Tokens, other.Tokens)
}
