//go:build cuda

package cuda

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"gorgonia.org/cu"
)

// Mem is a piece of the GPU's memory, at least 256-byte aligned.
type Mem struct {
	handle
	ptr   cu.DevicePtr
	bytes int64
}

// Alloc allocates bytes of the GPU's memory, at least 1; the content is undefined. When there is not enough, the error
// says how much is free.
func (d *Device) Alloc(bytes int64) (*Mem, error) {
	if bytes < 1 {
		return nil, fmt.Errorf("cuda: allocate %d bytes: want at least 1", bytes)
	}
	m := &Mem{bytes: bytes}
	m.handle = handle{dev: d, what: fmt.Sprintf("memory of %d bytes", bytes),
		free: func() error { return cu.MemFree(m.ptr) }}
	err := d.do(fmt.Sprintf("allocate %d bytes", bytes), func() error {
		ptr, err := cu.MemAlloc(bytes)
		if err != nil {
			return d.shortage(err)
		}
		m.ptr = ptr
		d.keep(&m.handle)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// shortage adds to an out-of-memory error what is free.
func (d *Device) shortage(err error) error {
	err = fromCu(err)
	if e, ok := err.(*DriverError); !ok || e.Code != codeOutOfMemory {
		return err
	}
	free, total, infoErr := cu.MemInfo()
	if infoErr != nil {
		return err
	}
	return fmt.Errorf("%w: %d of %d bytes are free on GPU %d (%s)", err, free, total, d.facts.Ordinal, d.facts.Name)
}

// Addr is the address in the GPU's space, for params blocks. It stays the same; after Free it must not be used.
func (m *Mem) Addr() uint64 { return uint64(m.ptr) }

// Bytes is the size.
func (m *Mem) Bytes() int64 { return m.bytes }

// inside refuses a range that does not lie in the memory.
func (m *Mem) inside(op string, offset, n int64) error {
	if offset < 0 || n < 0 || offset > m.bytes || n > m.bytes-offset {
		return fmt.Errorf("cuda: %s: bytes %d to %d of memory of %d", op, offset, offset+n, m.bytes)
	}
	return nil
}

// Upload copies src to the memory from byte offset on and returns when it is there. No bytes is no error.
func (m *Mem) Upload(offset int64, src []byte) error {
	if err := m.inside("upload", offset, int64(len(src))); err != nil {
		return err
	}
	return m.use("upload", func() error {
		if len(src) == 0 {
			return nil
		}
		defer runtime.KeepAlive(src)
		err := cu.MemcpyHtoDAsync(m.ptr+cu.DevicePtr(offset), unsafe.Pointer(&src[0]), int64(len(src)), m.dev.copies)
		if err != nil {
			return err
		}
		return m.dev.copies.Synchronize()
	})
}

// Download copies the memory from byte offset on into dst and returns when it is there. It does not wait for kernels:
// synchronise their stream before. No bytes is no error.
func (m *Mem) Download(dst []byte, offset int64) error {
	if err := m.inside("download", offset, int64(len(dst))); err != nil {
		return err
	}
	return m.use("download", func() error {
		if len(dst) == 0 {
			return nil
		}
		defer runtime.KeepAlive(dst)
		err := cu.MemcpyDtoHAsync(unsafe.Pointer(&dst[0]), m.ptr+cu.DevicePtr(offset), int64(len(dst)), m.dev.copies)
		if err != nil {
			return err
		}
		return m.dev.copies.Synchronize()
	})
}

// Set sets every byte to value and returns when that is done.
func (m *Mem) Set(value byte) error {
	return m.use("set", func() error {
		if err := cu.MemsetD8Async(m.ptr, value, m.bytes, m.dev.copies); err != nil {
			return err
		}
		return m.dev.copies.Synchronize()
	})
}

// Free gives the memory back. The driver waits for kernels that run. A second Free does nothing.
func (m *Mem) Free() error { return m.release("free") }

// Host is pinned host memory that the GPU sees too, through the bus: for fast copies, flags and tokens. It is zero at
// first.
type Host struct {
	handle
	host   unsafe.Pointer
	device uint64
	bytes  int
}

// AllocHost allocates bytes of pinned, mapped host memory, at least 1, page-aligned.
func (d *Device) AllocHost(bytes int) (*Host, error) {
	if bytes < 1 {
		return nil, fmt.Errorf("cuda: allocate %d bytes of host memory: want at least 1", bytes)
	}
	h := &Host{bytes: bytes}
	h.handle = handle{dev: d, what: fmt.Sprintf("host memory of %d bytes", bytes),
		free: func() error { return cu.MemFreeHost(h.host) }}
	err := d.do(fmt.Sprintf("allocate %d bytes of host memory", bytes), func() error {
		var err error
		if h.host, h.device, err = hostAlloc(bytes); err != nil {
			return err
		}
		clear(unsafe.Slice((*byte)(h.host), bytes))
		d.keep(&h.handle)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// at is the host address of a byte.
func (h *Host) at(offset int64) unsafe.Pointer { return unsafe.Add(h.host, offset) }

// Addr is the address by which the GPU reaches the memory.
func (h *Host) Addr() uint64 { return h.device }

// Bytes is the memory itself, nil after Free. A slice taken before must not be used after Free or the device's Close.
func (h *Host) Bytes() []byte {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.gone {
		return nil
	}
	return unsafe.Slice((*byte)(h.host), h.bytes)
}

// Load32 reads the word at byte offset in one access, ordered before later ones: what the GPU wrote before it, with a
// fence of system scope between, is then visible. The offset must be a multiple of 4 inside the memory.
func (h *Host) Load32(offset int) (value uint32, err error) {
	err = h.word("load", offset, func(p *uint32) { value = atomic.LoadUint32(p) })
	return value, err
}

// Store32 writes the word at byte offset in one access, ordered after earlier ones. The offset must be a multiple of 4
// inside the memory. It works while a kernel runs.
func (h *Host) Store32(offset int, value uint32) error {
	return h.word("store", offset, func(p *uint32) { atomic.StoreUint32(p, value) })
}

// word calls f on a word with the memory held. It needs no driver call, hence no device lock.
func (h *Host) word(op string, offset int, f func(*uint32)) error {
	if offset < 0 || offset%4 != 0 || offset > h.bytes-4 {
		return fmt.Errorf("cuda: %s: word at byte %d of host memory of %d: want a multiple of 4 inside", op, offset, h.bytes)
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.gone {
		return fmt.Errorf("cuda: %s: %s %w", op, h.what, ErrClosed)
	}
	f((*uint32)(unsafe.Add(h.host, offset)))
	return nil
}

// Free gives the memory back. A second Free does nothing.
func (h *Host) Free() error { return h.release("free host memory") }
