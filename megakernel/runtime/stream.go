package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mkgen/mkgen/megakernel"
)

// Stream is Generate that hands out every chosen token as it comes, while the
// launch runs on. each is called in order, on the caller's goroutine; when it
// returns false, or when ctx ends, the launch is told to stop, and the tokens it
// has chosen until then are returned: those handed out, and perhaps a few more.
// Pos says what is in the cache; Rewind forgets what is not wanted. The session
// can go on after a cancelled ctx, whose error Stream returns beside the tokens.
func (s *Session) Stream(ctx context.Context, prompt []int, n int, each func(token int) bool) (chosen []int, err error) {
	steps, err := s.check(prompt, n)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	known := s.pos + len(prompt)
	if err := s.prepare(prompt, known, steps); err != nil {
		return nil, err
	}
	s.patience()
	if err := s.dev.Start(map[string]uint64{
		megakernel.ScalarPos: uint64(s.pos), megakernel.ScalarSteps: uint64(steps),
		megakernel.ScalarKnown: uint64(known), megakernel.ScalarPages: uint64(s.pages)}); err != nil {
		return nil, s.fail(err)
	}
	l := &launch{s: s, ctx: ctx, each: each, next: known, end: s.pos + steps + 1, at: s.pos, changed: time.Now()}
	returned := false
	defer func() {
		if !returned { // each panicked, or ended its goroutine: the launch must not run on without anyone
			s.stopped = true
			_ = s.fail(errors.Join(errors.New("its listener panicked"), s.dev.Poke("stop", 0, 1), s.dev.Wait()))
		}
	}()
	followed := l.follow()
	returned = true
	if s.failed != nil {
		return nil, followed // it does not leave
	}
	if err := s.dev.Wait(); err != nil {
		return nil, s.fail(err)
	}
	if l.abandoned > 0 {
		return nil, s.recover(l)
	}
	if followed != nil {
		return nil, followed
	}
	if chosen, err = s.result(known, steps); err != nil {
		return nil, err
	}
	for _, token := range chosen[min(l.next-known, len(chosen)):] {
		if l.stopping || !each(token) {
			break
		}
	}
	return chosen, ctx.Err()
}

// Times are when the last launch chose the tokens that follow position from (which
// it fed), n of them: nanoseconds of the device's clock, modulo 2³².
func (s *Session) Times(from, n int) ([]uint32, error) { return s.read("times", from+1, n) }

// fail ends the session: a failed launch leaves the grid barrier anywhere.
func (s *Session) fail(err error) error {
	s.failed = fmt.Errorf("the session ended with a failed launch: %w", err)
	return err
}

// prepare writes what a launch needs.
func (s *Session) prepare(prompt []int, known, steps int) error {
	bits := make([]uint32, len(prompt))
	for i, token := range prompt {
		bits[i] = uint32(token)
	}
	if err := s.dev.Write("tokens", 4*int64(s.pos), words(bits)); err != nil {
		return err
	}
	none := make([]uint32, s.pos+steps+1-known)
	for i := range none {
		none[i] = noToken
	}
	if err := s.dev.Write("stream", 4*int64(known), words(none)); err != nil {
		return err
	}
	if err := s.dev.Write("progress", 0, words([]uint32{uint32(s.pos)})); err != nil || !s.stopped {
		return err
	}
	s.stopped = false
	return s.dev.Poke("stop", 0, 0)
}

// patience tells a device that knows hanging kernels whether anybody will give
// them up.
func (s *Session) patience() {
	if d, ok := s.dev.(knower); ok {
		d.Patience(0)
		if s.HangTimeout > 0 && len(s.mk.Sites) > 0 {
			d.Patience(time.Minute)
		}
	}
}

// launch is a launch being followed from the host.
type launch struct {
	s         *Session
	ctx       context.Context
	each      func(token int) bool
	next, end int       // position of the next token to hand out, and behind the last
	at        int       // progress
	changed   time.Time // when that, or abandoned, changed last
	stopping  bool      // the launch was told to stop
	abandoned int       // words of abort that are set
}

// pollEvery is how often the host looks at a running launch.
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
		select {
		case <-l.s.dev.Done():
			return nil
		case <-ticker.C:
		}
		if err := l.look(); err != nil {
			return err
		}
	}
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
			l.s.stopped = true
			if err := l.s.dev.Poke("stop", 0, 1); err != nil {
				return err
			}
		}
	}
	return l.watch()
}

// handOut hands out the tokens that have come.
func (l *launch) handOut() error {
	for l.next < l.end && !l.stopping {
		token, err := l.s.dev.Peek("stream", l.next)
		if err != nil || token == noToken {
			return err
		}
		l.next++
		l.stopping = !l.each(int(token))
	}
	return nil
}

// knower is a device that knows a hanging kernel from a slow one, and waits
// for as long as Patience says for a hanging one to be given up.
type knower interface {
	Stuck() bool
	Patience(time.Duration)
}

// watch gives the launch up when it has made no step for too long.
func (l *launch) watch() error {
	limit := l.s.HangTimeout
	if limit <= 0 || len(l.s.mk.Sites) == 0 {
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
	if l.abandoned == 2 {
		return l.s.fail(fmt.Errorf("the kernel hangs at position %d and does not leave %v after it was told to; the GPU is free again when this process ends", l.at, 2*graceAfterAbort))
	}
	l.changed = time.Now()
	l.abandoned++
	return l.s.dev.Poke("abort", l.abandoned-1, 1)
}
