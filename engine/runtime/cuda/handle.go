//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"sync"
)

// handle is what memory, streams, events and modules have in common: they belong to a device and are released once.
type handle struct {
	dev  *Device
	what string       // for errors
	free func() error // called once, with the device's context current
	mu   sync.RWMutex // held for reading while the object is used
	gone bool
}

// keep registers a new object with its device, for Close. The device's lock is held by the caller, through do.
func (d *Device) keep(h *handle) {
	d.handleMu.Lock()
	defer d.handleMu.Unlock()
	d.handles[h] = struct{}{}
}

// use calls f with the object held: it is not released meanwhile.
func (h *handle) use(op string, f func() error) error {
	return h.dev.do(op, func() error { return h.held(f) })
}

// release frees the object. It does nothing when it was released before, by itself or by the device's Close.
func (h *handle) release(op string) error {
	err := h.dev.do(op, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.gone {
			return nil
		}
		h.gone = true
		h.dev.handleMu.Lock()
		delete(h.dev.handles, h)
		h.dev.handleMu.Unlock()
		return h.free()
	})
	if errors.Is(err, ErrClosed) {
		return nil
	}
	return err
}

// held is use inside another object's use: the device is held already.
func (h *handle) held(f func() error) error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.gone {
		return fmt.Errorf("%s %w", h.what, ErrClosed)
	}
	return f()
}
