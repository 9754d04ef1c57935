package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mkgen/mkgen/engine/pages"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models/tokenizer"
)

// The defaults of Options.
const (
	DefaultKVTokens        = 4096 // or the model's positions, where they are fewer
	DefaultTokensPerLaunch = 128
)

// LookupRows is how many rows a step has at most to have guesses among them; see Options.Lookup.
const LookupRows = 8

// ErrClosed refuses what is called after Close.
var ErrClosed = errors.New("engine: used after Close")

// Options are what an Engine is made of.
type Options struct {
	Kernel *megakernel.Kernel // required
	Device runtime.Device     // required: made for Kernel, nothing allocated yet; the Engine closes it
	// Beside are kernels of the same model with fewer rows a step, and their devices, on the same
	// GPU: a launch takes the one with the fewest rows that fits, such as that of one
	// row for a request that is alone. Of two with the same rows one draws tokens, for launches
	// with sampled requests. The Engine closes the devices.
	Beside []runtime.Member
	// Prefill are prefill kernels beside Kernel and the devices for them: prompts with more tokens than a step has
	// rows go through the one with the fewest that has enough. Not where Kernel has one row.
	Prefill []PrefillMember
	// PrefillChunk is how many tokens a launch of a prefill kernel has at most while other requests generate, of a
	// prompt with cached tokens, where the others have generating ones together, and apart is whether some of them have
	// their next token from a step of their own behind the launch; with Pin, of none cached, always.
	// More than Kernel has rows, and no more than such a kernel takes. nil for megakernel.PrefillBeside of the
	// machine that it predicts for: launches that keep those waiting for at most megakernel.Gap that generate, or for
	// two launches of the smallest kernel.
	PrefillChunk func(cached, generating int, apart bool) int
	Weights      runtime.Weights      // required: such as runtime.FromTensors; not used after New
	Text         *tokenizer.Tokenizer // of the checkpoint; without one requests are tokens and so are answers

	// KVTokens is how many tokens the KV cache has room for, rounded up to whole
	// pages; 0 for DefaultKVTokens. A sequence never grows beyond the model's
	// MaxPositions, nor with Pin beyond what the kernel has parts for (kv.Limits.PinnedTokens).
	KVTokens int
	// TokensPerLaunch is how many tokens a launch chooses at most; 0 for
	// DefaultTokensPerLaunch. Generation has launches of one where the host chooses: with penalties or a
	// mask, and of sampled tokens where no kernel draws.
	TokensPerLaunch int
	// Ends are the tokens that end a text, megakernel.MaxEnds at most; nil for the
	// configuration's EOS, empty for none.
	Ends []int
	// HangTimeout is how long the kernel may make no step before the generation
	// ends with a *runtime.HangError, after which the next one can run; 0 waits for
	// ever. It must be longer than any step.
	HangTimeout time.Duration
	// MaxSequences is how many sequences run at a time, at most as many as
	// the kernel's steps have rows; 0 for all of these.
	MaxSequences int
	// Pin, a multiple of the kernel's ChunkTokens, has the Engine cut the attention of
	// every sequence at its multiples, and feed its prompt in pieces as long as a step, or a launch of Prefill,
	// whole or not at all: then no result depends on what runs beside it, nor on what
	// the cache remembers, to the bit. 0 cuts to fit the GPU, shares rows as there are,
	// and reads shared prefixes once.
	Pin int
	// Lookup has the Engine guess what a greedy request says next from tokens that it had before, and verify several
	// guesses in a step of up to LookupRows rows: text that repeats comes faster. A request whose guesses are wrong
	// makes none for a while. It does not go with Pin.
	Lookup bool
	// PageSeed other than 0 hands out the pages of the cache in an order drawn from
	// it, instead of ascending. No result depends on it: it is for tests.
	PageSeed uint64
}

// draws reports whether kernels of every number of rows can draw tokens.
func (o *Options) draws() bool {
	can := map[int]bool{o.Kernel.Options.Tokens: o.Kernel.Draws()}
	for _, m := range o.Beside {
		rows := m.Kernel.Options.Tokens
		can[rows] = can[rows] || m.Kernel.Draws()
	}
	for _, draws := range can {
		if !draws {
			return false
		}
	}
	return true
}

