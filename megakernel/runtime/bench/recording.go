package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mkgen/mkgen/megakernel"
)

// Recording is what a launch of a kernel left: with Options.Trace the contents of its
// buffers BufferSpans and BufferSpanHeads, else nothing.
type Recording struct {
	Spans, Heads []uint32
	Step         time.Duration // of several such launches the median, a step, by the device's clock
}

// recordedLaunches is how many launches are made on a GPU, of which the last is recorded.
const recordedLaunches = 9

// Record loads the kernel and records a launch of so many tokens that begins with cached
// tokens in the cache. It releases what it allocated.
func (s *Suite) Record(ctx context.Context, cached, tokens int) (r *Recording, err error) {
	s.Method.Contexts, s.Method.Tokens = []int{cached}, tokens
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.loaded.Close()) }()
	s.say("filling the KV cache")
	if err := FillKV(s.loaded, s.kvBytes()); err != nil {
		return nil, err
	}
	run := &SessionRunner{Session: s.session, Device: s.loaded, PerLaunch: tokens}
	return recorded(s.Kernel, s.Machine, s.loaded, tokens, func() (Round, error) { return run.Tokens(ctx, cached, tokens) })
}

// Record is Suite.Record for a kernel of several rows, each a sequence's that decodes.
func (s *RaggedSuite) Record(ctx context.Context, cached, steps int) (r *Recording, err error) {
	s.Method.Contexts, s.Method.Tokens = []int{cached}, steps
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.loaded.Close()) }()
	s.say("filling the KV cache")
	if err := FillKV(s.loaded, s.kvBytes()); err != nil {
		return nil, err
	}
	run := &RaggedRunner{Session: s.session, Device: s.loaded, Pages: s.table, Page: s.Kernel.KV.Page}
	return recorded(s.Kernel, s.Machine, s.loaded, steps, func() (Round, error) { return run.Steps(ctx, Sequences, cached, steps) })
}

// recorded launches several times, and reads what the last launch left.
func recorded(mk *megakernel.Kernel, m Machine, dev Device, steps int, launch func() (Round, error)) (*Recording, error) {
	n := recordedLaunches
	if m.Facts().Executor {
		n = 1
	}
	var times []time.Duration
	for range n {
		round, err := launch()
		if err != nil {
			return nil, err
		}
		times = append(times, round.Device/time.Duration(steps))
	}
	slices.Sort(times)
	r := &Recording{Step: times[n/2]}
	for _, b := range mk.IR.Globals() {
		to := map[string]*[]uint32{megakernel.BufferSpans: &r.Spans, megakernel.BufferSpanHeads: &r.Heads}[b.Name]
		if to == nil {
			continue
		}
		raw := make([]byte, b.Bytes())
		if err := dev.Read(b.Name, 0, raw); err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
		*to = make([]uint32, len(raw)/4)
		for i := range *to {
			(*to)[i] = binary.LittleEndian.Uint32(raw[4*i:])
		}
	}
	return r, nil
}
