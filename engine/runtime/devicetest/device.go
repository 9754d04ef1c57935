// Package devicetest is a device for tests and benchmarks of the host: it computes nothing and keeps what a kernel of
// several rows and its host say to each other.
package devicetest

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/tasks/draw"
)

// Device is a runtime.Device of a kernel of several rows. Its launches choose tokens below Tokens that are no end
// tokens, each a hash of row and step; under a mask the next one that may be.
type Device struct {
	Kernel *megakernel.Kernel
	Tokens int // at least 2
	// Last is how long the last step of a launch takes. All before it take no time, but wait for their masks.
	Last time.Duration

	mu       sync.Mutex
	masked   sync.Cond // masks are ready, or the launch is to stop
	mem      map[string][]byte
	done     chan struct{}
	ended    time.Time       // when the last launch did
	steps    int             // of it
	gaps     []time.Duration // from a launch's end to the next one's start, where both have several steps
	launches int
}

// New is a device for a kernel.
func New(mk *megakernel.Kernel, tokens int, last time.Duration) *Device {
	d := &Device{Kernel: mk, Tokens: tokens, Last: last, mem: map[string][]byte{}}
	d.masked.L = &d.mu
	return d
}

// ReportGaps reports the median and the tenth percentile of the times from a launch's end to the next one's start,
// where both have several steps.
func (d *Device) ReportGaps(b *testing.B) {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.Sort(d.gaps)
	b.ReportMetric(d.gaps[len(d.gaps)/2].Seconds()*1e6, "gap-µs/launch")
	b.ReportMetric(d.gaps[len(d.gaps)/10].Seconds()*1e6, "gap-p10-µs/launch")
}

// Nothing is weights that need not be loaded.
type Nothing struct{}

func (Nothing) Load(context.Context, *megakernel.Kernel, runtime.Device) (runtime.LoadStats, error) {
	return runtime.LoadStats{}, nil
}

// kept is the largest buffer that has memory.
const kept = 64 << 20

func (d *Device) Alloc(name string, bytes int64) error {
	if bytes <= kept && name != "kv" && name != "weights" {
		d.mem[name] = make([]byte, bytes)
	}
	if name == megakernel.BufferScores {
		d.fillScores()
	}
	return nil
}

// fillScores makes the scores of every row and step those of equal logits.
func (d *Device) fillScores() {
	raw, parts := d.mem[megakernel.BufferScores], d.Kernel.Options.SMs
	for size := 4 * draw.ScoreWords(parts); len(raw) >= size; raw = raw[size:] {
		for i := range draw.MaxTops {
			binary.LittleEndian.PutUint32(raw[4*(draw.ScoreTops+2*i+1):], uint32(i%d.Tokens))
		}
		for i := range parts {
			binary.LittleEndian.PutUint32(raw[4*(draw.ScoreParts+2*i+1):], math.Float32bits(float32(d.Tokens)))
		}
	}
}

func (d *Device) span(name string, offset int64, n int) ([]byte, error) {
	raw := d.mem[name]
	if raw != nil && (offset < 0 || offset+int64(n) > int64(len(raw))) {
		return nil, fmt.Errorf("bytes %d to %d of buffer %s, which has %d", offset, offset+int64(n), name, len(raw))
	}
	return raw, nil
}

func (d *Device) Write(name string, offset int64, src []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	raw, err := d.span(name, offset, len(src))
	if err == nil && raw != nil {
		copy(raw[offset:], src)
	}
	return err
}

func (d *Device) Zero(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.mem[name])
	return nil
}

func (d *Device) Read(name string, offset int64, dst []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	raw, err := d.span(name, offset, len(dst))
	if err == nil && raw != nil {
		copy(dst, raw[offset:])
	}
	return err
}

// ReadAhead is Read of what a buffer holds when wait is called: nothing that a launch writes is in the way.
func (d *Device) ReadAhead(name string, offset int64, n int) (wait func() ([]byte, error), err error) {
	return func() ([]byte, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		raw, err := d.span(name, offset, n)
		if err != nil {
			return nil, err
		}
		return raw[offset : offset+int64(n)], nil
	}, nil
}

func (d *Device) Peek(name string, i int) (uint32, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.word(name, i), nil
}

func (d *Device) Poke(name string, i int, values ...uint32) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, value := range values {
		d.put(name, i+k, value)
	}
	if name == megakernel.BufferMasksReady || name == "stop" {
		d.masked.Broadcast()
	}
	return nil
}

func (d *Device) word(name string, i int) uint32 {
	return binary.LittleEndian.Uint32(d.mem[name][4*i:])
}
func (d *Device) put(name string, i int, value uint32) {
	binary.LittleEndian.PutUint32(d.mem[name][4*i:], value)
}
func (d *Device) Done() <-chan struct{}               { return d.done }
func (d *Device) Close() error                        { return nil }
func (d *Device) Borrow(string, runtime.Device) error { return nil }

func (d *Device) Wait() error {
	<-d.done
	return nil
}

func (d *Device) Start(scalars map[string]uint64) error {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	steps := int(scalars[megakernel.ScalarSteps])
	if d.launches++; d.steps > 1 && steps > 1 {
		d.gaps = append(d.gaps, now.Sub(d.ended))
	}
	d.steps = steps
	d.done = make(chan struct{})
	go d.run(steps, int(scalars[megakernel.ScalarRows]), uint32(scalars[megakernel.ScalarDraws]))
	return nil
}

// run is a launch.
func (d *Device) run(steps, rows int, modes uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for step, going := 0, true; step < steps && going; step++ {
		if step == steps-1 {
			d.mu.Unlock()
			time.Sleep(d.Last)
			d.mu.Lock()
		}
		for modes&draw.ModeMasks != 0 && d.word(megakernel.BufferMasksReady, 0) <= uint32(step) && d.word("stop", 0) == 0 {
			d.masked.Wait()
		}
		for row := range rows {
			token := d.choose(step, row)
			going = going && !slices.Contains(d.ends(), token)
			d.put("stream", step*d.Kernel.Options.Tokens+row, token)
		}
		d.put("progress", 0, uint32(step+1))
		going = going && d.word("stop", 0) == 0
	}
	d.ended = time.Now()
	close(d.done)
}

// choose is the token of a row.
func (d *Device) choose(step, row int) uint32 {
	first := uint32(d.launches*31+step*7+row) * 2654435761 % uint32(d.Tokens)
	var mask []byte
	if d.Kernel.Draws() && d.word(megakernel.BufferDraws, row*draw.RowWords+draw.RowFlags)&draw.FlagMask != 0 {
		words := draw.MaskWords(d.Kernel.Config.Vocab)
		mask = d.mem[megakernel.BufferTokenMasks][4*words*row:][:4*words]
	}
	end := uint32(0)
	for i := range uint32(d.Tokens) {
		token := (first + i) % uint32(d.Tokens)
		switch {
		case mask != nil && mask[token/8]>>(token%8)&1 == 0:
		case slices.Contains(d.ends(), token):
			end = token // where nothing else may be
		default:
			return token
		}
	}
	return end
}

// ends are the tokens that end a launch.
func (d *Device) ends() []uint32 {
	ends := make([]uint32, 0, megakernel.MaxEnds)
	for i := range cap(ends) {
		ends = append(ends, d.word("ends", i))
	}
	return ends
}
