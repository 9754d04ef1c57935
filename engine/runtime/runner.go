package runtime

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/draw"
)

// runner is what sessions of all kernels have in common: a kernel whose buffers lie
// on a device, and whose launches are followed.
type runner struct {
	mk    *megakernel.Kernel
	long  *megakernel.Prefill // whose launches these are; nil: mk's
	dev   Device
	pages int
	from  Device // whose weights and KV cache this kernel uses, too; nil: its own

	kvScales []float32 // of an e4m3 cache; nil: 1 for all
	loaded   LoadStats

	headScales []float32 // of attention with them; nil: 1 for all

	// HangTimeout is how long a launch may make no step before it is given up
	// with a *HangError; 0 waits for ever. It must be longer than any step.
	HangTimeout time.Duration

	arrivals int64 // at the grid barrier, at most, since words with tags were zeroed

	short bool   // "inv_freq" is that of short sequences
	draws mirror // how rows draw their tokens
	modes uint32 // what the next launch's rows need
	masks masks  // of the next launch's rows

	nextMask func(row int) []uint32 // of the steps behind the first of the next launch; nil: those of the first are of all

	begun     func()    // of the next launch; nil for none: see batch.StepRequest
	asked     []asked   // of the next launch's rows
	ran       int       // steps of the last launch that chose a token
	histories []history // that the device has
	encoded   []byte    // memory of one
	taken     *scores   // of the last launch's rows; nil before they are asked for
	raw       []byte    // memory of them
	maskWords []uint32  // and of their masks

	stopped bool  // stop is not 0
	failed  error // why no further launch may run: a failed one leaves the grid barrier anywhere
}

// open allocates every buffer, loads the weights and fills what does not depend on
// the launch.
func (s *runner) open(ctx context.Context, w Weights, sizes map[string]int64, epoch uint32) error {
	if err := s.alloc(sizes); err != nil {
		return err
	}
	err := s.scalesOf(w)
	if err != nil {
		return err
	}
	if s.from == nil {
		if s.loaded, err = w.Load(ctx, s.mk, s.dev); err != nil {
			return err
		}
	}
	if err := s.tables(epoch); err != nil {
		return err
	}
	return s.SetEnds(nil)
}

// SetShort says whether sequences of the next launches have at most Config.ShortPositions tokens, those of the launch
// among them, and their cached keys were rotated so. It does nothing where length does not matter.
func (s *runner) SetShort(short bool) error {
	if s.short == short || s.mk.Config.ShortPositions() == 0 {
		return nil
	}
	freq := s.mk.InvFreq()
	if short {
		freq = s.mk.ShortInvFreq()
	}
	s.short = short
	return s.floats("inv_freq", freq)
}

// Loaded says how the weights came to the device.
func (s *runner) Loaded() LoadStats { return s.loaded }

// Vocab is how many tokens the model has.
func (s *runner) Vocab() int { return s.mk.Config.Vocab }

// zero zeroes buffers.
func (s *runner) zero(names ...string) error {
	for _, name := range names {
		if err := s.dev.Zero(name); err != nil {
			return err
		}
	}
	return nil
}

// renew zeroes words with tags before a launch of n steps when their tags might
// come again: those of a plan's states that no launch has written for long.
func (s *runner) renew(steps int) error {
	s.arrivals += int64(steps) * int64(s.mk.Barriers()+s.mk.DrawBarriers()) * int64(s.mk.Options.SMs)
	if s.arrivals < tagPeriod || !s.mk.HasTags() {
		return nil
	}
	s.arrivals = 0
	return s.dev.Zero(megakernel.BufferStates)
}

// tagPeriod is after how many arrivals at the grid barrier, at most, words with tags
// are zeroed; half of what a tag holds, so that the launch that passes it fits, too.
const tagPeriod = 1 << 30

// fail ends the session: a failed launch leaves the grid barrier anywhere.
func (s *runner) fail(err error) error {
	s.failed = fmt.Errorf("the session ended with a failed launch: %w", err)
	return err
}

// SetEnds makes these tokens end a launch, at most MaxEnds of them.
func (s *runner) SetEnds(tokens []int) error {
	if len(tokens) > megakernel.MaxEnds {
		return fmt.Errorf("%d end tokens, want at most %d", len(tokens), megakernel.MaxEnds)
	}
	ends := slices.Repeat([]uint32{noToken}, megakernel.MaxEnds)
	for i, token := range tokens {
		ends[i] = uint32(token)
	}
	return s.dev.Write("ends", 0, words(ends))
}

// noToken is above every vocabulary.
const noToken = 1<<32 - 1

// read reads n words of a buffer from word i on.
func (s *runner) read(name string, i, n int) ([]uint32, error) {
	raw := make([]byte, 4*n)
	if err := s.dev.Read(name, 4*int64(i), raw); err != nil {
		return nil, err
	}
	out := make([]uint32, n)
	for j := range out {
		out[j] = binary.LittleEndian.Uint32(raw[4*j:])
	}
	return out, nil
}

// clear makes n words of the stream, from word i on, empty, and says that the launch
// has come to at.
func (s *runner) clear(i, n, at int) error {
	if err := s.dev.Write("stream", 4*int64(i), words(slices.Repeat([]uint32{noToken}, n))); err != nil {
		return err
	}
	if err := s.dev.Write("progress", 0, words([]uint32{uint32(at)})); err != nil || !s.stopped {
		return err
	}
	s.stopped = false
	return s.dev.Poke("stop", 0, 0)
}

// logits reads those of row i of the last step, as the model made them.
func (s *runner) logits(i int, dst []float32) error {
	if len(dst) != s.mk.Config.Vocab {
		return fmt.Errorf("room for %d logits, want %d", len(dst), s.mk.Config.Vocab)
	}
	name := "logits"
	if i < len(s.asked) && s.asked[i].Modes()&draw.ModeChanges != 0 {
		name = megakernel.BufferRawLogits
	}
	raw := make([]byte, 4*len(dst))
	if err := s.dev.Read(name, int64(i)*int64(len(raw)), raw); err != nil {
		return err
	}
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return nil
}

// sites are the waits that a launch can be given up at.
func (s *runner) sites() []pipeline.Site {
	if s.long != nil {
		return s.long.Sites
	}
	return s.mk.Sites
}

// warps is the number of warps of a CTA.
func (s *runner) warps() int {
	if s.long != nil {
		return s.long.IR.Warps
	}
	return s.mk.IR.Warps
}

// zeroed are the buffers that must be 0 before the first launch and after one that was given up.
func (s *runner) zeroed() []string {
	if s.long != nil {
		return nil
	}
	return s.mk.Zeroed()
}
