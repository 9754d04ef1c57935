package calibrate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/mkgen/mkgen/lab/bench"
)

// Launch is what a launch of the kernel does.
type Launch struct {
	Phases, Tiles int
	Work          bool // multiply what is streamed; else drain it unread
	Ready         int  // chunks that have landed when a phase begins to drain
	Sync          Sync
	VectorBytes   int // of each sync; none of a Count
	Probes        int
	Atomic        bool
}

func (l Launch) scalars() map[string]uint64 {
	bit := map[bool]uint64{true: 1}
	return map[string]uint64{scalarFill: 0, scalarPhases: uint64(l.Phases), scalarTiles: uint64(l.Tiles),
		scalarWork: bit[l.Work], scalarReady: uint64(l.Ready), scalarSync: uint64(l.Sync), scalarTag: 1, scalarSalt: 0,
		scalarVector: uint64(l.VectorBytes / element), scalarProbes: uint64(l.Probes), scalarAtomic: bit[l.Atomic]}
}

// Found is what a launch noted. Clocks are the SMs'.
type Found struct {
	Took   time.Duration // by the device's clock
	Heads  [][]uint32    // [SMs][headWords]
	Probes [][]uint32    // [SMs][probeWords]
	Stamps [][][]uint32  // [phases][SMs][stampWords]
}

// patience is how long a launch may take on a GPU, thousands of times what it does.
const patience = 10 * time.Second

// Session is a kernel on a machine with its buffers. Not safe for concurrent use.
type Session struct {
	dev      bench.Loaded
	shape    Shape
	bytes    int64
	executor bool
	patience time.Duration
	hung     bool
	launches uint32 // so far: each has other tags
}

// OpenSession loads the kernel of a shape and fills data, bytes of it (a multiple of 16).
func OpenSession(ctx context.Context, m bench.Machine, shape Shape, bytes int64) (*Session, error) {
	k, err := Kernel(shape)
	if err != nil {
		return nil, err
	}
	s := &Session{shape: shape, bytes: bytes, executor: m.Facts().Executor, patience: patience}
	if s.dev, err = m.Load(ctx, k); err != nil {
		return nil, err
	}
	err = s.dev.Alloc(bufferData, bytes)
	for _, b := range k.Globals() {
		if b.Name != bufferData {
			err = errors.Join(err, s.dev.Alloc(b.Name, b.Bytes()))
			if err == nil {
				err = s.dev.Zero(b.Name)
			}
		}
	}
	if err == nil {
		fill := Launch{}.scalars()
		fill[scalarFill] = uint64(bytes / element)
		err = s.run(fill)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("calibrate: %w", err), s.Close())
	}
	return s, nil
}

// Close releases everything, unless the GPU still runs a launch that was given up.
func (s *Session) Close() error {
	if s.hung {
		return nil
	}
	return s.dev.Close()
}

// tileBytes is what a row tile takes in the buffer.
func (s *Shape) tileBytes() int64 { return int64(s.K) * 16 }

// phasesOf is how many phases of n tiles the data is enough for, at most maxPhases.
func (s *Session) phasesOf(tiles int) int {
	return int(min(maxPhases, s.bytes/(int64(s.shape.SMs)*int64(tiles)*s.shape.tileBytes())))
}

// run launches the kernel and waits for it, on a GPU not forever.
func (s *Session) run(scalars map[string]uint64) error {
	if err := s.dev.Start(scalars); err != nil {
		return err
	}
	if !s.executor {
		late := time.NewTimer(s.patience)
		defer late.Stop()
		select {
		case <-s.dev.Done():
		case <-late.C:
			s.hung = true
			return fmt.Errorf("a launch has not ended after %v: the GPU hangs, or something else uses it", s.patience)
		}
	}
	return s.dev.Wait()
}

// Launch runs a launch. It is an error when an SM read anything else of a vector than what
// was written, or when requests went on beyond the stream that they are to be measured in.
func (s *Session) Launch(ctx context.Context, l Launch) (*Found, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, name := range []string{bufferHeads, bufferProbes, bufferCounter} {
		if err := s.dev.Zero(name); err != nil {
			return nil, err
		}
	}
	scalars := l.scalars()
	scalars[scalarTag] += uint64(s.launches) * maxPhases
	scalars[scalarSalt] = uint64(s.launches * 0x9e3779b1)
	s.launches++
	if err := s.run(scalars); err != nil {
		return nil, fmt.Errorf("calibrate: %w", err)
	}
	f := &Found{Took: s.dev.Elapsed()}
	var err error
	sms := s.shape.SMs
	read := func(name string, rows, words int) (all [][]uint32) {
		raw := make([]byte, 4*rows*words)
		if e := s.dev.Read(name, 0, raw); e != nil {
			err = errors.Join(err, e)
			return nil
		}
		for i := range rows {
			row := make([]uint32, words)
			for j := range row {
				row[j] = binary.LittleEndian.Uint32(raw[4*(i*words+j):])
			}
			all = append(all, row)
		}
		return all
	}
	f.Heads, f.Probes = read(bufferHeads, sms, headWords), read(bufferProbes, sms, probeWords)
	if l.Phases > 0 {
		stamps := read(bufferStamps, l.Phases*sms, stampWords)
		for p := 0; p+sms <= len(stamps); p += sms {
			f.Stamps = append(f.Stamps, stamps[p:p+sms])
		}
	}
	if err != nil {
		return nil, err
	}
	return f, s.check(l, f)
}

func (s *Session) check(l Launch, f *Found) error {
	if f.Took <= 0 {
		return fmt.Errorf("calibrate: the device says that a launch took %v", f.Took)
	}
	for sm, h := range f.Heads {
		if n := h[headWrong]; n > 0 {
			return fmt.Errorf("calibrate: SM %d found %d elements of vectors that were not what was written: the sync does not hold", sm, n)
		}
		if l.Probes > 0 && l.Tiles > 0 && !s.executor && int32(f.Probes[sm][probeEnd]-h[headEnd]) > 0 {
			return fmt.Errorf("calibrate: requests of SM %d went on after the stream that they were to be measured in", sm)
		}
	}
	return nil
}
