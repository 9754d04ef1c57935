package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mkgen/mkgen/megakernel"
)

// Recording is what a launch of a kernel with Options.Trace left: the contents of its
// buffers BufferSpans and BufferSpanHeads.
type Recording struct{ Spans, Heads []uint32 }

// Trace loads the kernel, which must have Options.Trace, and records a launch of so many
// tokens that begins with cached tokens in the cache, after one that warms up. It
// releases what it allocated.
func (s *Suite) Trace(ctx context.Context, cached, tokens int) (r *Recording, err error) {
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
	s.say("tracing")
	return recorded(s.Kernel, s.loaded, func() error {
		_, err := run.Tokens(ctx, cached, tokens)
		return err
	})
}

// Trace is Suite.Trace for a kernel of several rows, each a sequence's that decodes.
func (s *RaggedSuite) Trace(ctx context.Context, cached, steps int) (r *Recording, err error) {
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
	s.say("tracing")
	return recorded(s.Kernel, s.loaded, func() error {
		_, err := run.Steps(ctx, Sequences, cached, steps)
		return err
	})
}

// recorded launches twice, and reads what the second launch left.
func recorded(mk *megakernel.Kernel, dev Device, launch func() error) (*Recording, error) {
	for range 2 {
		if err := launch(); err != nil {
			return nil, err
		}
	}
	r := &Recording{}
	for name, to := range map[string]*[]uint32{megakernel.BufferSpans: &r.Spans, megakernel.BufferSpanHeads: &r.Heads} {
		bytes := int64(0)
		for _, b := range mk.IR.Globals() {
			if b.Name == name {
				bytes = b.Bytes()
			}
		}
		raw := make([]byte, bytes)
		if err := dev.Read(name, 0, raw); err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
		for ; len(raw) > 0; raw = raw[4:] {
			*to = append(*to, binary.LittleEndian.Uint32(raw))
		}
	}
	return r, nil
}
