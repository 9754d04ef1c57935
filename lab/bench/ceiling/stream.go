package ceiling

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Device is a device that has loaded Kernel: what runtime.Device offers of memory
// and launches. Elapsed is what the last launch took by the device's own clock.
type Device interface {
	Alloc(name string, bytes int64) error
	Zero(name string) error
	Read(name string, offset int64, dst []byte) error
	Start(scalars map[string]uint64) error
	Wait() error
	Elapsed() time.Duration
}

// Variant is one way to stream.
type Variant struct {
	StageBytes int `json:"stage_bytes"` // of a copy and of a stage
	Stages     int `json:"stages"`      // of the ring; all are in flight
	// Interleaved says that neighbouring SMs read neighbouring chunks; else each
	// SM reads one contiguous part of the buffer, as packed weights lie.
	Interleaved bool `json:"interleaved"`
}

// String is "12 × 16 KiB, interleaved".
func (v Variant) String() string {
	order := "contiguous"
	if v.Interleaved {
		order = "interleaved"
	}
	return fmt.Sprintf("%d × %d KiB, %s", v.Stages, v.StageBytes>>10, order)
}

// Variants are those of which the fastest is the ceiling: stages of 8 to 64 KiB,
// the whole ring of 192 KiB in flight, or two thirds or a third of it, in both
// orders.
func Variants() []Variant {
	var all []Variant
	for _, interleaved := range []bool{true, false} {
		for stage := MinStageBytes; stage <= 64<<10; stage *= 2 {
			for thirds := 3; thirds >= 1; thirds-- {
				all = append(all, Variant{StageBytes: stage, Stages: thirds * RingBytes / 3 / stage, Interleaved: interleaved})
			}
		}
	}
	return all
}

// MaxBytes is the largest buffer: the index of a word stays below 2³².
const MaxBytes = 8 << 30

// Stream is a filled buffer on a device, ready to be streamed. Not safe for
// concurrent use.
type Stream struct {
	dev   Device
	sms   int
	bytes int64
}

// Open allocates a buffer of bytes (up to 8 GiB, a multiple of 16, with room for
// a chunk of 64 KiB for each SM), which should exceed the L2 cache by far, on a
// device that has loaded Kernel(sms), and fills it.
func Open(dev Device, sms int, bytes int64) (*Stream, error) {
	if least := int64(sms) * 64 << 10; bytes < least || bytes > MaxBytes || bytes%element != 0 {
		return nil, fmt.Errorf("ceiling: a buffer of %d bytes for %d SMs, want %d to %d, a multiple of %d", bytes, sms, least,
			int64(MaxBytes), element)
	}
	s := &Stream{dev: dev, sms: sms, bytes: bytes}
	if err := dev.Alloc(bufferData, bytes); err != nil {
		return nil, fmt.Errorf("ceiling: a buffer of %d bytes: %w", bytes, err)
	}
	if err := dev.Alloc(bufferOut, int64(8*sms)); err != nil {
		return nil, fmt.Errorf("ceiling: %w", err)
	}
	scalars := s.scalars(Variants()[0], false)
	scalars[scalarFill] = uint64(bytes / element)
	if err := s.run(scalars); err != nil {
		return nil, fmt.Errorf("ceiling: filling the buffer: %w", err)
	}
	return s, nil
}

// run launches the kernel and waits for it.
func (s *Stream) run(scalars map[string]uint64) error {
	if err := s.dev.Start(scalars); err != nil {
		return err
	}
	return s.dev.Wait()
}

// chunks is the number of chunks each SM streams.
func (s *Stream) chunks(v Variant) int64 { return s.bytes / int64(v.StageBytes) / int64(s.sms) }

// Bytes is what one launch of a variant reads: all of the buffer but for what
// does not divide by SMs and chunks.
func (s *Stream) Bytes(v Variant) int64 { return s.chunks(v) * int64(v.StageBytes) * int64(s.sms) }

// steps are the elements between the first chunks of two CTAs and between two
// chunks of one.
func (s *Stream) steps(v Variant) (cta, chunk int64) {
	unit := int64(v.StageBytes / element)
	if v.Interleaved {
		return unit, unit * int64(s.sms)
	}
	return unit * s.chunks(v), unit
}

func (s *Stream) scalars(v Variant, check bool) map[string]uint64 {
	cta, chunk := s.steps(v)
	m := map[string]uint64{scalarFill: 0, scalarStage: uint64(v.StageBytes / element), scalarStages: uint64(v.Stages),
		scalarChunks: uint64(s.chunks(v)), scalarCTAStep: uint64(cta), scalarChunkStep: uint64(chunk), scalarCheck: 0}
	if check {
		m[scalarCheck] = 1
	}
	return m
}

