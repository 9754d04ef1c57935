package runtime

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
)

// Sim is the Device that executes the kernel's program on the CPU, with every
// check of the executor.
type Sim struct {
	program *interp.Program
	mem     *interp.Memory
	sizes   map[string]int64
	seed    uint64

	// Last is what the last launch did.
	Last *interp.Result
}

// NewSim makes a device for one kernel. seed chooses the interleavings; every
// launch uses another one derived from it.
func NewSim(k *ir.Kernel, seed uint64) (*Sim, error) {
	p, err := interp.Load(k)
	if err != nil {
		return nil, err
	}
	return &Sim{program: p, mem: interp.NewMemory(), sizes: map[string]int64{}, seed: seed}, nil
}

// Alloc reserves a buffer; reading what was never written is then a fault.
func (s *Sim) Alloc(name string, bytes int64) error {
	if bytes <= 0 || bytes > 1<<40 {
		return fmt.Errorf("allocating %d bytes", bytes)
	}
	s.mem.Bind(name, make([]byte, bytes))
	s.mem.MarkUninit(name)
	s.sizes[name] = bytes
	return nil
}

func (s *Sim) span(name string, offset int64, n int) ([]byte, error) {
	b := s.mem.Bytes(name)
	if b == nil {
		return nil, fmt.Errorf("no buffer %q", name)
	}
	if offset < 0 || offset+int64(n) > int64(len(b)) {
		return nil, fmt.Errorf("bytes %d to %d of buffer %s, which has %d", offset, offset+int64(n), name, len(b))
	}
	return b[offset : offset+int64(n)], nil
}

// Write copies src into a buffer and marks it initialised.
func (s *Sim) Write(name string, offset int64, src []byte) error {
	dst, err := s.span(name, offset, len(src))
	if err != nil {
		return err
	}
	copy(dst, src)
	s.mem.MarkInit(name, offset, int64(len(src)))
	return nil
}

// Zero clears a buffer.
func (s *Sim) Zero(name string) error { return s.Write(name, 0, make([]byte, s.sizes[name])) }

// Size is the number of bytes of a buffer, 0 when there is none of that name.
func (s *Sim) Size(name string) int64 { return s.sizes[name] }

// Read copies from a buffer.
func (s *Sim) Read(name string, offset int64, dst []byte) error {
	src, err := s.span(name, offset, len(dst))
	if err != nil {
		return err
	}
	copy(dst, src)
	return nil
}

// Launch executes the kernel; a race, a deadlock or any other fault is the error.
func (s *Sim) Launch(scalars map[string]uint64) error {
	r, err := s.program.Run(s.mem, interp.Options{Seed: s.seed, Params: scalars})
	s.seed += 0x9e3779b97f4a7c15
	s.Last = r
	return err
}

// Close drops the buffers.
func (s *Sim) Close() error {
	s.mem = interp.NewMemory()
	return nil
}
