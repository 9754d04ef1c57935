package bench

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"math"
)

// Launch is one launch that was timed.
type Launch struct {
	Micros float64 // the device's µs a token; of several rows, a step
	// Bits identifies the tokens that the launch chose and the logits of its last step:
	// two launches from the same state that computed the same have the same.
	Bits string
}

// Launcher is a loaded kernel of which launches are timed one at a time, so that those of
// several kernels can be taken in turns. Not safe for concurrent use.
type Launcher struct {
	loaded    Loaded
	kvBytes   int64
	launch    func(cached int) (Round, error)
	logits    func(sequence int, dst []float32) error
	steps     int
	vocab     int
	sequences int
}

// Launcher loads the kernel and fills its KV cache for launches of n tokens at the
// contexts. There is no gate and no ceiling.
func (s *Suite) Launcher(ctx context.Context, contexts []int, tokens int) (*Launcher, error) {
	launch, err := s.open(ctx, contexts, tokens)
	if err != nil {
		return nil, err
	}
	return &Launcher{loaded: s.loaded, kvBytes: s.kvBytes(), launch: launch, steps: tokens, vocab: s.Kernel.Config.Vocab,
		sequences: 1, logits: func(_ int, dst []float32) error { return s.session.Logits(dst) }}, nil
}

// Launcher is Suite.Launcher for a kernel of several rows, each a sequence's that decodes.
func (s *RaggedSuite) Launcher(ctx context.Context, contexts []int, steps int) (*Launcher, error) {
	launch, err := s.open(ctx, contexts, steps)
	if err != nil {
		return nil, err
	}
	return &Launcher{loaded: s.loaded, kvBytes: s.kvBytes(), launch: launch, steps: steps, vocab: s.Kernel.Config.Vocab,
		sequences: s.Kernel.Options.Tokens, logits: func(i int, dst []float32) error { return s.session.Logits(i, dst) }}, nil
}

// Reset brings the KV cache back to what it was when the kernel was loaded: launches leave
// their tokens in it, which those at other contexts may see.
func (l *Launcher) Reset() error { return FillKV(l.loaded, l.kvBytes) }

// Launch launches the kernel with n tokens in the cache.
func (l *Launcher) Launch(cached int) (Launch, error) {
	round, err := l.launch(cached)
	if err != nil {
		return Launch{}, fmt.Errorf("context %d: %w", cached, err)
	}
	bits, err := l.bits(round.Chosen)
	return Launch{Micros: micros(round.Device) / float64(l.steps), Bits: bits}, err
}

// bits are the hash of the tokens and of the logits that the device still has.
func (l *Launcher) bits(chosen []int) (string, error) {
	sum, row := sha256.New(), make([]float32, l.vocab)
	for _, token := range chosen {
		addWord(sum, uint32(token))
	}
	for i := range l.sequences {
		if err := l.logits(i, row); err != nil {
			return "", err
		}
		for _, x := range row {
			addWord(sum, math.Float32bits(x))
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:8]), nil
}

func addWord(sum hash.Hash, word uint32) {
	var raw [4]byte
	binary.LittleEndian.PutUint32(raw[:], word)
	sum.Write(raw[:])
}

// Close releases what the kernel has on the machine.
func (l *Launcher) Close() error { return l.loaded.Close() }
