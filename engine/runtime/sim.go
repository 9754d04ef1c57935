package runtime

import (
	"encoding/binary"
	"fmt"
	"maps"
	"time"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
)

// Sim is the Device that executes the kernel's program on the CPU, with every
// check of the executor.
type Sim struct {
	program *interp.Program
	graph   *simGraph // runs instead of program, unless nil
	mem     *interp.Memory
	sizes   map[string]int64
	seed    uint64
	kernel  *ir.Kernel
	host    *simHost
	done    chan struct{}
	err     error

	// Options are those of the launches to come; the seed, the parameters and the host are
	// Sim's own.
	Options interp.Options

	// Explore, unless nil, makes a launch explore all of its executions within the bounds first, from the same memory;
	// a fault of any of them is the launch's. Explored is what that came to.
	Explore  *interp.Bounds
	Explored *interp.Exploration

	// Late has what is poked in a launch come when no warp can go on without the host, and not before.
	Late bool

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
	s := &Sim{program: p, mem: interp.NewMemory(), sizes: map[string]int64{}, seed: seed, kernel: k, host: newSimHost()}
	if interp.PolicyOf(seed) == interp.PolicyPCT { // of every launch; others take the policies in turn
		s.Options.Policy = interp.PolicyPCT
	}
	return s, nil
}

// Fork returns a device of the same kernel and options whose buffers are its own and hold what s's hold now, for
// launches beside those of s and of other forks.
func (s *Sim) Fork() *Sim {
	return &Sim{program: s.program, graph: s.graph, mem: s.mem.Clone(), sizes: maps.Clone(s.sizes), seed: s.seed,
		kernel: s.kernel, host: newSimHost(), Options: s.Options, Late: s.Late}
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

// AllocKnown is Alloc of a buffer that counts as initialised. What is not written is 0 and
// takes no memory until it is read or copied.
func (s *Sim) AllocKnown(name string, bytes int64) error {
	if bytes <= 0 || bytes > 1<<40 {
		return fmt.Errorf("allocating %d bytes", bytes)
	}
	s.mem.Bind(name, make([]byte, bytes))
	s.sizes[name] = bytes
	return nil
}

// Borrow makes a buffer of another Sim this one's, see Borrower.
func (s *Sim) Borrow(name string, from Device) error {
	f, ok := from.(interface{ simulated() *Sim })
	if !ok {
		return fmt.Errorf("the executor borrows from the executor, not from a %T", from)
	}
	of := f.simulated()
	if !s.mem.Share(name, of.mem) {
		return fmt.Errorf("no buffer %q to borrow", name)
	}
	s.sizes[name] = of.sizes[name]
	return nil
}

func (s *Sim) simulated() *Sim { return s }

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

// Start executes the kernel beside the caller; a race, a deadlock or any other
// fault is Wait's error. Until Wait returns only Peek, Poke and Done may be called.
func (s *Sim) Start(scalars map[string]uint64) error {
	o := s.Options
	o.Seed, o.Params, o.Host = s.seed, scalars, s.host
	if s.Last != nil {
		o.Length = s.Last.Steps
	}
	s.seed += 0x9e3779b97f4a7c15
	s.host.late = s.Late
	s.host.forget() // pokes that came between the last launch's end and its being known
	for _, b := range s.kernel.Globals() {
		if b.Host == ir.HostReads {
			s.host.load(b.Name, s.mem.Bytes(b.Name))
		}
	}
	done := make(chan struct{})
	s.done = done
	go func() {
		defer close(done)
		if s.Explore != nil && s.graph == nil {
			s.Explored, s.err = s.program.Explore(s.mem.Clone, o, *s.Explore)
		}
		if s.Explore != nil && s.err != nil {
			s.Last = nil
		} else if s.graph != nil {
			s.Last, s.err = s.graph.run(s.mem, o)
		} else {
			s.Last, s.err = s.program.Run(s.mem, o)
		}
		s.host.end()
	}()
	return nil
}

// Done is closed when the kernel has ended.
func (s *Sim) Done() <-chan struct{} { return s.done }

// Wait waits for the kernel that was started last.
func (s *Sim) Wait() error {
	<-s.done
	return s.err
}

// running reports whether a kernel has not ended.
func (s *Sim) running() bool {
	if s.done == nil {
		return false
	}
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// Peek reads a word of a buffer that the kernel writes for the host.
func (s *Sim) Peek(name string, i int) (uint32, error) {
	if s.running() {
		return s.host.peek(name, i)
	}
	raw, err := s.span(name, 4*int64(i), 4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(raw), nil
}

// Poke writes words of a buffer that the host writes for the kernel.
func (s *Sim) Poke(name string, i int, values ...uint32) error {
	if s.running() {
		s.host.poke(name, i, values)
		return nil
	}
	return s.Write(name, 4*int64(i), words(values))
}

// Reseed makes seed choose the interleavings of the launches to come.
func (s *Sim) Reseed(seed uint64) { s.seed = seed }

// Swap makes k the kernel of the launches to come, on the same buffers, which it
// must have all of.
func (s *Sim) Swap(k *ir.Kernel) error {
	p, err := interp.Load(k)
	if err != nil {
		return err
	}
	s.program, s.kernel = p, k
	return nil
}

// Stuck reports whether the kernel hangs: no warp can go on, and it waits for the
// host to give it up. A kernel that has not yet taken what was poked does not hang.
func (s *Sim) Stuck() bool { return s.host.hangs() }

// ClaimStuck makes the next launch claim that it hangs, after about n warp
// instructions, although it does not: so that it is given up anywhere.
func (s *Sim) ClaimStuck(instructions int64) {
	s.host.claim = 1 + int(instructions/interp.HostTurn)
}

// Patience is how long a kernel of which no warp can go on waits for the host
// to give it up before that is a fault. 0, the default, is at once.
func (s *Sim) Patience(d time.Duration) { s.host.patience = d }

// Leave says that the host can do no more for the kernel: where it is stuck, that is a fault,
// which names what every warp waits for and the line.
func (s *Sim) Leave() { s.host.leave() }

// Close drops the buffers.
func (s *Sim) Close() error {
	s.mem = interp.NewMemory()
	return nil
}
