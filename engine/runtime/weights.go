package runtime

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/mkgen/mkgen/megakernel"
)

// Weights fill a kernel's buffers weights, embed (where there is one) and gains,
// which are allocated. The error names the tensor at fault. When ctx ends, Load
// stops and returns ctx's error.
type Weights interface {
	Load(ctx context.Context, mk *megakernel.Kernel, dev Device) (LoadStats, error)
}

// LoadOptions say how tensors are brought to a device. The zero value is good.
type LoadOptions struct {
	// Progress, if not nil, is called as the work advances with bytes done and in
	// all: never from two goroutines at a time, done increasing, at last equal to
	// total. It must be quick.
	Progress func(done, total int64)
	// Workers pack at a time: GOMAXPROCS for 0, and 16 at most.
	Workers int
	// Check refuses weights that are not finite as bf16, by tensor and position.
	Check bool
	// Image, if not nil, keeps what was packed, and is where it is taken from the next time. It is
	// made of weights that were checked, so one that is there needs no Check.
	Image *Image
}

// LoadStats are what loading took.
type LoadStats struct {
	Bytes   int64         // brought to the device
	Took    time.Duration // for that
	Checked time.Duration // for the check before it
	Workers int           // that packed, 0 when the device made the weights itself
	Image   bool          // the weights were packed already: see LoadOptions.Image
}

// Rate is in bytes per second.
func (s LoadStats) Rate() float64 { return float64(s.Bytes) / max(s.Took.Seconds(), 1e-9) }

const (
	maxWorkers = 16
	// stageBytes is how much is packed and copied at a time. Every worker has
	// stagesEach of them: one to pack into while the other is copied.
	stageBytes = 8 << 20
	stagesEach = 2
)

// FromTensors are the weights that t delivers, packed by several goroutines while
// the packed ones are copied; see megakernel.Reader for what makes it fast.
// LoadOptions.Check calls t's method Check where it has one like
// checkpoint.Checkpoint's, which reads all once more, before anything is copied;
// other tensors are looked at as they are packed.
func FromTensors(t megakernel.Tensors, o LoadOptions) Weights { return &fromTensors{t, o} }

type fromTensors struct {
	t megakernel.Tensors
	o LoadOptions
}

// Load packs and copies everything. The error is that of the first piece, in the
// order of the buffers, that failed.
func (f *fromTensors) Load(ctx context.Context, mk *megakernel.Kernel, dev Device) (LoadStats, error) {
	stats := LoadStats{Workers: f.o.Workers}
	if stats.Workers < 1 {
		stats.Workers = runtime.GOMAXPROCS(0)
	}
	l := &load{t: f.t, mk: mk, dev: stager(dev), ctx: ctx, progress: f.o.Progress}
	l.cut()
	stats.Bytes = l.total
	stats.Workers = min(stats.Workers, maxWorkers, len(l.jobs))
	if f.o.Image != nil {
		if l.image = f.o.Image.open(l); l.image != nil {
			stats.Image, stats.Took = true, l.all(stats.Workers)
			if !errors.Is(l.err, errDamaged) {
				return stats, errors.Join(l.err, l.image.file.Close())
			}
			l.image.drop(l.err)
			l.image, l.next, l.failed, l.err, l.done, stats.Image = nil, 0, len(l.jobs), nil, 0, false
		}
	}
	if f.o.Check {
		begin := time.Now()
		if err := l.check(); err != nil {
			return stats, err
		}
		stats.Checked = time.Since(begin)
		if f.o.Image != nil {
			l.kept = f.o.Image.create(l)
		}
	}
	stats.Took = l.all(stats.Workers)
	if l.kept != nil {
		l.kept.finish(l.err)
	}
	return stats, l.err
}

// all does all jobs and returns how long they took.
func (l *load) all(workers int) time.Duration {
	begin := time.Now()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(l.work)
	}
	wg.Wait()
	if l.err == nil && l.next < len(l.jobs) {
		l.err = l.ctx.Err()
	}
	return time.Since(begin)
}

