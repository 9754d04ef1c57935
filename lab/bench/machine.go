package bench

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"sync"
	"time"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/megakernel"
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
	// Plant runs another kernel, with the same scalars and with buffers that are all
	// allocated, on the same memory until restore is called.
	Plant(ctx context.Context, k *ir.Kernel) (restore func(), err error)
}

// Preparer is a Loaded that can make a kernel ready for Plant before it is wanted. It is safe for concurrent use.
type Preparer interface {
	Prepare(ctx context.Context, k *ir.Kernel) error
}

// prepare makes all kernels ready that a gate will plant, side by side: compiled one after the other they take longer
// than they run.
func prepare(ctx context.Context, l Loaded, mk *megakernel.Kernel, builds []megakernel.Options) error {
	p, ok := l.(Preparer)
	if !ok || mk.Graph != nil {
		return nil
	}
	return sideBySide(len(builds), func(i int) error {
		built, err := megakernel.Build(mk.Config, builds[i])
		if err == nil {
			err = p.Prepare(ctx, built.IR)
		}
		return err
	})
}

// sideBySide calls f for 0 to n−1, as many at a time as there are processors.
func sideBySide(n int, f func(i int) error) error {
	failures := make([]error, n)
	slots := make(chan struct{}, goruntime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			failures[i] = f(i)
		})
	}
	wg.Wait()
	return errors.Join(failures...)
}

// Grapher is a Machine that runs graphs of kernels, too.
type Grapher interface {
	// LoadGraph is Load for a graph of kernels. What it returns is a GraphPlanter.
	LoadGraph(ctx context.Context, g *ir.Graph) (Loaded, error)
}

// GraphPlanter is a loaded graph of kernels.
type GraphPlanter interface {
	// PlantGraph is Loaded's Plant for a graph.
	PlantGraph(ctx context.Context, g *ir.Graph) (restore func(), err error)
}

// load makes the kernel, or the kernels, of a model's step ready to run.
func load(ctx context.Context, m Machine, mk *megakernel.Kernel) (Loaded, error) {
	if mk.Graph == nil {
		return m.Load(ctx, mk.IR)
	}
	g, ok := m.(Grapher)
	if !ok {
		return nil, fmt.Errorf("a %T runs no graphs of kernels", m)
	}
	return g.LoadGraph(ctx, mk.Graph)
}

// Executor is the Machine that executes kernels on the CPU with all checks of the
// executor; planted ones have no checks of races. Its times are the executor's own and no measure of any GPU.
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

// LoadGraph loads the kernels.
func (e Executor) LoadGraph(_ context.Context, g *ir.Graph) (Loaded, error) {
	sim, err := runtime.NewSimGraph(g, e.Seed)
	if err != nil {
		return nil, err
	}
	return &simulated{Sim: sim, graph: g}, nil
}

// Free is little, so that what is allocated in proportion to it stays small.
func (e Executor) Free() (int64, error) { return 1 << 30, nil }

// simulated is a Sim with a clock.
type simulated struct {
	*runtime.Sim
	kernel *ir.Kernel // what nothing is planted in
	graph  *ir.Graph  // or this
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

// Plant runs a kernel that is wrong on purpose, or one with probes, for a gate to judge its values. It leaves out the
// checks of races: the kernel whose place the planted one takes has them.
func (s *simulated) Plant(_ context.Context, k *ir.Kernel) (func(), error) {
	return s.planted(func() error { return s.Swap(s.kernel) }), s.Swap(k)
}

// PlantGraph is Plant for a graph.
func (s *simulated) PlantGraph(_ context.Context, g *ir.Graph) (func(), error) {
	return s.planted(func() error { return s.SwapGraph(s.graph) }), s.SwapGraph(g)
}

// planted leaves out the checks of races until what it returns is called.
func (s *simulated) planted(back func() error) (restore func()) {
	without := s.Options.NoRaces
	s.Options.NoRaces = true
	return func() {
		s.Options.NoRaces = without
		if err := back(); err != nil {
			panic("BUG: a kernel that ran does not load: " + err.Error())
		}
	}
}
