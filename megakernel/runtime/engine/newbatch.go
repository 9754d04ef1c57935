package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/mkgen/mkgen/megakernel/runtime"
)

// NewBatch allocates the device's buffers and loads the weights, until ctx ends. The
// kernel must be ragged. With an error the device is still the caller's, for nothing
// but Close.
func NewBatch(ctx context.Context, o Options) (*Batch, error) {
	if o.Kernel != nil && !o.Kernel.Ragged() {
		return nil, errors.New("engine: options: a kernel of one query row a step; want one of several (Tokens), or an Engine")
	}
	o, err := o.complete()
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	page := o.Kernel.KV.Page
	n := (o.KVTokens + page - 1) / page
	s, err := runtime.OpenRagged(ctx, o.Kernel, o.Device, o.Weights, runtime.RaggedOptions{Pages: n + 1, Guard: uint32(n), Steps: o.TokensPerLaunch, Pin: o.Pin})
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
	b, err := newBatch(o, s, o.Device.Close)
	if err == nil {
		b.loaded = s.Loaded()
	}
	return b, err
}

// Loaded says how the weights came to the device.
func (b *Batch) Loaded() runtime.LoadStats { return b.loaded }
