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

// ErrClosed and ErrBusy refuse what an Engine cannot do in the state it is in.
var (
	// ErrClosed refuses what is called after Close.
	ErrClosed = errors.New("engine: used after Close")
	// ErrBusy refuses what is called while a Generate runs.
	ErrBusy = errors.New("engine: a generation is running")
)

// Options are what an Engine is made of.
type Options struct {
	Kernel *megakernel.Kernel // required
	Device runtime.Device     // required: made for Kernel, nothing allocated yet; the Engine closes it
	// Beside are kernels of the same model with fewer rows a step, and their devices, on the same
	// GPU: a launch of a Batch takes the one with the fewest rows that fits, such as that of one
	// row for a request that is alone. The Batch closes the devices.
	Beside []runtime.Member
	// Prefill are prefill kernels beside Kernel and the devices for them: prompts with more tokens than a step has rows go through the one with the
	// fewest that has enough. Of a Batch only, and not with Pin.
	Prefill []PrefillMember
	Weights runtime.Weights      // required: such as runtime.FromTensors; not used after New
	Text    *tokenizer.Tokenizer // of the checkpoint; without one requests are tokens and so are answers

	// KVTokens is how many tokens the KV cache has room for, rounded up to whole
	// pages; 0 for DefaultKVTokens. A sequence never grows beyond the model's
	// MaxPositions.
	KVTokens int
	// TokensPerLaunch is how many tokens a launch chooses at most; 0 for
	// DefaultTokensPerLaunch. Sampled generation always has launches of one.
	TokensPerLaunch int
	// Ends are the tokens that end a text, megakernel.MaxEnds at most; nil for the
	// configuration's EOS, empty for none.
	Ends []int
	// HangTimeout is how long the kernel may make no step before the generation
	// ends with a *runtime.HangError, after which the next one can run; 0 waits for
	// ever. It must be longer than any step.
	HangTimeout time.Duration
	// MaxSequences is how many sequences a Batch runs at a time, at most as many as
	// the kernel's steps have rows; 0 for so many. An Engine runs one.
	MaxSequences int
	// Pin, a multiple of the kernel's ChunkTokens, has a Batch cut the attention of
	// every sequence at its multiples, and feed its prompt in pieces as long as a step,
	// whole or not at all: then no result depends on what runs beside it, nor on what
	// the cache remembers, to the bit. 0 cuts to fit the GPU, shares rows as there are,
	// and reads shared prefixes once.
	Pin int
	// Lookup has a Batch guess what a greedy request says next from tokens that it had before, and verify several guesses
	// in a step of up to LookupRows rows: text that repeats comes faster. A request whose guesses are wrong makes none for a while.
	// It does not go with Pin.
	Lookup bool
	// PageSeed other than 0 hands out the pages of the cache in an order drawn from
	// it, instead of ascending. No result depends on it: it is for tests.
	PageSeed uint64
}

// PrefillMember is a prefill kernel and the device it is loaded on, nothing allocated yet.
type PrefillMember struct {
	Kernel *megakernel.Prefill
	Device runtime.Device
}

// Engine generates. See the package's documentation for its life cycle.
type Engine struct {
	o      Options
	loaded runtime.LoadStats
	seq    *sequence // of who has entered
	use              // who that is
}

// New allocates the device's buffers and loads the weights, until ctx ends. With
// an error the device is still the caller's, for nothing but Close.
func New(ctx context.Context, o Options) (*Engine, error) {
	o, err := o.complete()
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	page := o.Kernel.KV.Page
	n := (o.KVTokens + page - 1) / page
	guard := uint32(n)
	s, err := runtime.OpenSession(ctx, o.Kernel, o.Device, o.Weights, runtime.SessionOptions{Pages: n + 1, Table: slices.Repeat([]uint32{guard}, n)})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	s.HangTimeout = o.HangTimeout
	if err := s.SetEnds(o.Ends); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	e := newEngine(o, s)
	e.loaded = s.Loaded()
	return e, nil
}

// newEngine is New with a session that is there already.
func newEngine(o Options, s session) *Engine {
	page := o.Kernel.KV.Page
	n := (o.KVTokens + page - 1) / page
	return &Engine{o: o, seq: newSequence(s, o.pool(n), page, &o.Kernel.Config)}
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
		return o, fmt.Errorf("options: the tokenizer has ids up to %d, the model a vocabulary of %d", o.Text.Size()-1, c.Vocab)
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

// KVTokens is how many tokens a sequence can have in the cache.
func (e *Engine) KVTokens() int { return e.seq.limit }

// Loaded says how the weights came to the device.
func (e *Engine) Loaded() runtime.LoadStats { return e.loaded }

// Pages is how many pages of the KV cache no sequence holds, and how many there
// are, the guard aside. ErrBusy while a Generate runs, ErrClosed after Close.
func (e *Engine) Pages() (free, all int, err error) {
	if _, err := e.enter(context.Background()); err != nil {
		return 0, 0, err
	}
	defer e.leave(e.release)
	return e.seq.pool.Free(), e.seq.pool.Size(), nil
}

// Reset forgets the tokens in the cache and gives their pages back. ErrBusy while
// a Generate runs, ErrClosed after Close.
func (e *Engine) Reset() error {
	if _, err := e.enter(context.Background()); err != nil {
		return err
	}
	defer e.leave(e.release)
	e.seq.keep(0)
	return nil
}

// Close releases everything, the device too. A Generate that runs is cancelled,
// and waited for unless its each is being called: then Close returns at once and
// the engine is released when that Generate returns. A page that was taken and
// not given back is an error. A second Close does nothing.
func (e *Engine) Close() error { return e.shut(e.release) }

// release gives everything back; nobody is using the sequence.
func (e *Engine) release() error {
	e.seq.keep(0)
	return errors.Join(e.seq.pool.Leak(), e.o.Device.Close())
}
