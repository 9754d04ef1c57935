package bench

import (
	"context"
	"time"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/megakernel/runtime"
)

// Machine is where kernels are measured: a GPU, or the executor. Not safe for
// concurrent use.
type Machine interface {
	// Facts say what it is.
	Facts() Facts
	// Load makes a kernel ready to run, with buffers of its own.
	Load(ctx context.Context, k *ir.Kernel) (Loaded, error)
	// Free is how many bytes of memory can still be allocated.
	Free() (int64, error)
}

// Facts are what a record says of the machine.
type Facts struct {
	GPU, Driver, CUDA string
	Compiler          string // of the kernel loaded last
	SMs               int    // all that there are; 0 on the executor
	L2                int64  // bytes of the last cache before memory
	Executor          bool   // no GPU: times say nothing
}

// Loaded is a kernel on a machine.
type Loaded interface {
	Device
	// Plant runs another kernel, with the same buffers and scalars, on the same
	// memory until restore is called.
	Plant(ctx context.Context, k *ir.Kernel) (restore func(), err error)
}

// Executor is the Machine that executes kernels on the CPU with all checks of the
// executor. Its times are the executor's own and no measure of any GPU.
type Executor struct {
	Seed uint64 // of the interleavings
}

// Facts say that it is no GPU.
func (e Executor) Facts() Facts { return Facts{GPU: "executor", Executor: true} }

// Load loads the kernel.
func (e Executor) Load(_ context.Context, k *ir.Kernel) (Loaded, error) {
	sim, err := runtime.NewSim(k, e.Seed)
	if err != nil {
		return nil, err
	}
	return &simulated{Sim: sim, kernel: k}, nil
}

// Free is little, so that what is allocated in proportion to it stays small.
func (e Executor) Free() (int64, error) { return 1 << 30, nil }

// simulated is a Sim with a clock.
type simulated struct {
	*runtime.Sim
	kernel *ir.Kernel // what nothing is planted in
	begin  time.Time
	took   time.Duration
}

func (s *simulated) Start(scalars map[string]uint64) error {
	s.begin = time.Now()
	return s.Sim.Start(scalars)
}

func (s *simulated) Wait() error {
	err := s.Sim.Wait()
	s.took = time.Since(s.begin)
	return err
}

func (s *simulated) Elapsed() time.Duration { return s.took }

func (s *simulated) Plant(_ context.Context, k *ir.Kernel) (func(), error) {
	return func() {
		if err := s.Swap(s.kernel); err != nil {
			panic("BUG: a kernel that ran does not load: " + err.Error())
		}
	}, s.Swap(k)
}
