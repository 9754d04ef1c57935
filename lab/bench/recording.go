package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/pipeline"
)

// Recording is what a launch of a kernel left: with Options.Trace the contents of its
// buffers pipeline.BufferSpans and BufferSpanHeads, else nothing.
type Recording struct {
	Spans, Heads []uint32
	Micros       float64 // of a step, by the device's clock: the median of several such launches
}

// RecordedLaunches is how many launches are timed on a GPU, after one that warms up; the
// last is recorded.
const RecordedLaunches = 31

// Record loads the kernel and records a launch of n tokens that begins with cached
// tokens in the cache. It releases what it allocated.
func (s *Suite) Record(ctx context.Context, cached, tokens int) (r *Recording, err error) {
	launch, err := s.open(ctx, []int{cached}, tokens)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.loaded.Close()) }()
	return recorded(s.Kernel, s.Machine, s.loaded, cached, tokens, launch)
}

// Record is Suite.Record for a kernel of several rows, each a sequence's that decodes.
func (s *RaggedSuite) Record(ctx context.Context, cached, steps int) (r *Recording, err error) {
	launch, err := s.open(ctx, []int{cached}, steps)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.loaded.Close()) }()
	return recorded(s.Kernel, s.Machine, s.loaded, cached, steps, launch)
}

// recorded times launches, and reads what the last of them left.
func recorded(mk *megakernel.Kernel, m Machine, dev Device, cached, steps int,
	launch func(cached int) (Round, error)) (*Recording, error) {
	n := RecordedLaunches
	if m.Facts().Executor {
		n = 1
	}
	all, err := timed([]int{cached}, steps, n, launch)
	if err != nil {
		return nil, err
	}
	times := all[0].Launches
	slices.Sort(times)
	r, err := ReadRecording(mk.IR, dev)
	if err != nil {
		return nil, err
	}
	r.Micros = times[n/2]
	return r, nil
}

// ReadRecording reads what the last launch of a kernel left; it does not know its time.
func ReadRecording(k *ir.Kernel, dev Device) (*Recording, error) {
	r := &Recording{}
	for _, b := range k.Globals() {
		to := map[string]*[]uint32{pipeline.BufferSpans: &r.Spans, pipeline.BufferSpanHeads: &r.Heads}[b.Name]
		if to == nil {
			continue
		}
		raw := make([]byte, b.Bytes())
		if err := dev.Read(b.Name, 0, raw); err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
		*to = make([]uint32, len(raw)/4)
		for i := range *to {
			(*to)[i] = binary.LittleEndian.Uint32(raw[4*i:])
		}
	}
	return r, nil
}