// load is one Load under way.
type load struct {
	t    megakernel.Tensors
	mk   *megakernel.Kernel
	dev  Stager
	ctx  context.Context
	jobs []job

	largest int        // bytes of a job, and of a piece of staging memory
	image   *imageFile // to read instead of packing; nil: none
	kept    *imageFile // to write, too; nil: none
	shown   int64      // done, as progress was told last

	checkCodes bool // of every packer

	mu          sync.Mutex // for all below
	next        int        // the job to begin next
	failed      int        // the least job that failed
	err         error      // its error
	done, total int64
	progress    func(done, total int64)
}

// job is a stretch of a buffer that one worker packs.
type job struct {
	buffer        string
	offset, bytes int64
	pack          func(p *megakernel.Packer, dst []byte) error
}

// cut makes jobs of all that comes from tensors, of stageBytes or a tile each.
func (l *load) cut() {
	add := func(j job) {
		l.jobs = append(l.jobs, j)
		l.total += j.bytes
		l.largest = max(l.largest, int(j.bytes))
	}
	c, row := &l.mk.Config, int64(2*l.mk.Config.Hidden)
	for _, v := range l.mk.VectorBuffers() {
		add(job{v.Name, 0, v.Bytes, func(_ *megakernel.Packer, dst []byte) error {
			made, err := v.Make(l.t)
			copy(dst, made)
			return err
		}})
	}
	blocks := l.mk.Plan.Blocks(stageBytes)
	for i := range blocks {
		b := &blocks[i]
		add(job{"weights", b.Offset, b.Bytes, func(p *megakernel.Packer, dst []byte) error { return p.Pack(dst, b) }})
	}
	if l.mk.OwnEmbedding() {
		each := max(1, stageBytes/(2*c.Hidden))
		for first := 0; first < c.Vocab; first += each {
			add(job{megakernel.BufferEmbed, int64(first) * row, int64(min(each, c.Vocab-first)) * row,
				func(p *megakernel.Packer, dst []byte) error { return p.Embeddings(dst, first) }})
		}
	}
	l.failed = len(l.jobs)
}

// take is the next job, or -1 when there is none to begin any more.
func (l *load) take() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next >= len(l.jobs) || l.err != nil || l.ctx.Err() != nil {
		return -1
	}
	l.next++
	return l.next - 1
}

func (l *load) fail(i int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i < l.failed {
		l.failed, l.err = i, err
	}
}

func (l *load) advance(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done += n
	l.tell()
}

// tell tells progress, but for what was told before a damaged image had to be packed again.
func (l *load) tell() {
	if l.progress != nil && l.done > l.shown {
		l.shown = l.done
		l.progress(l.done, l.total)
	}
}

// work packs jobs into this worker's staging memory, one while another is copied.
func (l *load) work() {
	packer := l.mk.NewPacker(l.t)
	packer.CheckCodes = l.checkCodes
	var stages [stagesEach]Staging
	last := 0
	defer func() {
		for _, s := range stages {
			if s != nil {
				if err := s.Free(); err != nil {
					l.fail(last, fmt.Errorf("copying to the device: %w", err))
				}
			}
		}
	}()
	for n := 0; ; n++ {
		i := l.take()
		if i < 0 {
			return
		}
		last = i
		if err := l.run(i, packer, &stages[n%stagesEach]); err != nil {
			l.fail(i, err)
			return
		}
		l.advance(l.jobs[i].bytes)
	}
}

// run packs one job and begins its copy. The staging memory is made at first.
func (l *load) run(i int, packer *megakernel.Packer, stage *Staging) (err error) {
	j := &l.jobs[i]
	if *stage == nil {
		if *stage, err = l.dev.Stage(l.largest); err != nil {
			return fmt.Errorf("staging memory: %w", err)
		}
	}
	s := *stage
	if err := s.Wait(); err != nil {
		return fmt.Errorf("copying to the device: %w", err)
	}
	data := s.Bytes()[:j.bytes]
	if l.image != nil {
		err = l.image.read(i, data)
	} else {
		err = j.pack(packer, data)
	}
	if err != nil {
		return err
	}
	if l.kept != nil {
		l.kept.write(i, data)
	}
	if err := s.Write(j.buffer, j.offset, int(j.bytes)); err != nil {
		return fmt.Errorf("buffer %s: %w", j.buffer, err)
	}
	return nil
}
