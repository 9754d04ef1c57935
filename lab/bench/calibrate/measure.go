package calibrate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/pipeline/machine"
)

// Suite is everything that is measured of a machine, in one process.
type Suite struct {
	Machine bench.Machine
	Commit  string // of this program
	Date    string // of today, UTC: "2026-11-21"
	// Progress hears what is done next; nil is allowed.
	Progress func(what string)

	size
}

// size is how much is measured.
type size struct {
	shape     Shape // but for InFlight
	bytes     int64
	copies    []int // in flight, ascending
	exchanges []int // of them those at which exchanges are measured
	vectors   []int // bytes, ascending
	launches  int   // of each kind that count
	tiles     int   // of a phase between two exchanges
	probes    int   // of an SM in a launch while it streams
	idle      int   // exchanges, and probes in 16s, of a launch in which nothing streams
	drains    int   // phases of a launch that drains
}

// onGPU is the shape on a GPU: the megakernel's, with the matrix and the longest input of
// Llama-3.1-8B.
func onGPU(sms int) Shape {
	return Shape{SMs: sms, Consumers: 8, StageBytes: 16 << 10, Stages: 11, K: 4096, VectorBytes: 28 << 10}
}

// sized decides how much is measured: on the executor next to nothing.
func (s *Suite) sized() (err error) {
	f := s.Machine.Facts()
	if f.Executor {
		s.size = size{shape: Shape{SMs: executorSMs, Consumers: 2, StageBytes: 1024, Stages: 4, K: 128, VectorBytes: 512},
			bytes: 1 << 16, copies: []int{1, 2, 3}, exchanges: []int{2, 3}, vectors: []int{0, 512}, launches: 2, tiles: 2,
			probes: 4, idle: 4, drains: 8}
		return nil
	}
	s.size = size{shape: onGPU(f.SMs), copies: []int{1, 2, 3, 4, 6}, exchanges: []int{2, 3, 4},
		vectors: []int{0, 8 << 10, 16 << 10, 28 << 10}, launches: 7, tiles: 16, probes: 256, idle: 512, drains: 200}
	s.bytes, err = bench.StreamBytes(s.Machine)
	return err
}

// executorSMs is how many CTAs the executor has.
const executorSMs = 2

func (s *Suite) say(format string, args ...any) {
	if s.Progress != nil {
		s.Progress(fmt.Sprintf(format, args...))
	}
}

// Run measures. What it allocates it releases. An error leaves no figures.
func (s *Suite) Run(ctx context.Context) (*machine.Machine, error) {
	if err := s.sized(); err != nil {
		return nil, err
	}
	m := &machine.Machine{Format: machine.Format, Commit: s.Commit, Date: s.Date,
		SMs: s.shape.SMs, Consumers: s.shape.Consumers, StageBytes: s.shape.StageBytes, Stages: s.shape.Stages}
	if err := s.ceiling(ctx, m); err != nil {
		return nil, err
	}
	var streaming []machine.Exchange
	for _, n := range s.copies {
		if err := s.inFlight(ctx, m, n, &streaming); err != nil {
			return nil, fmt.Errorf("%d copies in flight: %w", n, err)
		}
	}
	m.Exchanges = append(m.Exchanges, streaming...)
	m.Between = int64(s.tiles) * s.shape.tileBytes()
	f := s.Machine.Facts() // now the compiler is known
	m.GPU, m.Driver, m.CUDA, m.Compiler, m.Executor = f.GPU, f.Driver, f.CUDA, f.Compiler, f.Executor
	if f.Executor {
		m.Driver, m.CUDA, m.Compiler, m.Note = "none", "none", "none", "Of the executor: its figures mean nothing."
	}
	if err := m.Check(); err != nil {
		return nil, fmt.Errorf("what was measured cannot be: %w; something else may use this GPU", err)
	}
	return m, nil
}

// ceiling measures the streaming ceiling, as a benchmark does.
func (s *Suite) ceiling(ctx context.Context, m *machine.Machine) (err error) {
	y, err := bench.OpenYardstick(ctx, s.Machine, s.shape.SMs, s.Progress)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, y.Close()) }()
	top, err := y.Measure(ctx)
	m.Ceiling = rounded(machine.Figure{Median: top.GBps, Min: top.Min, Max: top.Max})
	return err
}

// inFlight measures with n copies in flight: what streams, what small requests take
// meanwhile, and where that is wanted exchanges; and with the fewest for which these are
// measured also what does not depend on how many there are.
func (s *Suite) inFlight(ctx context.Context, m *machine.Machine, n int, exchanges *[]machine.Exchange) (err error) {
	s.say("%d in flight: filling %d bytes", n, s.bytes)
	shape := s.shape
	shape.InFlight = n
	k, err := OpenSession(ctx, s.Machine, shape, s.bytes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	r := &runs{s: s, k: k, ctx: ctx}
	s.say("%d in flight: streaming", n)
	m.Copies = append(m.Copies, machine.Copies{InFlight: n, GBps: r.stream(), Latency: r.latency(r.whole(), s.probes)})
	if n == s.exchanges[0] {
		s.say("nothing in flight")
		m.Idle = r.latency(Launch{}, 16*s.idle)
		for _, bytes := range s.vectors {
			m.Exchanges = append(m.Exchanges, r.exchange(0, bytes))
		}
		m.Drain = r.drain()
	}
	if slices.Contains(s.exchanges, n) {
		s.say("%d in flight: exchanges", n)
		for _, bytes := range s.vectors {
			*exchanges = append(*exchanges, r.exchange(n, bytes))
		}
	}
	return r.err
}
