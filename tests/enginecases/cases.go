package enginecases

import (
	"math/rand/v2"

	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/models/tokenizer"
	"github.com/stretchr/testify/require"
)

// T is what a case needs of a testing.T.
type T interface {
	require.TestingT
	Helper()
	Logf(format string, args ...any)
	Cleanup(func())
}

// Bench is what the cases run on.
type Bench struct {
	Kernel *megakernel.Kernel
	Text   *tokenizer.Tokenizer // its ids below the kernel's vocabulary
	// Device opens a device for Kernel with nothing on it.
	Device func() (runtime.Device, error)
	// Soak is how many tokens the soak generates at least.
	Soak int
}

// Case is one behaviour of an engine.
type Case struct {
	Name string
	Run  func(t T, b *Bench)
}

// Cases are all there are of the Bench's kernel, in the order in which they depend on each other.
func (b *Bench) Cases() []Case {
	cases := []Case{
		{"PagesInAnyOrderGiveTheSame", pagesInAnyOrder},
		{"TextIsWhatTheTokensDecodeTo", textIsDecoded},
		{"StopTextsEndTheTextBeforeThem", stopTexts},
		{"EndTokensEndTheText", endTokens},
		{"TheKVLimitIsAnErrorAndLosesNothing", kvLimit},
		{"ACancelledEngineIsAsGoodAsNew", cancelled},
		{"AConversationReusesItsPrefix", conversation},
		{"SamplingIsReproducible", sampled},
		{"MisuseIsRefused", misuse},
		{"ASoakLeavesNoTrace", soak},
		{"RequestsTogetherGetWhatTheyGetAlone", together},
		{"ASharedPromptIsFedOnce", sharedPrompt},
		{"RequestsEndAloneInTheMiddleOfLaunches", endsAlone},
	}
	if b.Kernel.Ragged() {
		return append(cases, Case{"ACacheThatIsTooSmallLosesNothing", tooSmall})
	}
	return append([]Case{{"LaunchesOfAnyLengthChooseTheSame", launchesOfAnyLength}}, cases...)
}

// weights are the same for all engines.
func (b *Bench) weights() megakernel.Tensors {
	return synth.NewWeights(5, b.Kernel.Config)
}

// kvTokens is the size of the cases' caches, in tokens.
func (b *Bench) kvTokens() int { return min(16*b.Kernel.KV.Page, b.Kernel.Config.MaxPositions) }

// open makes an engine; set may change its options. The case need not close it.
func (b *Bench) open(t T, set func(*engine.Options)) *engine.Engine {
	t.Helper()
	device, err := b.Device()
	require.NoError(t, err)
	o := engine.Options{Kernel: b.Kernel, Device: device, Weights: runtime.FromTensors(b.weights(), runtime.LoadOptions{}),
		Text: b.Text, KVTokens: b.kvTokens(), TokensPerLaunch: 7, Ends: []int{}, PageSeed: 9}
	if set != nil {
		set(&o)
	}
	e, err := engine.New(background, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// prompt draws n tokens that are text.
func (b *Bench) prompt(seed uint64, n int) []int {
	random := rand.New(rand.NewPCG(seed, 0))
	out := make([]int, n)
	for i := range out {
		out[i] = random.IntN(256)
	}
	return out
}

// fresh is what an engine of its own answers.
func (b *Bench) fresh(t T, r engine.Request) engine.Result {
	t.Helper()
	e := b.open(t, nil)
	return answer(t, e, r)
}

// answer generates without any error.
func answer(t T, e *engine.Engine, r engine.Request) engine.Result {
	t.Helper()
	got, err := e.Generate(background, r, nil)
	require.NoError(t, err)
	return got
}

// requireFree wants every page to hold nothing, or nothing but what ended requests have left.
func requireFree(t T, e *engine.Engine) {
	t.Helper()
	l := e.Load()
	require.Equal(t, engine.Load{Pages: l.Pages, Free: l.Pages - l.Idle, Idle: l.Idle}, l)
}