// fits refuses a variant that the kernel cannot run.
func (v Variant) fits() error {
	if v.StageBytes < MinStageBytes || v.StageBytes%element != 0 || v.Stages < 1 || v.Stages*v.StageBytes > RingBytes {
		return fmt.Errorf("ceiling: %d stages of %d bytes, want at least 1 of at least %d, together at most %d", v.Stages,
			v.StageBytes, MinStageBytes, RingBytes)
	}
	return nil
}

// Check streams once and compares the first and the last word of every chunk that
// landed with what the fill wrote: an error says which SM copied something else.
func (s *Stream) Check(v Variant) error {
	_, err := s.launch(v, true)
	if err != nil {
		return err
	}
	out, err := s.out()
	if err != nil {
		return err
	}
	cta, chunk := s.steps(v)
	for sm := range s.sms {
		want := uint32(0)
		for c := range s.chunks(v) {
			first := 4 * (int64(sm)*cta + c*chunk)
			want += Word(uint32(first)) + Word(uint32(first+int64(v.StageBytes)/4-1))
		}
		if got := out[2*sm+1]; got != want {
			return fmt.Errorf("ceiling: %s: SM %d found words of sum %#x in its chunks, want %#x: what it copied is not the buffer", v, sm, got, want)
		}
	}
	return nil
}

// Once streams once and returns the time by the device's clock. It is an error
// when not every chunk has landed.
func (s *Stream) Once(v Variant) (time.Duration, error) { return s.launch(v, false) }

func (s *Stream) launch(v Variant, check bool) (time.Duration, error) {
	if err := v.fits(); err != nil {
		return 0, err
	}
	if err := s.dev.Zero(bufferOut); err != nil {
		return 0, err
	}
	if err := s.run(s.scalars(v, check)); err != nil {
		return 0, fmt.Errorf("ceiling: %s: %w", v, err)
	}
	took := s.dev.Elapsed()
	out, err := s.out()
	if err != nil {
		return 0, err
	}
	for sm := range s.sms {
		if got := int64(out[2*sm]); got != s.chunks(v) {
			return 0, fmt.Errorf("ceiling: %s: %d chunks landed on SM %d, want %d", v, got, sm, s.chunks(v))
		}
	}
	return took, nil
}

func (s *Stream) out() ([]uint32, error) {
	raw := make([]byte, 8*s.sms)
	if err := s.dev.Read(bufferOut, 0, raw); err != nil {
		return nil, err
	}
	out := make([]uint32, 2*s.sms)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	return out, nil
}

// Measured is a variant's speed over several launches, in GB/s (10⁹ bytes).
type Measured struct {
	Variant
	GBps float64 `json:"gb_s"`     // the median
	Min  float64 `json:"min_gb_s"` // the slowest
	Max  float64 `json:"max_gb_s"` // the fastest
}

// Measure times launches (at least 1) of a variant, after one that does not count.
func (s *Stream) Measure(ctx context.Context, v Variant, launches int) (Measured, error) {
	var rates []float64
	for i := range launches + 1 {
		if err := ctx.Err(); err != nil {
			return Measured{}, err
		}
		took, err := s.Once(v)
		switch {
		case err != nil:
			return Measured{}, err
		case took <= 0:
			return Measured{}, fmt.Errorf("ceiling: %s: the device says that streaming %d bytes took %v", v, s.Bytes(v), took)
		case i > 0:
			rates = append(rates, float64(s.Bytes(v))/float64(took.Nanoseconds()))
		}
	}
	if len(rates) == 0 {
		return Measured{}, errors.New("ceiling: no launches to time")
	}
	slices.Sort(rates)
	return Measured{Variant: v, GBps: rates[(len(rates)-1)/2], Min: rates[0], Max: rates[len(rates)-1]}, nil
}

// Best measures all variants and returns the one with the greatest median.
func (s *Stream) Best(ctx context.Context, variants []Variant, launches int) (best Measured, err error) {
	for _, v := range variants {
		m, err := s.Measure(ctx, v, launches)
		if err != nil {
			return best, err
		}
		if m.GBps > best.GBps {
			best = m
		}
	}
	if best.GBps == 0 {
		return best, errors.New("ceiling: no variants to measure")
	}
	return best, nil
}
