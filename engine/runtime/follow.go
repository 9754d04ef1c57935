package runtime

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// patience tells a device that knows hanging kernels whether anybody will give
// them up.
func (s *runner) patience() {
	if d, ok := s.dev.(knower); ok {
		d.Patience(0)
		if s.HangTimeout > 0 && len(s.sites()) > 0 || s.masks.next != nil {
			d.Patience(time.Minute)
		}
	}
}

// launch is a launch being followed from the host.
type launch struct {
	s         *runner
	ctx       context.Context
	come      func(i int) (bool, error) // whether word or step i of the stream is there
	each      func(i int) bool          // hands it out; false: no more of them
	next, end int                       // the next one to hand out, and behind the last
	at        int                       // progress
	changed   time.Time                 // when that, or abandoned, changed last
	stopping  bool                      // the launch was told to stop
	abandoned int                       // words of abort that are set
}

// run starts a launch, follows it and waits for its end.
func (l *launch) run(scalars map[string]uint64) error {
	s := l.s
	s.patience()
	if err := s.dev.Start(scalars); err != nil {
		return s.fail(err)
	}
	l.changed = time.Now()
	returned := false
	defer func() {
		if !returned { // each panicked, or ended its goroutine: the launch must not run on without anyone
			_ = s.fail(errors.Join(errors.New("its listener panicked"), s.tellToStop(), s.dev.Wait()))
		}
	}()
	if s.begun != nil {
		s.begun()
	}
	followed := l.follow()
	returned = true
	if s.failed != nil {
		return followed // it does not leave
	}
	if err := s.dev.Wait(); err != nil {
		return s.fail(err)
	}
	if l.abandoned > 0 {
		return s.recover(l)
	}
	return followed
}

// pollEvery is how often the host looks at a running launch that does not wait for the host. Timers may be late by a
// millisecond.
const pollEvery = 20 * time.Microsecond

// graceAfterAbort is how long an abandoned launch has to leave, with each of the
// two words of abort.
const graceAfterAbort = 2 * time.Second

// follow hands tokens out until the launch has ended, stops it when that is
// wanted and gives it up when it hangs. An error leaves the launch running.
func (l *launch) follow() error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		if l.waitedFor() {
			select {
			case <-l.s.dev.Done():
				return nil
			default:
				runtime.Gosched()
			}
		} else {
			select {
			case <-l.s.dev.Done():
				return nil
			case <-ticker.C:
			}
		}
		if err := l.look(); err != nil {
			return err
		}
	}
}

// waitedFor reports whether the kernel waits for what the host makes of each step, so that the host looks without a
// pause. An executor needs the core itself.
func (l *launch) waitedFor() bool {
	_, executor := l.s.dev.(knower)
	return l.s.masks.next != nil && !l.stopping && l.abandoned == 0 && !executor
}

// look is one look at the launch.
func (l *launch) look() error {
	if !l.stopping && l.abandoned == 0 {
		if err := l.handOut(); err != nil {
			return err
		}
		if l.ctx.Err() != nil {
			l.stopping = true
		}
		if l.stopping {
			if err := l.s.tellToStop(); err != nil {
				return err
			}
		}
	}
	return l.watch()
}

// handOut hands out what has come.
func (l *launch) handOut() error {
	for l.next < l.end && !l.stopping {
		if come, err := l.come(l.next); err != nil || !come {
			return err
		}
		l.next++
		l.stopping = !l.each(l.next - 1)
		if !l.stopping && l.next < l.end {
			if err := l.s.nextMasks(); err != nil {
				return err
			}
		}
	}
	return nil
}

// waitsForMasks reports whether the launch has got no further because it is the host that is to go on: a step's tokens
// have come that were not handed out yet.
func (l *launch) waitsForMasks() (bool, error) {
	if l.abandoned > 0 || l.stopping || l.s.masks.next == nil || l.next >= l.end {
		return false, nil
	}
	return l.come(l.next)
}

// knower is a device that knows a hanging kernel from a slow one, and waits
// for as long as Patience says for a hanging one to be given up.
type knower interface {
	Stuck() bool
	Patience(time.Duration)
	Leave()
}

// watch gives the launch up when it has made no step for too long.
func (l *launch) watch() error {
	limit := l.s.HangTimeout
	if limit <= 0 || len(l.s.sites()) == 0 {
		return nil
	}
	at, err := l.s.dev.Peek("progress", 0)
	if err != nil {
		return err
	}
	if int(at) != l.at && l.abandoned == 0 {
		l.at, l.changed = int(at), time.Now()
		return nil
	}
	if l.abandoned > 0 {
		limit = graceAfterAbort
	}
	if d, ok := l.s.dev.(knower); ok && !d.Stuck() || !ok && time.Since(l.changed) < limit {
		return nil
	}
	if waits, err := l.waitsForMasks(); waits || err != nil {
		return err
	}
	if d, ok := l.s.dev.(knower); ok && l.abandoned == 2 {
		d.Leave() // and the launch ends with what hangs, and where
		return nil
	}
	if l.abandoned == 2 {
		return l.s.fail(fmt.Errorf(
			"the kernel hangs at position %d and does not leave %v after it was told to; the GPU is free again when this process ends", l.at, 2*graceAfterAbort))
	}
	l.changed = time.Now()
	l.abandoned++
	return l.s.dev.Poke("abort", l.abandoned-1, 1)
}
