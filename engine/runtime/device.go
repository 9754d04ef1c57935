package runtime

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/megakernel"
)

// Launch runs dev's kernel once and waits for it.
func Launch(dev Device, scalars map[string]uint64) error {
	if err := dev.Start(scalars); err != nil {
		return err
	}
	return dev.Wait()
}

// Device runs one kernel and owns its memory. Buffers are named as in the
// kernel; a device binds every global buffer of the kernel exactly once. Not
// safe for concurrent use.
type Device interface {
	// Alloc reserves bytes (positive) for the buffer called name, uninitialised.
	Alloc(name string, bytes int64) error
	// Write copies src to the buffer from byte offset on.
	Write(name string, offset int64, src []byte) error
	// Zero clears a whole buffer.
	Zero(name string) error
	// Read copies the buffer from byte offset on to dst.
	Read(name string, offset int64, dst []byte) error
	// Start begins to run the kernel with the scalars of the params block, by
	// name. Wait must follow before the next Start.
	Start(scalars map[string]uint64) error
	// Done is closed when the kernel that was started last has ended.
	Done() <-chan struct{}
	// Wait waits for that and returns what went wrong with it.
	Wait() error
	// Peek reads word i of a buffer for the host to read; also while the kernel
	// runs, when it sees each word as the kernel stored it, in no order.
	Peek(name string, i int) (uint32, error)
	// Poke writes words of a buffer for the host to write, from word i on; also while the
	// kernel runs, which then sees them soon. Who acquires one, at scope sys, sees what was
	// poked before it.
	Poke(name string, i int, values ...uint32) error
	// Close releases everything but what was borrowed; a second Close does nothing.
	Close() error
}

// Borrower is a Device that can use buffers of another one of its kind, which must stay open
// for as long. Kernels of both must not run at a time.
type Borrower interface {
	// Borrow makes from's buffer called name this device's, in place of Alloc.
	Borrow(name string, from Device) error
}

// lent are the buffers that kernels of one model can have in common, where both have them.
var lent = []string{"weights", "gains", "kv", megakernel.BufferEmbed, megakernel.BufferBiases, megakernel.BufferQKGains}

// borrow takes over from's buffers that are lent, and reports whether name is one.
func (s *runner) borrow(name string) (bool, error) {
	if s.from == nil || !slices.Contains(lent, name) {
		return false, nil
	}
	return true, borrow(s.dev, name, s.from)
}

// borrow makes from's buffer dev's, too.
func borrow(dev Device, name string, from Device) error {
	b, ok := dev.(Borrower)
	if !ok {
		return fmt.Errorf("a %T cannot use another device's buffers", dev)
	}
	return b.Borrow(name, from)
}
