//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"time"

	"gorgonia.org/cu"
)

// Stream is a queue of work on the GPU: in order within, no order with other streams.
type Stream struct {
	handle
	stream cu.Stream
}

// NewStream makes a stream that does not wait for the default stream.
func (d *Device) NewStream() (*Stream, error) {
	s := &Stream{}
	s.handle = handle{dev: d, what: "stream", free: func() error { return s.stream.Destroy() }}
	err := d.do("make a stream", func() error {
		var err error
		if s.stream, err = cu.MakeStream(cu.NonBlocking); err != nil {
			return err
		}
		d.keep(&s.handle)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Sync waits until all work in the stream is done, and returns the fault of a kernel that failed.
func (s *Stream) Sync() error {
	return s.use("wait for the stream", func() error { return s.stream.Synchronize() })
}

// Done says without waiting whether all work in the stream is done; a kernel's fault is an error.
func (s *Stream) Done() (done bool, err error) {
	err = s.use("ask the stream", func() error {
		err := fromCu(s.stream.Query())
		if e, ok := err.(*DriverError); ok && e.Code == codeNotReady {
			return nil
		}
		done = err == nil
		return err
	})
	return done, err
}

// CopyIn queues a copy of n bytes of pinned host memory to the GPU's memory.
func (s *Stream) CopyIn(to *Mem, toOffset int64, from *Host, fromOffset, n int64) error {
	return s.copy("copy in", to, toOffset, from, fromOffset, n, func(d cu.DevicePtr) error {
		return cu.MemcpyHtoDAsync(d, from.at(fromOffset), n, s.stream)
	})
}

// CopyOut queues a copy of n bytes of the GPU's memory to pinned host memory.
func (s *Stream) CopyOut(to *Host, toOffset int64, from *Mem, fromOffset, n int64) error {
	return s.copy("copy out", from, fromOffset, to, toOffset, n, func(d cu.DevicePtr) error {
		return cu.MemcpyDtoHAsync(to.at(toOffset), d, n, s.stream)
	})
}

// copy checks a copy between m and h and queues it by f, which gets the address on the GPU.
func (s *Stream) copy(op string, m *Mem, mOffset int64, h *Host, hOffset, n int64, f func(cu.DevicePtr) error) error {
	if m.dev != s.dev || h.dev != s.dev {
		return fmt.Errorf("cuda: %s: memory and stream are of different devices", op)
	}
	if err := m.inside(op, mOffset, n); err != nil {
		return err
	}
	if hOffset < 0 || hOffset > int64(h.bytes) || n > int64(h.bytes)-hOffset {
		return fmt.Errorf("cuda: %s: bytes %d to %d of host memory of %d", op, hOffset, hOffset+n, h.bytes)
	}
	if n == 0 {
		return nil
	}
	return s.use(op, func() error {
		return m.held(func() error {
			return h.held(func() error { return f(m.ptr + cu.DevicePtr(mOffset)) })
		})
	})
}

// Close waits for nothing; work in the stream runs on. A second Close does nothing.
func (s *Stream) Close() error { return s.release("close the stream") }

// Event is a point in a stream's work, with its time.
type Event struct {
	handle
	event cu.Event
}

// NewEvent makes an event that records time.
func (d *Device) NewEvent() (*Event, error) {
	e := &Event{}
	e.handle = handle{dev: d, what: "event", free: func() error { return cu.DestroyEvent(&e.event) }}
	err := d.do("make an event", func() error {
		var err error
		if e.event, err = cu.MakeEvent(cu.DefaultEvent); err != nil {
			return err
		}
		d.keep(&e.handle)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Record puts the event into the stream, after the work queued so far; it replaces an earlier recording.
func (e *Event) Record(s *Stream) error {
	if e.dev != s.dev {
		return errors.New("cuda: record: event and stream are of different devices")
	}
	return e.use("record an event", func() error {
		return s.held(func() error { return e.event.Record(s.stream) })
	})
}

// Sync waits until the GPU has passed the event; an event never recorded is passed.
func (e *Event) Sync() error {
	return e.use("wait for an event", func() error { return e.event.Synchronize() })
}

// Since is the time on the GPU from the event start to this one, to about half a microsecond. Both must have been
// recorded and passed, else it is an error.
func (e *Event) Since(start *Event) (time.Duration, error) {
	var ms float64
	err := e.use("time between events", func() error {
		return start.held(func() error {
			var err error
			ms, err = start.event.Elapsed(e.event)
			return err
		})
	})
	return time.Duration(ms * float64(time.Millisecond)), err
}

// Close releases the event. A second Close does nothing.
func (e *Event) Close() error { return e.release("close an event") }