// PrefillMember is a prefill kernel and the device it is loaded on, nothing allocated yet.
type PrefillMember struct {
	Kernel *megakernel.Prefill
	Device runtime.Device
}

// New allocates the devices' buffers and loads the weights, until ctx ends. With an error
// the devices are still the caller's, for nothing but Close.
func New(ctx context.Context, o Options) (*Engine, error) {
	o, err := o.complete()
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	page := o.Kernel.KV.Page
	n := (o.KVTokens + page - 1) / page
	members := append([]runtime.Member{{Kernel: o.Kernel, Device: o.Device}}, o.Beside...)
	s, err := runtime.OpenBundle(ctx, members, o.Weights,
		runtime.Options{Pages: n + 1, Guard: uint32(n), Steps: o.TokensPerLaunch, Pin: o.Pin})
	for _, m := range o.Prefill {
		if err == nil {
			err = s.AddPrefill(m.Kernel, m.Device)
		}
		members = append(members, runtime.Member{Device: m.Device})
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	s.SetHangTimeout(o.HangTimeout)
	if err := s.SetEnds(o.Ends); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	e, err := newEngine(o, s, func() error { return closeAll(members) })
	if err == nil {
		e.loaded = s.Loaded()
	}
	return e, err
}

// closeAll closes the devices, those that borrow first.
func closeAll(members []runtime.Member) error {
	var errs []error
	for _, m := range slices.Backward(members) {
		errs = append(errs, m.Device.Close())
	}
	return errors.Join(errs...)
}

// pool is n pages in the order that is wanted.
func (o *Options) pool(n int) *pages.Pool {
	if o.PageSeed != 0 {
		return pages.NewShuffled(n, o.PageSeed)
	}
	return pages.New(n)
}

// complete fills in what was left open and refuses what cannot be.
func (o Options) complete() (Options, error) {
	if o.Kernel == nil || o.Device == nil || o.Weights == nil {
		return o, errors.New("options: Kernel, Device and Weights are required")
	}
	c := &o.Kernel.Config
	if o.KVTokens == 0 {
		o.KVTokens = min(DefaultKVTokens, c.MaxPositions)
	}
	if o.TokensPerLaunch == 0 {
		o.TokensPerLaunch = DefaultTokensPerLaunch
	}
	if o.Ends == nil {
		o.Ends = c.EOS
	}
	if o.PrefillChunk == nil && len(o.Prefill) > 0 {
		var kernels []*megakernel.Prefill
		for _, m := range o.Prefill {
			kernels = append(kernels, m.Kernel)
		}
		o.PrefillChunk = megakernel.PrefillBeside(o.Kernel, kernels, megakernel.PrefillMachine())
	}
	switch {
	case o.KVTokens < 1 || o.KVTokens > maxKVTokens:
		return o, fmt.Errorf("options: a KV cache of %d tokens, want 1 to %d", o.KVTokens, maxKVTokens)
	case o.HangTimeout < 0:
		return o, fmt.Errorf("options: a hang timeout of %v, want at least 0", o.HangTimeout)
	case o.Lookup && o.Pin > 0:
		return o, errors.New("options: Lookup with Pin, want one of them: guesses decide which tokens come together")
	case o.TokensPerLaunch < 1:
		return o, fmt.Errorf("options: %d tokens a launch, want at least 1", o.TokensPerLaunch)
	case o.Text != nil && o.Text.Size() > c.Vocab+c.EmbedMore:
		return o, fmt.Errorf("options: the tokenizer has ids up to %d, the model a vocabulary of %d", o.Text.Size()-1,
			c.Vocab)
	}
	for _, token := range o.Ends {
		if token < 0 || token >= c.Vocab {
			return o, fmt.Errorf("options: end token %d, want 0 to %d", token, c.Vocab-1)
		}
	}
	return o, nil
}

// maxKVTokens keeps positions and table sizes far from overflowing 32 bits.
const maxKVTokens = 1 << 28

// Loaded says how the weights came to the device.
func (e *Engine) Loaded() runtime.LoadStats { return e.loaded }
