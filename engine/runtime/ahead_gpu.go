//go:build cuda

package runtime

import (
	"bytes"
	"errors"
	"slices"
	"unsafe"

	"github.com/mkgen/mkgen/engine/runtime/cuda"
)

// aheadBytes is how much WriteAhead has under way at most.
const aheadBytes = 4 << 20

// ahead is pinned memory from which copies are made in the stream of the launches.
type ahead struct {
	host    *cuda.Host
	used    int
	started int // used when the last launch began: those copies are done when it has ended

	kept []*cuda.Host // memory that Keep gave
	back *cuda.Host   // memory of ReadAhead; nil before the first
	read *cuda.Event  // passed when that has what was read last
}

// Keep is pinned memory that WriteAhead copies from without another copy: what is written from it must not change until
// the next launch has begun. It is the GPU's until Close.
func (g *GPU) Keep(bytes int) ([]byte, error) {
	h, err := g.dev.AllocHost(bytes)
	if err != nil {
		return nil, err
	}
	g.ahead.kept = append(g.ahead.kept, h)
	return h.Bytes(), nil
}

// keeps is the memory of Keep that src is a part of, and from which byte on; nil for other memory.
func (a *ahead) keeps(src []byte) (h *cuda.Host, from int64) {
	for _, h := range a.kept {
		raw := h.Bytes()
		at := uintptr(unsafe.Pointer(unsafe.SliceData(src))) - uintptr(unsafe.Pointer(unsafe.SliceData(raw)))
		if at < uintptr(len(raw)) && len(src) <= len(raw)-int(at) {
			return h, int64(at)
		}
	}
	return nil, 0
}

// ReadAhead begins to copy n bytes of device memory, before the next launch touches them. wait returns them, from any
// goroutine; they stay until it is called again.
func (g *GPU) ReadAhead(name string, offset int64, n int) (wait func() ([]byte, error), err error) {
	if raw, err := g.span(name, offset, n); raw != nil || err != nil {
		raw = bytes.Clone(raw)
		return func() ([]byte, error) { return raw, nil }, err
	}
	m, err := g.buffer(name)
	if err != nil {
		return nil, err
	}
	a := &g.ahead
	if a.back != nil && len(a.back.Bytes()) < n {
		err = a.back.Free()
		a.back = nil
	}
	if a.back == nil && err == nil {
		a.back, err = g.dev.AllocHost(n)
	}
	if a.read == nil && err == nil {
		a.read, err = g.dev.NewEvent()
	}
	if err != nil {
		return nil, err
	}
	if err := errors.Join(g.stream.CopyOut(a.back, 0, m, offset, int64(n)), a.read.Record(g.stream)); err != nil {
		return nil, err
	}
	raw, read := a.back.Bytes()[:n], a.read
	return func() ([]byte, error) { return raw, read.Sync() }, nil
}

// close gives the memory back, when the stream is done with it.
func (a *ahead) close(stream *cuda.Stream) (err error) {
	all := slices.DeleteFunc(append(a.kept, a.host, a.back), func(h *cuda.Host) bool { return h == nil })
	if len(all) > 0 {
		err = stream.Sync()
	}
	for _, h := range all {
		err = errors.Join(err, h.Free())
	}
	if a.read != nil {
		err = errors.Join(err, a.read.Close())
	}
	*a = ahead{}
	return err
}

// WriteAhead is Write that does not wait: the bytes are on the device when the next
// launch begins, since its stream copies them. src may be used again at once.
func (g *GPU) WriteAhead(name string, offset int64, src []byte) error {
	if raw, err := g.span(name, offset, len(src)); raw != nil || err != nil {
		copy(raw, src)
		return err
	}
	m, err := g.buffer(name)
	if err != nil {
		return err
	}
	if kept, from := g.ahead.keeps(src); kept != nil {
		return g.stream.CopyIn(m, offset, kept, from, int64(len(src)))
	}
	if g.ahead.host == nil {
		if g.ahead.host, err = g.dev.AllocHost(aheadBytes); err != nil {
			return err
		}
	}
	for len(src) > 0 {
		if g.ahead.used == aheadBytes {
			if err := g.stream.Sync(); err != nil {
				return err
			}
			g.ahead.used = 0
		}
		n := copy(g.ahead.host.Bytes()[g.ahead.used:], src)
		if err := g.stream.CopyIn(m, offset, g.ahead.host, int64(g.ahead.used), int64(n)); err != nil {
			return err
		}
		src, offset = src[n:], offset+int64(n)
		g.ahead.used += (n + 15) / 16 * 16
	}
	return nil
}

// begun notes that a launch begins behind the copies so far.
func (a *ahead) begun() { a.started = a.used }

// ended frees the memory when nothing was written since the launch began.
func (a *ahead) ended() {
	if a.used == a.started {
		a.used, a.started = 0, 0
	}
}
