package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mkgen/mkgen/lab/bench/ceiling"
)

// The launches that are timed of each variant of the ceiling, and the memory left
// free beside its buffer.
const (
	ceilingLaunches = 9
	leastCeiling    = 4 << 30 // bytes streamed at a time
	spareMemory     = 1 << 30
)

// A ceiling so low that the measurement would be void is measured anew, so often in all and
// after such a pause: clocks may be coming up, or what heated the GPU may just have ended.
const (
	ceilingTries = 3
	ceilingPause = 5 * time.Second
)

// Yardstick is a machine's streaming ceiling, ready to be measured. Not safe for
// concurrent use, nor beside another kernel on the machine.
type Yardstick struct {
	stream   *ceiling.Stream
	dev      Loaded
	variants []ceiling.Variant
	launches int
	gpu      string
}

// OpenYardstick fills the ceiling's buffer in what memory is left on the machine,
// up to ceiling.MaxBytes, and checks that every variant reads it. All SMs take
// part, on the executor executorSMs. Too little memory is an error. Progress hears
// what is done; nil is allowed.
func OpenYardstick(ctx context.Context, m Machine, executorSMs int,
	progress func(what string)) (y *Yardstick, err error) {
	f := m.Facts()
	y = &Yardstick{variants: ceiling.Variants(), launches: ceilingLaunches, gpu: f.GPU}
	sms := f.SMs
	if f.Executor { // its variants are tested elsewhere
		sms, y.variants, y.launches = executorSMs, y.variants[:1], 1
	}
	bytes := int64(sms) * 64 << 10 // on the executor: a chunk each
	if !f.Executor {
		if bytes, err = StreamBytes(m); err != nil {
			return nil, err
		}
	}
	if progress != nil {
		progress(fmt.Sprintf("the ceiling: filling %d bytes", bytes))
	}
	k, err := ceiling.Kernel(sms)
	if err != nil {
		return nil, err
	}
	if y.dev, err = m.Load(ctx, k); err != nil {
		return nil, err
	}
	if y.stream, err = ceiling.Open(y.dev, sms, bytes); err == nil {
		for _, v := range y.variants {
			err = errors.Join(err, y.stream.Check(v))
		}
	}
	if err != nil {
		return nil, errors.Join(err, y.dev.Close())
	}
	return y, nil
}

// StreamBytes is how much of a GPU's free memory a measurement streams, a multiple of 16:
// up to ceiling.MaxBytes, and far more than its caches hold. Too little is an error.
func StreamBytes(m Machine) (int64, error) {
	free, err := m.Free()
	if err != nil {
		return 0, err
	}
	bytes := min(ceiling.MaxBytes, (free-spareMemory)&^15)
	if least := max(leastCeiling, 32*m.Facts().L2); bytes < least {
		return 0, fmt.Errorf("ceiling: %d bytes of memory are free, a buffer of %d is needed beside %d to spare", free, least,
			int64(spareMemory))
	}
	return bytes, nil
}

// Measure measures the ceiling. One so low that it makes the measurement void, three times
// with some seconds between, is an error.
func (y *Yardstick) Measure(ctx context.Context) (ceiling.Measured, error) {
	return retried(ctx, y.gpu, ceilingPause, func() (ceiling.Measured, error) {
		return y.stream.Best(ctx, y.variants, y.launches)
	})
}

// retried is the first of ceilingTries measurements that is not void, or the last one and why
// it is.
func retried(ctx context.Context, gpu string, pause time.Duration,
	measure func() (ceiling.Measured, error)) (ceiling.Measured, error) {
	for try := 1; ; try++ {
		m, err := measure()
		if err != nil {
			return m, err
		}
		void := Void(gpu, m.GBps)
		if void == nil || try == ceilingTries {
			return m, void
		}
		select {
		case <-ctx.Done():
			return m, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// Close releases the buffer.
func (y *Yardstick) Close() error { return y.dev.Close() }
