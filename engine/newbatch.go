package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/engine/runtime"
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
	members := append([]runtime.Member{{Kernel: o.Kernel, Device: o.Device}}, o.Beside...)
	s, err := runtime.OpenBundle(ctx, members, o.Weights, runtime.RaggedOptions{Pages: n + 1, Guard: uint32(n), Steps: o.TokensPerLaunch, Pin: o.Pin})
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
	b, err := newBatch(o, s, func() error { return closeAll(members) })
	if err == nil {
		b.loaded = s.Loaded()
	}
	return b, err
}

// closeAll closes the devices, those that borrow first.
func closeAll(members []runtime.Member) error {
	var errs []error
	for _, m := range slices.Backward(members) {
		errs = append(errs, m.Device.Close())
	}
	return errors.Join(errs...)
}

// Loaded says how the weights came to the device.
func (b *Batch) Loaded() runtime.LoadStats { return b.loaded }
